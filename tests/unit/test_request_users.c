/* Users in requests and replies: what a client may write, and that no user ends its string. */
#include "tests/unit/request_rig.h"

/* What a client may write as its user, and the id that it means. */
static const struct {
	const char *json, *user;
} users[] = {
	{ "0", "0" },
	{ "-0", "0" },
	{ "42", "42" },
	{ "9007199254740991", "9007199254740991" },
	{ "\"0\"", "0" },
	{ "\"-1\"", "-1" },
	{ "\"042\"", "042" },
	{ "\"1e3\"", "1e3" },
	{ "\"9007199254740993\"", "9007199254740993" },
	{ "\"99999999999999999999\"", "99999999999999999999" },
	{ "\"null\"", "null" },
	{ "\"\\u0041\"", "A" },
	{ "\"\\u007e\\u0021\"", "~!" },
	{ "\"a\\/b\"", "a/b" },
	{ "\"a\\\"b\"", "a\"b" },
	{ "\"a\\\\b\"", "a\\b" },
	{ "\"\\\\u0041\"", "\\u0041" },
	{ "\"auth0|65f1c2\"", "auth0|65f1c2" },
	{ "\"gid://shopify/Customer/544365967\"", "gid://shopify/Customer/544365967" },
	{ "\"6F1C2B1E-0d52-4b1f-9c52-0123456789ab\"", "6F1C2B1E-0d52-4b1f-9c52-0123456789ab" },
	{ "\"{\\\"user\\\":1}\"", "{\"user\":1}" },
	{ "\"%s%n$(x);--'`<>&\"", "%s%n$(x);--'`<>&" },
	{ "\"1.2." BATCH ".3\"", "1.2." BATCH ".3" },
};

static void user_take(struct json_arena *arena, const char *json, const char *user)
{
	static const char *const forms[] = {
		"{\"op\":\"issue\",\"coupon\":\"1\",\"user\":%s}",
		"{\"op\":\"status\",\"coupon\":\"1\",\"user\":%s}",
	};
	char text[512];

	for (int i = 0; i < 2; i++) {
		struct request *request;
		const char *at = strstr(forms[i], "%s");

		snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - forms[i]), forms[i], json,
			 at + 2);
		request = parse(arena, text);
		assert_int_equal(request->user.len, strlen(user));
		assert_string_equal(request->user.text, user);
		free(request);
	}
}

static void test_users(void **state)
{
	char json[16 + USER_ID_MAX * 2], user[USER_ID_MAX + 1];

	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++)
		user_take(*state, users[i].json, users[i].user);
	for (int c = '!'; c <= '~'; c++) { /* as it is, or as an escape */
		snprintf(user, sizeof(user), "%cx%c", c, c);
		snprintf(json, sizeof(json), "\"\\u%04xx\\u%04X\"", c, c);
		user_take(*state, json, user);
		if (c == '"' || c == '\\')
			continue;
		snprintf(json, sizeof(json), "\"%s\"", user);
		user_take(*state, json, user);
	}
	memset(user, '\\', USER_ID_MAX);
	user[USER_ID_MAX] = '\0';
	memset(json, '\\', sizeof(json));
	json[0] = json[2 * USER_ID_MAX + 1] = '"';
	json[2 * USER_ID_MAX + 2] = '\0';
	user_take(*state, json, user);
}

#define ALLOWED ": must be 1 to 64 bytes of printable ASCII without spaces"
#define ISSUE "{\"id\":5,\"op\":\"issue\",\"coupon\":\"1\",\"user\":"
#define U16 "uuuuuuuuuuuuuuuu"
#define U64 U16 U16 U16 U16

