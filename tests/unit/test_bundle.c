/* Bundles: how many calls fit, and the words of the command. */
#include "gateway/admit/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char run_id[] = "0123456789abcdef0123456789abcdef01234567";

static struct request *request_make_traced(const char *user, const char *key, const char *trace,
					   const char *code)
{
	struct request *request = calloc(1, sizeof(*request) + strlen(key) + strlen(trace) +
						    REQUEST_CODE_FOUND_MAX + 4);

	user_id_parse(&request->user, user, strlen(user));
	request->key_len = strlen(key);
	request->trace_len = strlen(trace);
	memcpy(request->text + 1, key, strlen(key)); /* behind the empty id and its NUL */
	memcpy(request->text + request->key_len + 2, trace, strlen(trace));
	request_code_set(request, code, 0);
	return request;
}

static struct request *request_make(const char *user, const char *key, const char *code)
{
	return request_make_traced(user, key, "", code);
}

/* With so many requests of the users u0, u1, … and no keys. */
static struct call *call_make(int64_t coupon, size_t requests)
{
	struct call *call = calloc(1, sizeof(*call));
	char user[16];

	call->coupon_id = coupon;
	call->seen_generation = 3;
	call->seen_seq = 10 + coupon % 10;
	call->batch.bytes[15] = (uint8_t)coupon;
	for (size_t i = 0; i < requests; i++) {
		snprintf(user, sizeof(user), "u%zu", i);
		call->requests[call->requests_n++] = request_make(user, "", "");
	}
	return call;
}

static void call_free(struct call *call)
{
	for (size_t i = 0; i < call->requests_n; i++)
		free(call->requests[i]);
	free(call);
}

/* The calls come out in their order. */
static void bundle_empty(struct bundle *bundle)
{
	struct call *call;
	int64_t last = 0;

	while ((call = bundle_take(bundle))) {
		assert_true(call->coupon_id > last);
		last = call->coupon_id;
		call_free(call);
	}
	free(bundle);
}

static void test_room(void **state)
{
	struct bundle *bundle = bundle_new();

	(void)state;
	assert_int_equal(bundle_room(bundle), 256);
	bundle_add(bundle, call_make(1, 100));
	assert_int_equal(bundle_room(bundle), 156);
	bundle_add(bundle, call_make(2, 91));
	assert_int_equal(bundle_room(bundle), 65);
	bundle_add(bundle, call_make(3, 1));
	assert_int_equal(bundle_room(bundle), 0);
	bundle_empty(bundle);
}

static void test_as_many_coupons_as_fit(void **state)
{
	struct bundle *bundle = bundle_new();

	(void)state;
	for (int i = 1; i <= BUNDLE_CALLS_MAX; i++) {
		assert_true(bundle_room(bundle) > 0);
		bundle_add(bundle, call_make(i, 1));
	}
	assert_int_equal(bundle_room(bundle), 0);
	assert_int_equal(bundle->calls_n, BUNDLE_CALLS_MAX);
	assert_int_equal(bundle->requests, BUNDLE_CALLS_MAX);
	bundle_empty(bundle);
}

static void test_what_fills_one(void **state)
{
	(void)state;
	assert_false(bundle_is_filled_by(191, 47));
	assert_true(bundle_is_filled_by(192, 1));
	assert_true(bundle_is_filled_by(48, 48));
}

static void words_expect(const struct bundle_command *command, const char *const *words, int n)
{
	assert_int_equal(command->n, n);
	for (int i = 0; i < n; i++) {
		assert_int_equal(command->lengths[i], strlen(words[i]));
		assert_memory_equal(command->words[i], words[i], strlen(words[i]));
	}
}

static void test_words(void **state)
{
	static struct bundle_command command;
	static const char *const words[] = {
		"EVALSHA",
		"hash",
		"6",
		"coupon:{1}",
		"coupon:{1}:users",
		"coupon:{1}:outbox",
		"coupon:{2}",
		"coupon:{2}:users",
		"coupon:{2}:outbox",
		run_id,
		"1000",
		"1",
		"00000000000000000000000001",
		"3",
		"11",
		"2k",
		"u0",
		"",
		"x|y",
		"a key",
		"2",
		"00000000000000000000000002",
		"3",
		"12",
		"1",
		"u0",
	};
	struct bundle *bundle = bundle_new();
	struct call *first = call_make(1, 1);

	(void)state;
	first->requests[first->requests_n++] = request_make("x|y", "a key", "");
	first->has_keys = 1;
	bundle_add(bundle, first);
	bundle_add(bundle, call_make(2, 1));
	bundle_command_make(&command, bundle, "hash", run_id, "1000");
	words_expect(&command, words, sizeof(words) / sizeof(words[0]));
	bundle_empty(bundle);
}

