/*
 * Receive messages: exactly what issue.lua builds is accepted, and every refusal has a reason.
 */
#include "common/message/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define K64 "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define HEAD                          \
	"{\"v\":1,\"batch\":\"" BATCH \
	"\",\"coupon\":\"1001\",\"generation\":3,\"seq\":8121,\"at\":1700000000123,"

static struct message message;

static int setup(void **state)
{
	*state = json_arena_new();
	memset(&message, 0xee, sizeof(message));
	return 0;
}

static int teardown(void **state)
{
	json_arena_free(*state);
	return 0;
}

static void take(struct json_arena *arena, const char *body)
{
	const char *error = NULL;

	if (message_decode(arena, body, strlen(body), &message, &error))
		fail_msg("%s was refused: %s", body, error);
}

static void refuse(struct json_arena *arena, const char *body, const char *reason)
{
	const char *error = NULL;

	if (message_decode(arena, body, strlen(body), &message, &error) == 0)
		fail_msg("%s was taken", body);
	if (strcmp(error, reason) != 0)
		fail_msg("%s: the reason is \"%s\", wanted: %s", body, error, reason);
}

static void test_codes(void **state)
{
	take(*state, HEAD "\"receives\":[[\"1\",1,\"\",\"17.0\"],[\"2\",1,\"k\",\"9\"]]}");
	assert_string_equal(message.receives[0].tail, "\t17.0");
	assert_string_equal(message.receives[1].tail, "k\t9");
}

#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
#define TWO "\"receives\":[[\"1\",1,\"\"],[\"2\",1,\"\"]]"

static void test_traces(void **state)
{
	static const char *const none[] = {
		"",
		",\"traces\":[\"" PARENT "\"]",
		",\"traces\":{}",
		",\"traces\":{\"2\":\"" PARENT "\"}",
		",\"traces\":{\"-1\":\"" PARENT "\",\"x\":\"" PARENT "\",\"\":\"" PARENT "\"}",
		",\"traces\":{\"0\":\"x\",\"1\":7}",
		",\"traces\":{\"00\":\"" PARENT "\",\"01\":\"" PARENT "\"}",
	};
	char body[4096];

	take(*state, HEAD TWO ",\"traces\":{\"1\":\"" PARENT " o\\\"77\",\"0\":\"" PARENT "\"}}");
	assert_int_equal(message.traces.n, 2);
	assert_int_equal(message.traces.list[0].index, 1);
	assert_string_equal(message.traces.list[0].text, PARENT " o\"77");
	assert_int_equal(message.traces.list[1].index, 0);
	assert_string_equal(message.traces.list[1].text, PARENT);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		snprintf(body, sizeof(body), "%s%s%s}", HEAD, TWO, none[i]);
		take(*state, body);
		assert_int_equal(message.receives_n, 2);
		assert_int_equal(message.traces.n, 0);
	}
}

/* A message with more traces than allowed keeps the first ones. */
static void test_many_traces(void **state)
{
	char body[8192], *at = body;

	at += sprintf(at, HEAD "\"receives\":[");
	for (int i = 0; i < 20; i++)
		at += sprintf(at, "%s[\"%d\",1,\"\"]", i ? "," : "", i);
	at += sprintf(at, "],\"traces\":{");
	for (int i = 0; i < 20; i++)
		at += sprintf(at, "%s\"%d\":\"" PARENT "\"", i ? "," : "", i);
	strcpy(at, "}}");
	take(*state, body);
	assert_int_equal(message.traces.n, MESSAGE_TRACES_MAX);
	assert_int_equal(message.traces.list[MESSAGE_TRACES_MAX - 1].index, MESSAGE_TRACES_MAX - 1);
}

static void test_as_the_script_builds_it(void **state)
{
	struct ulid batch;

	take(*state, HEAD "\"receives\":[[\"42\",1,\"\"],[\"43\",1,\"order-77\"]]}");
	ulid_parse(&batch, BATCH, ULID_LEN);
	assert_memory_equal(&message.batch, &batch, sizeof(batch));
	assert_true(message.coupon == 1001);
	assert_true(message.generation == 3);
	assert_true(message.seq == 8121);
	assert_true(message.at_ms == 1700000000123);
	assert_int_equal(message.receives_n, 2);
	assert_string_equal(message.receives[0].user.text, "42");
	assert_int_equal(message.receives[0].slot, 1);
	assert_string_equal(message.receives[0].tail, "");
	assert_string_equal(message.receives[1].user.text, "43");
	assert_string_equal(message.receives[1].tail, "order-77");
}