static const struct refusal refused_users[] = {
	{ ISSUE "\"\"}", "{\"id\":5,\"code\":40,\"status\":\"bad_request\",\"message\":"
			 "\"user is \\\"\\\": has 0 bytes" ALLOWED "\"}" },
	{ ISSUE "\"" U64 "u\"}", U64 "u\\\": has 65 bytes" ALLOWED },
	{ ISSUE "\" 42\"}", "user is \\\" 42\\\": byte 1 is not allowed" ALLOWED },
	{ ISSUE "\"4 2\"}", "byte 2 is not allowed" ALLOWED },
	{ ISSUE "\"42 \"}", "byte 3 is not allowed" ALLOWED },
	{ ISSUE "\"42\\n\"}", "byte 3 is not allowed" ALLOWED },
	{ ISSUE "\"\\u001f\"}", "byte 1 is not allowed" ALLOWED },
	{ ISSUE "\"a\\u007f\"}", "byte 2 is not allowed" ALLOWED },
	{ ISSUE "\"a\\u0080\"}", "byte 2 is not allowed" ALLOWED },
	{ ISSUE "\"ab\xc3\xa9\"}", "user is \\\"ab\xc3\xa9\\\": byte 3 is not allowed" ALLOWED },
	{ ISSUE "\"" U64 U64 " \"}", "byte 129 is not allowed" ALLOWED },
	{ ISSUE "\"4\\u00002\"}", "user: byte 2 is not allowed" ALLOWED },
	{ ISSUE "\"abc\t\"}", "user: byte 4 is not allowed" ALLOWED },
	{ ISSUE " \t\"\x01\"}", "user: byte 1 is not allowed" ALLOWED },
	{ ISSUE "\"ab\xff\"}", "user: byte 3 is not allowed" ALLOWED },
	{ ISSUE "\"\xc3", "user: byte 1 is not allowed" ALLOWED },
	{ ISSUE "\"ab", "the request: an unterminated string" },
	{ "{\"key\" : \"k\n\"}", "key: byte 2 is not allowed: a control character in a string" },
	{ "{\"a\\\"b\":\"\n\"}", "a\\\\\\\"b: byte 1 is not allowed: a control character" },
	{ "[\"\n\"]", "the request: a control character in a string" },
	{ "\"\n\"", "the request: a control character in a string" },
	{ ":\"\n\"", "the request: a control character in a string" },
	{ "1:\"\n\"", "the request: a control character in a string" },
	{ ISSUE "9007199254740992}", "is beyond 2^53-1 as a number: send it as a string" },
	{ ISSUE "9223372036854775807}", "is beyond 2^53-1 as a number: send it as a string" },
	{ ISSUE "-1}", "user is -1: must be a string of 1 to 64 bytes" },
	{ ISSUE "-9007199254740993}", ": must be a string of 1 to 64 bytes" },
	{ ISSUE "1.5}", "only integers" },
	{ ISSUE "1e3}", "only integers" },
	{ ISSUE "042}", "leading zero" },
	{ ISSUE "true}", "user is true: must be a string of 1 to 64 bytes" },
	{ ISSUE "null}", "user is null: must be" },
	{ ISSUE "[\"42\"]}", "user is [\\\"42\\\"]: must be" },
	{ ISSUE "{}}", "user is {}: must be a string of 1 to 64 bytes of printable ASCII without "
		       "spaces, or an integer from 0 to 2^53-1" },
	{ "{\"op\":\"status\",\"coupon\":\"1\",\"user\":\"a b\"}", "byte 2 is not allowed" },
	{ "{\"op\":\"status\",\"receive\":\"1.a b." BATCH ".0\"}",
	  "byte 4 is not allowed: must be a receive" },
	{ "{\"op\":\"status\",\"receive\":\"1." U64 "u." BATCH ".0\"}", "receive is" },
};

static void test_refused_users(void **state)
{
	refuse_each(*state, refused_users, sizeof(refused_users) / sizeof(refused_users[0]));
}

/* A receive is read from both ends. */
static void test_receive_of_any_user(void **state)
{
	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
		cJSON *object = cJSON_CreateObject();
		char receive[RECEIVE_SIZE], *text;
		struct request *request;

		snprintf(receive, sizeof(receive), "9.%s." BATCH ".7", users[i].user);
		cJSON_AddStringToObject(object, "op", "status");
		cJSON_AddStringToObject(object, "receive", receive);
		text = cJSON_PrintUnformatted(object);
		request = parse(*state, text);
		assert_true(request->coupon == 9 && request->receive.index == 7);
		assert_string_equal(request->user.text, users[i].user);
		free(request);
		cJSON_free(text);
		cJSON_Delete(object);
	}
}

static const char *text_member(struct json_arena *arena, const char *name)
{
	const char *error;
	const cJSON *root = json_parse(arena, client.line, strlen(client.line), &error), *item;

	if (!root)
		fail_msg("%s: %s", client.line, error);
	item = cJSON_GetObjectItemCaseSensitive(root, name);
	assert_true(cJSON_IsString(item));
	return item->valuestring;
}

/* No user breaks out of a reply. */
static void test_answers_to_any_user(void **state)
{
	struct json_arena *other = json_arena_new();
	struct result result = result_make(ANSWER_OK, ACK_ACCEPTED, 2);
	struct request *request;
	char wanted[512];

	for (int c = '!'; c <= '~' + (int)(sizeof(users) / sizeof(users[0])); c++) {
		const char *text = c > '~' ? users[c - '~' - 1].user : (char[]){ (char)c, 0 };

		assert_int_equal(user_id_parse(&result.receive.user, text, strlen(text)), 0);
		result.answer = ANSWER_OK;
		request_answer(parse(*state, "{\"op\":\"issue\",\"coupon\":1,\"user\":1}"),
			       &result);
		snprintf(wanted, sizeof(wanted), "1001.%s." BATCH ".3", text);
		assert_string_equal(text_member(other, "receive"), wanted);
		request = parse(*state, "{\"op\":\"issue\",\"coupon\":1001,\"user\":1}");
		request->user = result.receive.user;
		result.answer = ANSWER_LIMIT_REACHED;
		request_answer(request, &result);
		snprintf(wanted, sizeof(wanted), "user %s has as many of coupon 1001 as allowed",
			 text);
		assert_string_equal(text_member(other, "message"), wanted);
	}
	json_arena_free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_users),
		TEST(test_refused_users),
		TEST(test_receive_of_any_user),
		TEST(test_answers_to_any_user),
	};

	return cmocka_run_group_tests_name("request_users", tests, NULL, NULL);
}
