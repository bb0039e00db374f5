/*
 * Messages of uses, and the replies of workers to receives and to uses: what is written is read
 * again, and nothing else.
 */
#include "common/message/use.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define HEAD "{\"v\":1,\"batch\":\"" BATCH "\","
#define ONE "[\"1001\",\"42\",\"" BATCH "\",0]"
#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#define ANY "[\"1001\",\"42\"]"

static struct use_message message;
static struct reply reply;

static int setup(void **state)
{
	*state = json_arena_new();
	memset(&message, 0xee, sizeof(message));
	memset(&reply, 0xee, sizeof(reply));
	return 0;
}

static int teardown(void **state)
{
	json_arena_free(*state);
	return 0;
}

/* It is read, and written again it is the same. */
static void take(struct json_arena *arena, const char *body)
{
	static char again[USE_MESSAGE_SIZE];
	const char *error;
	size_t len;

	if (use_message_decode(arena, body, strlen(body), &message, &error))
		fail_msg("%s was refused: %s", body, error);
	len = use_message_write(&message, again);
	if (len != strlen(body) || memcmp(again, body, len) != 0)
		fail_msg("%s became %.*s", body, (int)len, again);
}

static void refuse(struct json_arena *arena, const char *body, const char *reason)
{
	const char *error;

	if (use_message_decode(arena, body, strlen(body), &message, &error) == 0)
		fail_msg("%s was taken", body);
	if (strcmp(error, reason) != 0)
		fail_msg("%s: the reason is \"%s\", wanted: %s", body, error, reason);
}

static void test_each_action(void **state)
{
	const struct use *uses = message.uses;

	take(*state, HEAD "\"at\":1700000000123,\"uses\":["
			  "[\"hold\",\"o 1\",\"k\",\"3k9v0d7xqa\",900,null,\"\",\"\",[" ANY "]],"
			  "[\"use\",\"o\",\"k\",\"\",0,12900,\"EUR\",\"\",[" ONE "]],"
			  "[\"release\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]],"
			  "[\"rollback\",\"o\",\"k\",\"\",0,null,\"\",\"\\\"no\\\\\",[" ONE "]]]}");
	assert_int_equal(message.uses_n, 4);
	assert_int_equal(message.receives_n, 4);
	assert_int_equal(uses[0].action, USE_HOLD);
	assert_string_equal(uses[0].order, "o 1");
	assert_string_equal(uses[0].by, "3k9v0d7xqa");
	assert_int_equal(uses[0].ttl_s, 900);
	assert_int_equal(uses[0].amount, -1);
	assert_int_equal(message.receives[0].index, USE_ANY_RECEIVE);
	assert_int_equal(uses[1].amount, 12900);
	assert_string_equal(uses[1].currency, "EUR");
	assert_int_equal(message.receives[1].index, 0);
	assert_string_equal(uses[3].reason, "\"no\\");
}

/* As large as everything may be. */
static void test_largest(void **state)
{
	static char body[USE_MESSAGE_SIZE];
	struct use use = { .action = USE_HOLD,
			   .ttl_s = USE_TTL_MAX_S,
			   .amount = JSON_INTEGER_MAX,
			   .currency = "JPY",
			   .receives_n = 1 };
	const char *error;

	memset(use.order, '"', USE_ORDER_MAX);
	memset(use.key, '"', RECEIVE_KEY_MAX);
	memset(use.by, '\\', USE_BY_MAX);
	memset(use.reason, '\\', USE_REASON_MAX);
	memset(&message, 0, sizeof(message));
	message.at_ms = MESSAGE_AT_MAX_MS;
	message.uses_n = message.receives_n = MESSAGE_RECEIVES_MAX;
	for (int i = 0; i < MESSAGE_RECEIVES_MAX; i++) {
		struct receive *receive = &message.receives[i];

		message.uses[i] = use;
		receive->coupon = INT64_MAX;
		receive->user.len = USER_ID_MAX;
		memset(receive->user.text, '"', USER_ID_MAX);
		memset(&receive->batch, 0xff, sizeof(receive->batch));
		receive->index = RECEIVE_INDEX_MAX;
	}
	for (size_t i = 0; i < MESSAGE_TRACES_MAX; i++) {
		struct message_trace *trace = &message.traces.list[message.traces.n++];

		trace->index = MESSAGE_RECEIVES_MAX - 1 - i;
		memset(trace->text, '"', TRACE_MAX);
		memcpy(trace->text, PARENT " ", strlen(PARENT " "));
	}
	assert_int_equal(use_message_decode(*state, body, use_message_write(&message, body),
					    &message, &error),
			 0);
	assert_int_equal(message.uses_n, MESSAGE_RECEIVES_MAX);
	assert_memory_equal(&message.uses[255], &use, sizeof(use));
	assert_int_equal(message.traces.n, MESSAGE_TRACES_MAX);
}