static void test_extremes(void **state)
{
	char body[512], key[RECEIVE_KEY_MAX + 1];

	memset(key, '~', RECEIVE_KEY_MAX);
	key[RECEIVE_KEY_MAX] = '\0';
	snprintf(body, sizeof(body),
		 "{\"v\":1,\"batch\":\"7ZZZZZZZZZZZZZZZZZZZZZZZZZ\",\"coupon\":"
		 "\"9223372036854775807\",\"generation\":2147483647,"
		 "\"seq\":9007199254740991,\"at\":253402300799999,\"receives\":[["
		 "\"9223372036854775807\",32767,\"%s\"],"
		 "[\"1\",0,\" \\\"\\\\:\"]]}",
		 key);
	take(*state, body);
	assert_true(message.coupon == INT64_MAX);
	assert_string_equal(message.receives[0].user.text, "9223372036854775807");
	assert_int_equal(message.receives[0].slot, 32767);
	assert_string_equal(message.receives[0].tail, key);
	assert_int_equal(message.receives[1].slot, 0); /* for settlement to reject */
	assert_string_equal(message.receives[1].tail, " \"\\:");
}

/* As a message of the release before has it: decimal users, none of them escaped. */
static void test_of_the_release_before(void **state)
{
	static const char *const users[] = { "1", "42", "9007199254740993", "9223372036854775807" };

	take(*state, HEAD "\"receives\":[[\"1\",1,\"\"],[\"42\",2,\"a\\\"\\\\b\"],"
			  "[\"9007199254740993\",1,\"\"],[\"9223372036854775807\",100,\"k\"]]}");
	assert_int_equal(message.receives_n, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_string_equal(message.receives[i].user.text, users[i]);
		assert_int_equal(message.receives[i].user.len, strlen(users[i]));
	}
	assert_string_equal(message.receives[1].tail, "a\"\\b");
}

/* Each as JSON has it, and the id that it is. */
static const struct {
	const char *json, *user;
} users[] = {
	{ "0", "0" },
	{ "042", "042" },
	{ "-1", "-1" },
	{ "\\\"", "\"" },
	{ "\\\\", "\\" },
	{ "\\\\u0041", "\\u0041" },
	{ "\\u0041\\/", "A/" },
	{ "a.b." BATCH ".0", "a.b." BATCH ".0" },
	{ "1:" BATCH ":0:", "1:" BATCH ":0:" },
	{ "\\\",1,\\\"\\\"],[\\\"", "\",1,\"\"],[\"" },
	{ "{}|%s%n$(x)`<>&;--'~!#*", "{}|%s%n$(x)`<>&;--'~!#*" },
	{ "6f1c2b1e-0d52-4b1f-9c52-0123456789ab", "6f1c2b1e-0d52-4b1f-9c52-0123456789ab" },
};

static void test_users(void **state)
{
	char body[512], user[3] = "u", longest[USER_ID_MAX + 2];

	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
		snprintf(body, sizeof(body), HEAD "\"receives\":[[\"%s\",1,\"k\"],[\"z\",1,\"\"]]}",
			 users[i].json);
		take(*state, body);
		assert_int_equal(message.receives_n, 2);
		assert_string_equal(message.receives[0].user.text, users[i].user);
		assert_string_equal(message.receives[0].tail, "k");
		assert_string_equal(message.receives[1].user.text, "z");
	}
	for (int c = '!'; c <= '~'; c++) {
		user[1] = (char)c;
		snprintf(body, sizeof(body), HEAD "\"receives\":[[\"u%s%c\",1,\"\"]]}",
			 c == '"' || c == '\\' ? "\\" : "", c);
		take(*state, body);
		assert_string_equal(message.receives[0].user.text, user);
	}
	memset(longest, '~', sizeof(longest));
	longest[USER_ID_MAX] = '\0';
	snprintf(body, sizeof(body), HEAD "\"receives\":[[\"%s\",1,\"\"]]}", longest);
	take(*state, body);
	assert_string_equal(message.receives[0].user.text, longest);
	longest[USER_ID_MAX] = '~';
	longest[USER_ID_MAX + 1] = '\0';
	snprintf(body, sizeof(body), HEAD "\"receives\":[[\"%s\",1,\"\"]]}", longest);
	refuse(*state, body, "a receive is not [user, slot, key] or [user, slot, key, code]");
}

