/* Receives: <coupon>.<user>.<batch>.<index> in one spelling, and what an idempotency key may be. */
#include "common/message/receive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"

static void test_round_trip(void **state)
{
	static const char *const texts[] = {
		"1.1." BATCH ".0",
		"1001.42." BATCH ".9",
		"1001.42." BATCH ".255",
		"9223372036854775807.9223372036854775807." BATCH ".100",
	};
	char out[RECEIVE_SIZE];
	struct receive receive;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(receive_parse(&receive, texts[i], strlen(texts[i])), 0);
		assert_int_equal(receive_format(&receive, out), strlen(texts[i]));
		assert_string_equal(out, texts[i]);
	}
	assert_true(receive.coupon == INT64_MAX);
	assert_string_equal(receive.user.text, "9223372036854775807");
	assert_int_equal(receive.index, 100);
}

#define DOTS_16 "................"

/* A user may contain dots, and so look like any part of a receive. */
static const char *const users[] = {
	"0",
	"-1",
	"a.b",
	".",
	"..",
	".a",
	"a.",
	".1.",
	"42.7",
	BATCH,
	BATCH ".3",
	"." BATCH ".3",
	"42." BATCH ".3",
	"1001.42." BATCH ".3",
	"1001.42." BATCH ".3.",
	"1.42." BATCH ".3." BATCH ".9",
	DOTS_16 DOTS_16 DOTS_16 DOTS_16,
	"auth0|65f1c2",
	"gid://shopify/Customer/544365967",
	"\"],[\"\\:{}|%s%n$&;<>`~!#*'",
};

static void parts_check(const char *text, size_t len, const struct receive *wanted)
{
	struct receive receive;
	char again[RECEIVE_SIZE];

	if (receive_parse(&receive, text, len))
		fail_msg("%s was refused", text);
	assert_true(receive.coupon == wanted->coupon);
	assert_int_equal(receive.user.len, wanted->user.len);
	assert_string_equal(receive.user.text, wanted->user.text);
	assert_memory_equal(&receive.batch, &wanted->batch, sizeof(receive.batch));
	assert_int_equal(receive.index, wanted->index);
	assert_int_equal(receive_format(&receive, again), len);
	assert_string_equal(again, text);
}

static void test_users_with_dots(void **state)
{
	struct receive receive = { .coupon = 1001, .index = 255 };
	char text[RECEIVE_SIZE], wanted[RECEIVE_SIZE];

	(void)state;
	assert_int_equal(ulid_parse(&receive.batch, BATCH, ULID_LEN), 0);
	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
		size_t len;

		assert_int_equal(user_id_parse(&receive.user, users[i], strlen(users[i])), 0);
		len = receive_format(&receive, text);
		snprintf(wanted, sizeof(wanted), "1001.%s." BATCH ".255", users[i]);
		assert_string_equal(text, wanted);
		parts_check(text, len, &receive);
	}
}

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (uint32_t)(((uint64_t)*seed * n) >> 32);
}

/* Random users, mostly of the bytes of a receive, up to the longest text. */
static void test_random_users(void **state)
{
	static const char parts[] = "....0123456789ABCXYZ";
	uint32_t seed = 42;

	(void)state;
	for (int n = 0; n < 20000; n++) {
		struct receive receive = { .coupon = n % 3 ? 1 + random_below(&seed, 2000)
							   : INT64_MAX };
		char text[RECEIVE_SIZE];

		receive.user.len = (unsigned char)(1 + random_below(&seed, USER_ID_MAX));
		for (int i = 0; i < receive.user.len; i++)
			receive.user.text[i] = random_below(&seed, 4)
						       ? parts[random_below(&seed, 20)]
						       : (char)('!' + random_below(&seed, 94));
		for (size_t i = 0; i < sizeof(receive.batch.bytes); i++)
			receive.batch.bytes[i] = (unsigned char)random_below(&seed, 256);
		receive.index = (int)random_below(&seed, RECEIVE_INDEX_MAX + 1);
		parts_check(text, receive_format(&receive, text), &receive);
	}
}

/* No text that is cut short, or longer, is the same receive; most are none. */
static void test_cut(void **state)
{
	static const char whole[] = "1001.a.b." BATCH ".25";
	char text[RECEIVE_SIZE + 80];
	struct receive receive;

	(void)state;
	for (size_t len = 0; len < sizeof(whole) - 1; len++)
		assert_int_equal(receive_parse(&receive, whole, len),
				 len == sizeof(whole) - 2 ? 0 : -1);
	memset(text, 'u', sizeof(text));
	memcpy(text, "1.", 2);
	for (size_t n = 0; n <= USER_ID_MAX + 2; n++) {
		memcpy(text + 2 + n, "." BATCH ".0", ULID_LEN + 4);
		assert_int_equal(receive_parse(&receive, text, 2 + n + ULID_LEN + 3),
				 n >= 1 && n <= USER_ID_MAX ? 0 : -1);
		text[2 + n] = 'u';
	}
}