#define TWO                                                                              \
	HEAD "\"at\":1,\"uses\":[[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]]," \
	     "[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ANY "]]]"

/* Traces are found by the index of their use; a malformed one is left out. */
static void test_traces(void **state)
{
	static const char body[] = TWO ",\"traces\":{\"2\":\"" PARENT "\",\"0\":\"x\"}}";
	const char *error;

	take(*state, TWO "}");
	assert_int_equal(message.traces.n, 0);
	take(*state, TWO ",\"traces\":{\"1\":\"" PARENT " o\\\"77\",\"0\":\"" PARENT "\"}}");
	assert_int_equal(message.traces.n, 2);
	assert_int_equal(message.traces.list[0].index, 1);
	assert_string_equal(message.traces.list[0].text, PARENT " o\"77");
	assert_int_equal(use_message_decode(*state, body, sizeof(body) - 1, &message, &error), 0);
	assert_int_equal(message.traces.n, 0);
}

static void test_heads_that_are_refused(void **state)
{
	refuse(*state, "5", "unknown version");
	refuse(*state, "[]", "unknown version");
	refuse(*state, "{}", "unknown version");
	refuse(*state, "{\"v\":2,\"batch\":\"" BATCH "\"}", "unknown version");
	refuse(*state, "{\"v\":1,\"batch\":\"x\"}", "batch is not a ULID");
	refuse(*state, "{\"v\":1,\"batch\":5}", "batch is not a ULID");
	refuse(*state, HEAD "\"uses\":[]}", "at is not a time in milliseconds");
	refuse(*state, HEAD "\"at\":-1,\"uses\":[]}", "at is not a time in milliseconds");
	refuse(*state, HEAD "\"at\":1}", "uses is not an array of 1 to 256");
	refuse(*state, HEAD "\"at\":1,\"uses\":[]}", "uses is not an array of 1 to 256");
	refuse(*state, HEAD "\"at\":1,\"uses\":{}}", "uses is not an array of 1 to 256");
}

#define LONG64 "1234567890123456789012345678901234567890123456789012345678901234"
#define LONG256 LONG64 LONG64 LONG64 LONG64

static void test_uses_that_are_refused(void **state)
{
	static const char *const uses[] = {
		"5",
		"[]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\"]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ONE "],5]",
		"[\"Use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[0,\"o\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"" LONG64 "5\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"o\\u0007\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"\xc3\xa4\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"" LONG256 "\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"" LONG64 "5\",0,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",1,null,\"\",\"\",[" ONE "]]",
		"[\"hold\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ONE "]]",
		"[\"hold\",\"o\",\"k\",\"\",86401,null,\"\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,-1,\"EUR\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,\"1\",\"EUR\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,1,\"\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"EUR\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,1,\"eur\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,1,\"EURO\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,1,\"EU\",\"\",[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",5,[" ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",5]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[5]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[[\"1001\"]]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[[1001,\"42\"]]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[[\"01001\",\"42\"]]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[[\"1001\",\"4 2\"]]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[[\"1001\",\"42\",\"" BATCH "\"]]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[[\"1001\",\"42\",\"" BATCH "\",256]]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[[\"1001\",\"42\",\"x\",0]]]",
		/* the same twice, and any receive beside another */
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ONE "," ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ANY "," ONE "]]",
		"[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[" ONE "," ANY "]]",
	};
	char body[1024];

	for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
		snprintf(body, sizeof(body), HEAD "\"at\":1,\"uses\":[%s]}", uses[i]);
		refuse(*state, body,
		       "a use is not [action, order, key, by, seconds, amount, currency, reason, "
		       "receives]");
	}
}