/* A later minor addition must not stop an older worker. */
static void test_unknown_members(void **state)
{
	take(*state, "{\"new\":{\"x\":[1]},\"v\":1,\"batch\":\"" BATCH
		     "\",\"coupon\":\"1\",\"generation\":0,\"seq\":1,\"at\":0,"
		     "\"receives\":[[\"42\",1,\"\"]],\"trace\":\"abc\"}");
}

static void test_head(void **state)
{
	static const struct {
		const char *body;
		const char *reason;
	} cases[] = {
		{ "[]", "not an object" },
		{ "1", "not an object" },
		{ "null", "not an object" },
		{ "{}", "no version" },
		{ "{\"v\":\"1\"}", "no version" },
		{ "{\"v\":null}", "no version" },
		{ "{\"v\":-1}", "no version" },
		{ "{\"v\":0}", "unknown version" },
		{ "{\"v\":2}", "unknown version" },
		{ "{\"v\":1}", "batch is not a ULID" },
		{ "{\"v\":1,\"batch\":5}", "batch is not a ULID" },
		{ "{\"v\":1,\"batch\":\"\"}", "batch is not a ULID" },
		{ "{\"v\":1,\"batch\":\"01arz3ndektsv4rrffq69g5fav\"}", "batch is not a ULID" },
		{ "{\"v\":1,\"batch\":\"" BATCH "0\"}", "batch is not a ULID" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refuse(*state, cases[i].body, cases[i].reason);
}

/* One member after another is replaced by a wrong value. */
static void test_members(void **state)
{
	static const struct {
		const char *coupon, *generation, *seq, *at, *reason;
	} cases[] = {
		{ "1001", "3", "1", "5", "coupon is not an id" },
		{ "\"0\"", "3", "1", "5", "coupon is not an id" },
		{ "\"\"", "3", "1", "5", "coupon is not an id" },
		{ "\"9223372036854775808\"", "3", "1", "5", "coupon is not an id" },
		{ "null", "3", "1", "5", "coupon is not an id" },
		{ "\"1\"", "-1", "1", "5", "generation is not an integer" },
		{ "\"1\"", "\"3\"", "1", "5", "generation is not an integer" },
		{ "\"1\"", "2147483648", "1", "5", "generation is not an integer" },
		{ "\"1\"", "null", "1", "5", "generation is not an integer" },
		{ "\"1\"", "3", "0", "5", "seq is not an integer" },
		{ "\"1\"", "3", "-1", "5", "seq is not an integer" },
		{ "\"1\"", "3", "\"1\"", "5", "seq is not an integer" },
		{ "\"1\"", "3", "9007199254740992", "5", "seq is not an integer" },
		{ "\"1\"", "3", "1", "-1", "at is not a time in milliseconds" },
		{ "\"1\"", "3", "1", "\"5\"", "at is not a time in milliseconds" },
		{ "\"1\"", "3", "1", "253402300800000", "at is not a time in milliseconds" },
		{ "\"1\"", "3", "1", "true", "at is not a time in milliseconds" },
	};
	char body[512];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(body, sizeof(body),
			 "{\"v\":1,\"batch\":\"" BATCH
			 "\",\"coupon\":%s,\"generation\":%s,\"seq\":%s,\"at\":%s,"
			 "\"receives\":[[\"42\",1,\"\"]]}",
			 cases[i].coupon, cases[i].generation, cases[i].seq, cases[i].at);
		refuse(*state, body, cases[i].reason);
	}
}

static void test_receives(void **state)
{
	static const char *const arrays[] = { "", "\"receives\":{}", "\"receives\":[]",
					      "\"receives\":null", "\"receives\":\"x\"" };
	static const char *const receives[] = {
		"5",
		"{}",
		"{\"a\":\"42\",\"b\":1,\"c\":\"\"}",
		"[]",
		"[\"42\"]",
		"[\"42\",1]",
		"[\"42\",1,\"\",\"\"]",
		"[42,1,\"\"]",
		"[\"4 2\",1,\"\"]",
		"[\" 42\",1,\"\"]",
		"[\"4\\t2\",1,\"\"]",
		"[\"42\\u007f\",1,\"\"]",
		"[\"\xc3\xa9\",1,\"\"]",
		"[null,1,\"\"]",
		"[[\"42\"],1,\"\"]",
		"[\"\",1,\"\"]",
		"[\"42\",\"1\",\"\"]",
		"[\"42\",-1,\"\"]",
		"[\"42\",32768,\"\"]",
		"[\"42\",1,null]",
		"[\"42\",1,5]",
		"[\"42\",1,\"\\n\"]",
		"[\"42\",1,\"\xc3\xa9\"]",
		"[\"42\",1,\"\",\"\"]",
		"[\"42\",1,\"\",5]",
		"[\"42\",1,\"\",null]",
		"[\"42\",1,\"\",\"01\"]",
		"[\"42\",1,\"\",\"7.\"]",
		"[\"42\",1,\"\",\"7.1\",\"\"]",
		"[\"42\",1,\"k\\t7.1\"]",
		"[\"42\",1,\"" K64 K64 K64 K64 "\"]",
	};
	char body[512];

	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
		snprintf(body, sizeof(body), HEAD "%s}", *arrays[i] ? arrays[i] : "\"x\":1");
		refuse(*state, body, "receives is not an array of 1 to 256");
	}
	for (size_t i = 0; i < sizeof(receives) / sizeof(receives[0]); i++) {
		snprintf(body, sizeof(body), HEAD "\"receives\":[[\"1\",1,\"\"],%s]}", receives[i]);
		refuse(*state, body,
		       "a receive is not [user, slot, key] or [user, slot, key, code]");
	}
}