/* As many coupons as fit and as many requests, with the longest ids, keys and codes. */
static void test_the_largest(void **state)
{
	static struct bundle_command command;
	char user[65] = "", key[65] = "", code[RECEIVE_CODE_MAX + 1] = "";
	char trace[TRACE_SIZE] = "";
	struct bundle *bundle = bundle_new();

	(void)state;
	memset(user, 'u', 64);
	memset(key, 'k', 64);
	memset(code, '1', RECEIVE_CODE_MAX);
	memset(trace, 't', TRACE_MAX);
	for (int i = 0; i < BUNDLE_CALLS_MAX; i++) {
		struct call *call = call_make(INT64_MAX - BUNDLE_CALLS_MAX + i, 0);
		size_t n = i < BUNDLE_CALLS_MAX - 1 ? 4 : bundle_room(bundle);

		call->seen_generation = call->seen_seq = (1LL << 53) - 1;
		call->has_keys = call->has_codes = call->has_traces = 1;
		for (size_t k = 0; k < n; k++)
			call->requests[call->requests_n++] = request_make_traced(user, key, trace,
										 code);
		bundle_add(bundle, call);
		if (bundle_room(bundle) == 0)
			break;
	}
	bundle_command_make(&command, bundle, "hash", run_id, "9007199254740991");
	assert_int_equal(command.n, 5 + 9 * bundle->calls_n + 4 * bundle->requests);
	assert_true(bundle->requests <= BUNDLE_REQUESTS_MAX);
	bundle_empty(bundle);
}

/* Only the call with codes gets their key, and keys and codes for each request. */
static void test_words_with_keys_and_codes(void **state)
{
	static struct bundle_command command;
	static const char *const words[] = {
		"EVALSHA",
		"hash",
		"7",
		"coupon:{1}",
		"coupon:{1}:users",
		"coupon:{1}:outbox",
		"coupon:{1}:codes",
		"coupon:{2}",
		"coupon:{2}:users",
		"coupon:{2}:outbox",
		run_id,
		"1000",
		"1",
		"00000000000000000000000001",
		"3",
		"11",
		"3kc",
		"u0",
		"",
		"",
		"x",
		"",
		"17.5",
		"y",
		"k",
		"17",
		"2",
		"00000000000000000000000002",
		"3",
		"12",
		"1",
		"u0",
	};
	struct bundle *bundle = bundle_new();
	struct call *first = call_make(1, 1);

	(void)state;
	first->requests[first->requests_n++] = request_make("x", "", "17.5");
	first->requests[first->requests_n++] = request_make("y", "k", "17");
	first->has_keys = first->has_codes = 1;
	bundle_add(bundle, first);
	bundle_add(bundle, call_make(2, 1));
	bundle_command_make(&command, bundle, "hash", run_id, "1000");
	words_expect(&command, words, sizeof(words) / sizeof(words[0]));
	bundle_empty(bundle);
}

static void test_words_with_traces(void **state)
{
	static struct bundle_command command;
	struct bundle *bundle = bundle_new();
	struct call *call = call_make(1, 1);

	(void)state;
	call->requests[call->requests_n++] = request_make_traced("x", "k", "t", "17.5");
	call->has_keys = call->has_codes = call->has_traces = 1;
	bundle_add(bundle, call);
	bundle_command_make(&command, bundle, "hash", run_id, "1000");
	assert_int_equal(command.n, 22);
	assert_string_equal(command.words[13], "2kct");
	assert_int_equal(command.lengths[17], 0);
	assert_int_equal(command.lengths[20], 4);
	assert_memory_equal(command.words[20], "17.5", 4);
	assert_int_equal(command.lengths[21], 1);
	assert_memory_equal(command.words[21], "t", 1);
	bundle_empty(bundle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_as_many_coupons_as_fit),
		cmocka_unit_test(test_what_fills_one),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_words_with_keys_and_codes),
		cmocka_unit_test(test_words_with_traces),
		cmocka_unit_test(test_the_largest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