/* A use of `n` receives, which differ in their index. */
static void many_write(char *body, size_t uses, size_t n)
{
	char *at = body + sprintf(body, HEAD "\"at\":1,\"uses\":[");

	for (size_t use = 0; use < uses; use++) {
		at += sprintf(at, "%s[\"use\",\"o\",\"k\",\"\",0,null,\"\",\"\",[",
			      use > 0 ? "," : "");
		for (size_t i = 0; i < n; i++)
			at += sprintf(at, "%s[\"1001\",\"42\",\"" BATCH "\",%zu]", i > 0 ? "," : "",
				      i);
		at += sprintf(at, "]]");
	}
	strcpy(at, "]}");
}

static void test_how_many(void **state)
{
	static char body[65536];
	static const char wrong[] = "a use is not [action, order, key, by, seconds, amount, "
				    "currency, reason, receives]";

	many_write(body, 16, 16);
	take(*state, body);
	assert_int_equal(message.receives_n, 256);
	many_write(body, 1, 17);
	refuse(*state, body, wrong);
	many_write(body, 17, 16);
	refuse(*state, body, wrong);
	many_write(body, 257, 1);
	refuse(*state, body, "uses is not an array of 1 to 256");
}

static int reply_take(struct json_arena *arena, const char *body)
{
	return reply_decode(arena, body, strlen(body), &reply);
}

static void test_reply_to_uses(void **state)
{
	static const char body[] = HEAD "\"uses\":["
					"[0,\"held\"," ONE ",1700000900123,500,\"EUR\",null],"
					"[1,\"held\"," ONE ",1700000900123,500,\"EUR\","
					"[\"held\",1,1700000900123]],"
					"[2,\"already_used\"," ONE
					",null,null,\"\",[\"free\",0,null]],"
					"[255,\"not_found\"," ANY ",null,null,\"\","
					"[\"not_found\",0,null]]]}";
	static char again[REPLY_SIZE];

	assert_int_equal(reply_take(*state, body), 0);
	assert_int_equal(reply.outcomes_n, 4);
	assert_int_equal(reply.uses[0].now, NOW_NONE);
	assert_int_equal(reply.uses[1].now, NOW_HELD);
	assert_true(reply.uses[1].now_is_own);
	assert_int_equal(reply.uses[1].now_until_ms, 1700000900123);
	assert_int_equal(reply.uses[2].now, NOW_FREE);
	assert_false(reply.uses[2].now_is_own);
	assert_int_equal(reply.uses[2].now_until_ms, -1);
	assert_int_equal(reply.uses[0].result, USE_HELD);
	assert_int_equal(reply.uses[0].until_ms, 1700000900123);
	assert_int_equal(reply.uses[0].amount_off, 500);
	assert_int_equal(reply.uses[3].use, 255);
	assert_int_equal(reply.uses[3].receive.index, USE_ANY_RECEIVE);
	assert_int_equal(reply.uses[3].until_ms, -1);
	assert_int_equal(reply_write(&reply, again), strlen(body));
	assert_memory_equal(again, body, strlen(body));
}