/* Each byte in the place of the user. */
static void test_user_bytes(void **state)
{
	char text[] = "1.u." BATCH ".0";
	struct receive receive;

	(void)state;
	for (int c = 0; c < 256; c++) {
		text[2] = (char)c;
		assert_int_equal(receive_parse(&receive, text, sizeof(text) - 1),
				 c > 0x20 && c < 0x7f ? 0 : -1);
	}
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"",
		".",
		"...",
		"1",
		"1.2",
		"1.2." BATCH,
		"1.2." BATCH ".",
		"1.2." BATCH ".256",
		"1.2." BATCH ".00",
		"1.2." BATCH ".01",
		"1.2." BATCH ".-1",
		"1.2." BATCH ".1.",
		"1.2." BATCH ".1.1",
		"0.2." BATCH ".1",
		"1." BATCH ".1",
		"1.." BATCH ".1",
		"1. ." BATCH ".1",
		"1.a b." BATCH ".1",
		"1.\x7f." BATCH ".1",
		"1.\xc3\xa9." BATCH ".1",
		"01.2." BATCH ".1",
		"1.2.01arz3ndektsv4rrffq69g5fav.1",
		" 1.2." BATCH ".1",
		"1.2." BATCH ".1 ",
		"9223372036854775808.2." BATCH ".1",
		"1.2." BATCH "A.1",
	};
	struct receive receive;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(receive_parse(&receive, texts[i], strlen(texts[i])), -1);
	assert_int_equal(receive_parse(&receive, "1.2." BATCH ".1\0", sizeof("1.2." BATCH ".1")),
			 -1);
}

static void test_keys(void **state)
{
	char key[RECEIVE_KEY_MAX + 1];

	(void)state;
	memset(key, 'k', sizeof(key));
	assert_true(receive_key_valid("k", 1));
	assert_true(receive_key_valid(" ~:\"\\", 5));
	assert_true(receive_key_valid(key, RECEIVE_KEY_MAX));
	assert_false(receive_key_valid(key, RECEIVE_KEY_MAX + 1));
	assert_false(receive_key_valid("", 0));
	for (int c = 0; c < 256; c++) {
		key[0] = (char)c;
		assert_int_equal(receive_key_valid(key, 3) != 0, c >= 0x20 && c <= 0x7e);
	}
}

static void test_code_format(void **state)
{
	char text[RECEIVE_CODE_MAX + 1];

	(void)state;
	receive_code_format(1, 0, text);
	assert_string_equal(text, "1.0");
	receive_code_format(INT64_MAX, INT64_MAX, text);
	assert_string_equal(text, "9223372036854775807.9223372036854775807");
	assert_int_equal(strlen(text), RECEIVE_CODE_MAX);
}

static void test_tails(void **state)
{
	static const char *const good[] = { "", "k", "\t1", "k\t1.0", " \t7.9223372036854775807" };
	static const char *const bad[] = {
		"\t",     "k\t",  "\t0",     "\t01",   "\t1.",
		"\t1.01", "\t.1", "\t1.2.3", "\t1\t2", "\t9223372036854775808",
		"k\n",    "\t-1", "\t1.-1",  "\t1 "
	};
	static const char *const codes[] = { "", "", "1", "1.0", "7.9223372036854775807" };
	char longest[RECEIVE_TAIL_MAX + 2];
	const char *code;
	size_t key_len, code_len;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(receive_tail_parse(good[i], strlen(good[i]), &key_len), 0);
		assert_int_equal(key_len, strcspn(good[i], "\t"));
		assert_int_equal(receive_tail_key_len(good[i]), key_len);
		code = receive_tail_code(good[i], strlen(good[i]), key_len, &code_len);
		assert_string_equal(code, codes[i]);
		assert_int_equal(code_len, strlen(codes[i]));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(receive_tail_parse(bad[i], strlen(bad[i]), &key_len), -1);
	memset(longest, 'k', RECEIVE_KEY_MAX + 1);
	strcpy(longest + RECEIVE_KEY_MAX, "\t9223372036854775807.9223372036854775807");
	assert_int_equal(strlen(longest), RECEIVE_TAIL_MAX);
	assert_int_equal(receive_tail_parse(longest, RECEIVE_TAIL_MAX, &key_len), 0);
	longest[RECEIVE_KEY_MAX] = 'k';
	assert_int_equal(receive_tail_parse(longest, RECEIVE_TAIL_MAX, &key_len), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_code_format),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_users_with_dots),
		cmocka_unit_test(test_random_users),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_user_bytes),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_tails),
	};

	return cmocka_run_group_tests_name("receive", tests, NULL, NULL);
}