static const char *body_of(int receives)
{
	static char body[16384];
	int len = snprintf(body, sizeof(body), HEAD "\"receives\":[");

	for (int i = 0; i < receives; i++)
		len += snprintf(body + len, sizeof(body) - (size_t)len, "%s[\"%d\",1,\"k%d\"]",
				i ? "," : "", i + 1, i);
	snprintf(body + len, sizeof(body) - (size_t)len, "]}");
	return body;
}

static void test_how_many(void **state)
{
	take(*state, body_of(1));
	take(*state, body_of(256));
	assert_int_equal(message.receives_n, 256);
	assert_string_equal(message.receives[255].user.text, "256");
	assert_string_equal(message.receives[255].tail, "k255");
	refuse(*state, body_of(257), "receives is not an array of 1 to 256");
	take(*state, body_of(2));
	assert_int_equal(message.receives_n, 2);
}

/* 256 receives whose users and keys are longest, with every byte escaped. */
static void test_largest(void **state)
{
	static char body[80000];
	char escaped[2 * USER_ID_MAX + 1], text[USER_ID_MAX + 1];
	int len = snprintf(body, sizeof(body), HEAD "\"receives\":[");

	memset(escaped, '\\', sizeof(escaped));
	escaped[2 * USER_ID_MAX] = '\0';
	memset(text, '\\', sizeof(text));
	text[USER_ID_MAX] = '\0';
	for (int i = 0; i < MESSAGE_RECEIVES_MAX; i++)
		len += snprintf(body + len, sizeof(body) - (size_t)len, "%s[\"%s\",100,\"%s\"]",
				i ? "," : "", escaped, escaped);
	snprintf(body + len, sizeof(body) - (size_t)len, "]}");
	assert_in_range(strlen(body), 65536, 70 * 1024);
	take(*state, body);
	assert_int_equal(message.receives_n, MESSAGE_RECEIVES_MAX);
	assert_string_equal(message.receives[255].user.text, text);
	assert_string_equal(message.receives[255].tail, text);
}

static void test_not_json(void **state)
{
	static const char cut[] = HEAD "\"receives\":[[\"42\",1,\"\"]]}";
	const char *error;

	for (size_t len = 0; len < sizeof(cut) - 1; len++)
		assert_int_equal(message_decode(*state, cut, len, &message, &error), -1);
	refuse(*state, HEAD "\"v\":1,\"receives\":[[\"42\",1,\"\"]]}",
	       "a member that occurs twice");
	refuse(*state, HEAD "\"receives\":[[\"42\",1,\"\\u0000\"]]}",
	       "a NUL character in a string");
	refuse(*state, HEAD "\"receives\":[[\"4\\u00002\",1,\"\"]]}",
	       "a NUL character in a string");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_as_the_script_builds_it),
		TEST(test_codes),
		TEST(test_traces),
		TEST(test_many_traces),
		TEST(test_extremes),
		TEST(test_of_the_release_before),
		TEST(test_users),
		TEST(test_unknown_members),
		TEST(test_head),
		TEST(test_members),
		TEST(test_receives),
		TEST(test_how_many),
		TEST(test_largest),
		TEST(test_not_json),
	};

	return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