static void test_reply_to_receives(void **state)
{
	static const char body[] = HEAD "\"outcomes\":[[0,\"issued\"],"
					"[1,\"rejected\",\"slot_taken\"],"
					"[255,\"rejected\",\"out_of_stock\"]]}";
	static char again[REPLY_SIZE];

	assert_int_equal(reply_take(*state, body), 0);
	assert_false(reply.is_to_uses);
	assert_int_equal(reply.outcomes_n, 3);
	assert_null(reply.receives[0].reason);
	assert_int_equal(reply.receives[2].index, 255);
	assert_string_equal(reply.receives[2].reason, "out_of_stock");
	assert_int_equal(reply_write(&reply, again), strlen(body));
	assert_memory_equal(again, body, strlen(body));
	/* a later version may say more */
	assert_int_equal(reply_take(*state, HEAD "\"outcomes\":[[2,\"issued\",\"x\",5]],\"x\":1}"),
			 0);
	assert_int_equal(reply.receives[0].index, 2);
	assert_null(reply.receives[0].reason);
}

/* Only known reasons are used in an answer. */
static void test_reasons_of_rejections(void **state)
{
	static const char *const reasons[] = { "unknown_coupon", "slot_taken", "slot_invalid",
					       "out_of_stock",   "key_taken",  "lost" };

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		assert_string_equal(reason_known(reasons[i]), reasons[i]);
	assert_string_equal(reason_known(""), "other");
	assert_string_equal(reason_known("\\\"},{"), "other");
	assert_int_equal(reply_take(*state, HEAD "\"outcomes\":[[0,\"rejected\",\"\\\"quote\"]]}"),
			 0);
	assert_string_equal(reply.receives[0].reason, "other");
}

static void test_replies_to_receives_that_are_refused(void **state)
{
	static const char *const bodies[] = {
		"",
		"x",
		"[]",
		"5",
		"{}",
		"{\"v\":1,\"batch\":5,\"outcomes\":[[0,\"issued\"]]}",
		"{\"v\":1,\"batch\":\"\",\"outcomes\":[[0,\"issued\"]]}",
		"{\"v\":1,\"batch\":\"01arz3ndektsv4rrffq69g5fav\",\"outcomes\":[[0,\"issued\"]]}",
		"{\"v\":2,\"batch\":\"" BATCH "\",\"outcomes\":[[0,\"issued\"]]}",
		HEAD "\"at\":5}",
		HEAD "\"outcomes\":5}",
		HEAD "\"outcomes\":[]}",
		HEAD "\"outcomes\":{\"a\":[0,\"issued\"]}}",
		HEAD "\"uses\":[[0,\"issued\"]]}",
	};
	static const char *const outcomes[] = {
		"5",
		"[]",
		"[0]",
		"{\"a\":0,\"b\":\"issued\"}",
		"[\"0\",\"issued\"]",
		"[-1,\"issued\"]",
		"[256,\"issued\"]",
		"[0,5]",
		"[0,\"Issued\"]",
		"[0,\"\"]",
		"[0,\"rejected\"]",
		"[0,\"rejected\",5]",
		"[0,\"rejected\",null]",
	};
	char body[8192], *at;

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
		if (reply_take(*state, bodies[i]) == 0)
			fail_msg("%s was taken", bodies[i]);
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
		snprintf(body, sizeof(body), HEAD "\"outcomes\":[[7,\"issued\"],%s]}", outcomes[i]);
		if (reply_take(*state, body) == 0)
			fail_msg("%s was taken", body);
	}
	for (int n = MESSAGE_RECEIVES_MAX; n <= MESSAGE_RECEIVES_MAX + 1; n++) {
		at = body + sprintf(body, HEAD "\"outcomes\":[[0,\"issued\"]");
		for (int i = 1; i < n; i++)
			at += sprintf(at, ",[%d,\"issued\"]", i % 256);
		strcpy(at, "]}");
		assert_int_equal(reply_take(*state, body), n == MESSAGE_RECEIVES_MAX ? 0 : -1);
	}
}

static void test_largest_reply(void **state)
{
	static char body[REPLY_SIZE];
	struct use_outcome outcome = { .use = RECEIVE_INDEX_MAX,
				       .result = USE_CURRENCY_WRONG,
				       .until_ms = JSON_INTEGER_MAX,
				       .amount_off = JSON_INTEGER_MAX,
				       .currency = "EUR",
				       .now = NOW_NOT_FOUND,
				       .now_is_own = 1,
				       .now_until_ms = JSON_INTEGER_MAX,
				       .receive = { .coupon = INT64_MAX,
						    .user.len = USER_ID_MAX,
						    .index = RECEIVE_INDEX_MAX } };

	memset(outcome.receive.user.text, '\\', USER_ID_MAX);
	memset(&reply, 0, sizeof(reply));
	reply.is_to_uses = 1;
	reply.outcomes_n = MESSAGE_RECEIVES_MAX;
	for (int i = 0; i < MESSAGE_RECEIVES_MAX; i++)
		reply.uses[i] = outcome;
	assert_int_equal(reply_decode(*state, body, reply_write(&reply, body), &reply), 0);
	assert_int_equal(reply.outcomes_n, MESSAGE_RECEIVES_MAX);
	assert_int_equal(reply.uses[255].amount_off, JSON_INTEGER_MAX);
}

static void test_replies_that_are_refused(void **state)
{
	static const char *const outcomes[] = {
		"5",
		"[]",
		"[0,\"used\"," ONE ",null,null,\"\"]",
		"[0,\"used\"," ONE ",null,null,\"\",5]",
		"[0,\"used\"," ONE ",null,null,\"\",null,5]",
		"[0,\"used\"," ONE ",null,null,\"\",[]]",
		"[0,\"used\"," ONE ",null,null,\"\",[\"free\",0]]",
		"[0,\"used\"," ONE ",null,null,\"\",[\"free\",0,null,5]]",
		"[0,\"used\"," ONE ",null,null,\"\",[\"\",0,null]]",
		"[0,\"used\"," ONE ",null,null,\"\",[\"Free\",0,null]]",
		"[0,\"used\"," ONE ",null,null,\"\",[0,0,null]]",
		"[0,\"used\"," ONE ",null,null,\"\",[\"free\",2,null]]",
		"[0,\"used\"," ONE ",null,null,\"\",[\"held\",1,-1]]",
		"[256,\"used\"," ONE ",null,null,\"\",null]",
		"[\"0\",\"used\"," ONE ",null,null,\"\",null]",
		"[0,\"Used\"," ONE ",null,null,\"\",null]",
		"[0,\"\"," ONE ",null,null,\"\",null]",
		"[0,5," ONE ",null,null,\"\",null]",
		"[0,\"used\",\"1001.42\",null,null,\"\",null]",
		"[0,\"used\"," ONE ",-1,null,\"\",null]",
		"[0,\"used\"," ONE ",null,\"5\",\"\",null]",
		"[0,\"used\"," ONE ",null,null,\"eur\",null]",
		"[0,\"used\"," ONE ",null,null,null,null]",
	};
	char body[512];

	assert_int_equal(reply_take(*state, ""), -1);
	assert_int_equal(reply_take(*state, "{}"), -1);
	assert_int_equal(reply_take(*state, HEAD "\"uses\":5}"), -1);
	assert_int_equal(reply_take(*state, HEAD "\"uses\":[]}"), -1);
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
		snprintf(body, sizeof(body), HEAD "\"uses\":[%s]}", outcomes[i]);
		if (reply_take(*state, body) == 0)
			fail_msg("%s was taken", body);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_each_action),
		TEST(test_largest),
		TEST(test_traces),
		TEST(test_heads_that_are_refused),
		TEST(test_uses_that_are_refused),
		TEST(test_how_many),
		TEST(test_reply_to_uses),
		TEST(test_reply_to_receives),
		TEST(test_reasons_of_rejections),
		TEST(test_replies_to_receives_that_are_refused),
		TEST(test_largest_reply),
		TEST(test_replies_that_are_refused),
	};

	return cmocka_run_group_tests_name("use_message", tests, NULL, NULL);
}
