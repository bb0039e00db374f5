/* Requests of clients: the members of each operation, every refusal, and the exact replies. */
#include "tests/unit/request_rig.h"

static void test_issue(void **state)
{
	struct request *request = parse(*state, "{\"id\":2,\"op\":\"issue\",\"coupon\":\"1001\","
						"\"user\":\"42\",\"key\":\"order-77\","
						"\"ack\":\"issued\"}");

	assert_int_equal(request->op, OP_ISSUE);
	assert_int_equal(request->ack, ACK_ISSUED);
	assert_true(request->coupon == 1001);
	assert_string_equal(request->user.text, "42");
	assert_int_equal(request->key_len, 8);
	assert_string_equal(request_key(request), "order-77");
	free(request);
	request = parse(*state, "{\"op\":\"issue\",\"user\":9007199254740991,\"coupon\":"
				"\"9223372036854775807\",\"ack\":\"queued\"}");
	assert_int_equal(request->ack, ACK_QUEUED);
	assert_true(request->coupon == INT64_MAX);
	assert_string_equal(request->user.text, "9007199254740991");
	assert_int_equal(request->id_len, 0);
	assert_int_equal(request->key_len, 0);
	assert_string_equal(request_key(request), "");
	free(request);
	request = parse(*state, "{\"op\":\"issue\",\"coupon\":1,\"user\":2}");
	assert_int_equal(request->ack, ACK_ACCEPTED);
	free(request);
}

static void test_other_operations(void **state)
{
	struct request *request = parse(*state,
					"{\"op\":\"status\",\"receive\":\"1001.42." BATCH ".3\"}");

	assert_int_equal(request->op, OP_STATUS);
	assert_int_equal(request->by_receive, 1);
	assert_true(request->coupon == 1001 && request->receive.index == 3);
	assert_string_equal(request->user.text, "42");
	free(request);
	request = parse(*state, "{\"op\":\"status\",\"coupon\":\"7\",\"user\":\"8\"}");
	assert_int_equal(request->by_receive, 0);
	assert_true(request->coupon == 7);
	assert_string_equal(request->user.text, "8");
	free(request);
	request = parse(*state, "{\"op\":\"coupon\",\"coupon\":\"7\"}");
	assert_int_equal(request->op, OP_COUPON);
	free(request);
	request = parse(*state, "{\"op\":\"ping\"}");
	assert_int_equal(request->op, OP_PING);
	free(request);
	request = parse(*state, "{\"op\":\"stats\",\"id\":\"x\"}");
	assert_int_equal(request->op, OP_STATS);
	free(request);
	/* HTTP: the path names the operation. */
	request = parse_as(*state, "{\"coupon\":\"7\",\"user\":\"8\"}", OP_ISSUE);
	assert_non_null(request);
	assert_int_equal(request->op, OP_ISSUE);
	free(request);
	refuse_as(*state, "{\"op\":\"issue\",\"coupon\":\"7\",\"user\":\"8\"}", OP_ISSUE,
		  "the path names the operation");
	assert_int_equal(request_op_find("issue"), OP_ISSUE);
	assert_int_equal(request_op_find("Issue"), OP_COUNT);
	assert_int_equal(request_op_find(""), OP_COUNT);
	assert_false(request_operations[OP_ISSUE].reads);
	assert_true(request_operations[OP_STATUS].reads && request_operations[OP_COUPON].reads);
}

/* The cursor of user 42 behind 1001 in slot 2. */
static const char *cursor_text(char text[COUPON_CURSOR_SIZE])
{
	const struct coupon_cursor cursor = { 1700000000123456, 1001, 2 };
	const struct user_id user = user_id_of_number(42);

	return coupon_cursor_format(&cursor, &user, text);
}

static void test_coupons(void **state)
{
	char text[256], cursor[COUPON_CURSOR_SIZE];
	struct request *request = parse(*state, "{\"op\":\"coupons\",\"user\":\"42\"}");

	assert_int_equal(request->op, OP_COUPONS);
	assert_string_equal(request->user.text, "42");
	assert_int_equal(request->page.limit, 20);
	assert_false(request->page.is_next);
	free(request);
	/* The cursor may come before its user; the limit is a text in a query. */
	snprintf(text, sizeof(text), "{\"cursor\":\"%s\",\"limit\":\"100\",\"user\":42}",
		 cursor_text(cursor));
	request = parse_as(*state, text, OP_COUPONS);
	assert_int_equal(request->page.limit, 100);
	assert_true(request->page.is_next && request->page.after.at_us == 1700000000123456 &&
		    request->page.after.coupon == 1001 && request->page.after.slot == 2);
	free(request);
	request = parse(*state, "{\"op\":\"coupons\",\"user\":\"42\",\"limit\":1}");
	assert_int_equal(request->page.limit, 1);
	free(request);
	snprintf(text, sizeof(text), "{\"op\":\"coupons\",\"user\":\"43\",\"cursor\":\"%s\"}",
		 cursor);
	refuse(*state, text, "must be the cursor of a reply to coupons of the same user");
	assert_true(request_operations[OP_COUPONS].reads);
}

static void test_claim(void **state)
{
	char code[RECEIVE_CODE_MAX + 1];
	struct request *request =
		parse(*state, "{\"op\":\"claim\",\"code\":\"7kq2m-9xh4-rtwp\",\"user\":\"42\"}");

	assert_int_equal(request->op, OP_CLAIM);
	assert_string_equal(request_code(request), "7kq2m-9xh4-rtwp");
	assert_int_equal(request->code_len, 15);
	assert_string_equal(request_key(request), "");
	assert_int_equal(request->coupon, 0);
	request_code_set(request, "9223372036854775807.9223372036854775807", 9007199254740991);
	assert_string_equal(request_code(request),
			    "9223372036854775807.9223372036854775807 9007199254740991");
	assert_int_equal(request_code_found(request, code), 9007199254740991);
	assert_string_equal(code, "9223372036854775807.9223372036854775807");
	free(request);
	request = parse_as(*state,
			   "{\"id\":1,\"code\":\"c\",\"user\":42,\"key\":\"k\",\"ack\":\"issued\"}",
			   OP_CLAIM);
	assert_string_equal(request_key(request), "k");
	assert_int_equal(request->ack, ACK_ISSUED);
	request_code_set(request, "17.5", 0);
	assert_string_equal(request_code(request), "17.5");
	assert_int_equal(request_code_found(request, code), 0);
	assert_string_equal(code, "17.5");
	assert_string_equal(request_key(request), "k");
	free(request);
	assert_false(request_operations[OP_CLAIM].reads);
}

static void test_refused_claim(void **state)
{
	static const struct refusal refused_claim[] = {
		{ "{\"op\":\"claim\"}", "code: is missing" },
		{ "{\"op\":\"claim\",\"code\":\"x\"}", "user: is missing" },
		{ "{\"op\":\"claim\",\"user\":\"1\"}", "code: is missing" },
		{ "{\"op\":\"code\",\"user\":\"1\"}", "code: is missing" },
		{ "{\"op\":\"code\",\"code\":\"x\"}", "user: is missing" },
		{ "{\"op\":\"code\",\"code\":\"x\",\"user\":\"1\",\"key\":\"k\"}",
		  "key: no such member of code" },
		{ "{\"op\":\"claim\",\"user\":\"1\",\"code\":\"\"}",
		  "code is \\\"\\\": must be a string of 1 to 128 bytes" },
		{ "{\"op\":\"claim\",\"user\":\"1\",\"code\":5}", "code is 5: must be a string" },
		{ "{\"op\":\"claim\",\"user\":\"1\",\"code\":\"x\",\"coupon\":\"1\"}",
		  "coupon: no such member of claim" },
		{ "{\"op\":\"issue\",\"user\":\"1\",\"coupon\":\"1\",\"code\":\"x\"}",
		  "code: no such member of issue" },
	};
	char text[256];

	refuse_each(*state, refused_claim, sizeof(refused_claim) / sizeof(refused_claim[0]));
	snprintf(text, sizeof(text), "{\"op\":\"claim\",\"user\":\"1\",\"code\":\"%0129d\"}", 0);
	refuse(*state, text, "must be a string of 1 to 128 bytes");
	snprintf(text, sizeof(text), "{\"op\":\"claim\",\"user\":\"1\",\"code\":\"%0128d\"}", 0);
	free(parse(*state, text));
}

/* Whatever the operation is. */
static const struct refusal refused[] = {
	{ "", "{\"code\":40,\"status\":\"bad_request\",\"message\":\"the request: not "
	      "JSON\"}" },
	{ "{", "not JSON" },
	{ "[]", "must be a JSON object" },
	{ "5", "must be a JSON object" },
	{ "{}", "op: is missing" },
	{ "{\"id\":1}", "{\"id\":1,\"code\":40,\"status\":\"bad_request\",\"message\":\"op:"
			" is missing\"}" },
	{ "{\"op\":\"buy\"}",
	  "op is \\\"buy\\\": must be one of issue, claim, status, coupon, coupons, ping, "
	  "stats" },
	{ "{\"op\":5}", "op is 5: must be one of" },
	{ "{\"op\":\"ping\",\"op\":\"ping\"}", "occurs twice" },
	{ "{\"op\":\"ping\"} {}", "bytes after" },
	{ "{\"op\":\"ping\",\"user\":\"1\"}", "user: no such member of ping" },
	{ "{\"id\":1.5,\"op\":\"ping\"}", "only integers" },
	{ "{\"id\":9007199254740992,\"op\":\"ping\"}", ": must be an integer from" },
	{ "{\"id\":null,\"op\":\"ping\"}", "id is null: must be" },
	{ "{\"id\":{},\"op\":\"ping\"}", "id is {}: must be" },
	{ "{\"id\":true,\"op\":\"ping\"}", "id is true: must be" },
};

static void test_refused(void **state)
{
	refuse_each(*state, refused, sizeof(refused) / sizeof(refused[0]));
}

static const struct refusal refused_issue[] = {
	{ "{\"op\":\"issue\"}", "coupon: is missing" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\"}", "user: is missing" },
	{ "{\"op\":\"issue\",\"user\":\"1\"}", "coupon: is missing" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"slot\":1}",
	  "slot: no such member of issue" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"Key\":\"k\"}",
	  "Key: no such member" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"receive\":\"x\"}",
	  "receive: no such member" },
	{ "{\"op\":\"issue\",\"coupon\":\"01\",\"user\":\"2\"}",
	  "coupon is \\\"01\\\": must be an integer from 1 to" },
	{ "{\"op\":\"issue\",\"coupon\":9007199254740993,\"user\":\"2\"}", "send it as a string" },
	{ "{\"op\":\"issue\",\"coupon\":0,\"user\":\"2\"}", "coupon is 0: must be" },
	{ "{\"op\":\"issue\",\"coupon\":null,\"user\":\"2\"}", "coupon is null: must be" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":1.0}", "only integers" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"key\":\"\"}",
	  "key is \\\"\\\": must be a string of 1 to 255" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"key\":5}", "key is 5: must be" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"key\":\"\\u00e9\"}",
	  "must be a string of 1 to 255 printable" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"key\":\"a\\nb\"}",
	  "must be a string of 1 to 255 printable" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"ack\":\"done\"}",
	  "ack is \\\"done\\\": must be accepted, queued or issued" },
	{ "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"ack\":1}", "ack is 1: must be" },
};

static void test_refused_issue(void **state)
{
	refuse_each(*state, refused_issue, sizeof(refused_issue) / sizeof(refused_issue[0]));
}

static const struct refusal refused_reading[] = {
	{ "{\"op\":\"status\"}", "takes either receive, or coupon and user" },
	{ "{\"op\":\"status\",\"coupon\":\"1\"}", "takes either receive, or coupon and user" },
	{ "{\"op\":\"status\",\"user\":\"1\"}", "takes either" },
	{ "{\"op\":\"status\",\"coupon\":\"1\",\"user\":\"2\",\"receive\":\"1.2." BATCH ".0\"}",
	  "takes either" },
	{ "{\"op\":\"status\",\"receive\":\"1.2." BATCH ".256\"}", "receive is" },
	{ "{\"op\":\"status\",\"receive\":5}", "receive is 5: must be a receive" },
	{ "{\"op\":\"coupon\"}", "coupon: is missing" },
	{ "{\"op\":\"coupon\",\"coupon\":\"1\",\"user\":\"1\"}", "user: no such member of coupon" },
	{ "{\"op\":\"coupon\",\"coupon\":\"1\",\"limit\":1}", "limit: no such member of coupon" },
	{ "{\"op\":\"coupons\"}", "user: is missing" },
	{ "{\"op\":\"coupons\",\"limit\":5}", "user: is missing" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"coupon\":\"1\"}",
	  "coupon: no such member of coupons" },
	{ "{\"op\":\"coupons\",\"user\":\"a b\"}", "byte 2 is not allowed" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"limit\":0}",
	  "limit is 0: must be an integer from 1 to 100" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"limit\":101}", "limit is 101: must be" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"limit\":-1}", "limit is -1: must be" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"limit\":\"\"}", "limit is \\\"\\\": must be" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"limit\":\"05\"}", "limit is \\\"05\\\": must" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"limit\":\"101\"}", "limit is \\\"101\\\": must" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"limit\":null}", "limit is null: must be" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"limit\":[1]}", "limit is [1]: must be" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"cursor\":\"\"}",
	  "cursor is \\\"\\\": must be the cursor of a reply" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"cursor\":5}", "cursor is 5: must be the cursor" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"cursor\":null}", "cursor is null: must be" },
	{ "{\"op\":\"coupons\",\"user\":\"1\",\"cursor\":\"01\"}", "cursor is \\\"01\\\": must" },
};

static void test_refused_reading(void **state)
{
	refuse_each(*state, refused_reading, sizeof(refused_reading) / sizeof(refused_reading[0]));
}

/* A long wrong value is shown in part, and never half a character of it. */
static void test_long_values(void **state)
{
	struct json_arena *other = json_arena_new();
	char text[1200], value[600];
	const char *error;

	for (int shift = 0; shift < 4; shift++) {
		memset(value, 'x', (size_t)shift);
		for (size_t at = (size_t)shift; at < 500; at += 3)
			memcpy(value + at, "\xe2\x82\xac", 4);
		snprintf(text, sizeof(text), "{\"op\":\"issue\",\"coupon\":\"%s\",\"user\":\"1\"}",
			 value);
		refuse(*state, text, "coupon is ");
		assert_non_null(json_parse(other, client.line, strlen(client.line), &error));
		snprintf(text, sizeof(text), "{\"op\":\"ping\",\"%s\":1}", value);
		refuse(*state, text, "no such member of ping");
		if (!json_parse(other, client.line, strlen(client.line), &error))
			fail_msg("%s: %s", error, client.line);
		snprintf(text, sizeof(text), "{\"id\":\"%s\",\"op\":\"ping\"}", value);
		refuse(*state, text, "id is ");
		assert_non_null(json_parse(other, client.line, strlen(client.line), &error));
	}
	json_arena_free(other);
}

static void answer_expect(struct json_arena *arena, const char *id, const struct result *result,
			  const char *line)
{
	char text[512];
	struct request *request;

	snprintf(text, sizeof(text), "{%s%s%s\"op\":\"issue\",\"coupon\":\"1001\",\"user\":\"42\"}",
		 *id ? "\"id\":" : "", id, *id ? "," : "");
	request = parse(arena, text);
	request_answer(request, result);
	assert_int_equal(client.replies, 1);
	assert_int_equal(client.answer, result->answer);
	assert_string_equal(client.line, line);
}

#define RECEIVE "\"receive\":\"1001.42." BATCH ".3\",\"slot\":2"

static void test_answers(void **state)
{
	struct result result = result_make(ANSWER_OK, ACK_ACCEPTED, 2);

	answer_expect(*state, "1", &result,
		      "{\"id\":1,\"code\":0,\"status\":\"accepted\"," RECEIVE "}");
	result.reached = ACK_QUEUED;
	answer_expect(*state, "", &result, "{\"code\":0,\"status\":\"queued\"," RECEIVE "}");
	result.is_replayed = 1;
	answer_expect(*state, "2", &result,
		      "{\"id\":2,\"code\":0,\"status\":\"queued\",\"replayed\":true," RECEIVE "}");
	result.is_replayed = 0;
	result.reached = ACK_ISSUED;
	answer_expect(*state, "\"a \\\"b\\\" \\u00e9\"", &result,
		      "{\"id\":\"a \\\"b\\\" \xc3\xa9\",\"code\":0,\"status\":\"issued\"," RECEIVE
		      "}");
	result = result_make(ANSWER_REJECTED, ACK_ACCEPTED, 2);
	result.reason = "slot_taken";
	answer_expect(*state, "-5", &result,
		      "{\"id\":-5,\"code\":9,\"status\":\"rejected\"," RECEIVE
		      ",\"reason\":\"slot_taken\","
		      "\"message\":\"the accepted receive could not be issued: slot_taken\"}");
	result = result_make(ANSWER_UNKNOWN, ACK_ACCEPTED, 2);
	answer_expect(*state, "7", &result,
		      "{\"id\":7,\"code\":22,\"status\":\"unknown\"," RECEIVE
		      ",\"message\":\"accepted, but its outcome is not yet known; "
		      "query status\"}");
}

/* The members that follow the id. */
static const struct {
	enum answer answer;
	const char *rest;
} refusals[] = {
	{ ANSWER_NOT_FOUND,
	  "\"code\":1,\"status\":\"not_found\",\"message\":\"there is no coupon 1001\"" },
	{ ANSWER_OUT_OF_STOCK, "\"code\":2,\"status\":\"out_of_stock\",\"message\":"
			       "\"coupon 1001 is sold out\"" },
	{ ANSWER_ENDED, "\"code\":3,\"status\":\"ended\",\"message\":\"coupon 1001 has ended\"" },
	{ ANSWER_LIMIT_REACHED, "\"code\":4,\"status\":\"limit_reached\",\"message\":"
				"\"user 42 has as many of coupon 1001 as allowed\"" },
	{ ANSWER_NOT_STARTED, "\"code\":5,\"status\":\"not_started\",\"message\":\"coupon "
			      "1001 has not begun\"" },
	{ ANSWER_PAUSED, "\"code\":6,\"status\":\"paused\",\"message\":\"coupon 1001 is paused\"" },
	{ ANSWER_BUSY, "\"code\":20,\"status\":\"busy\",\"message\":\"a limit is reached; "
		       "nothing was done; retry later\"" },
	{ ANSWER_UNAVAILABLE, "\"code\":21,\"status\":\"unavailable\",\"message\":\"a "
			      "required service is not available; nothing was done; "
			      "retry later\"" },
	{ ANSWER_UNKNOWN, "\"code\":22,\"status\":\"unknown\",\"message\":\"may or may "
			  "not have been done; query status, or retry "
			  "with the same key\"" },
};

static void test_answers_without_a_receive(void **state)
{
	struct result result;
	char line[512];

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		result = result_make(refusals[i].answer, ACK_ACCEPTED, 0);
		snprintf(line, sizeof(line), "{\"id\":1,%s}", refusals[i].rest);
		answer_expect(*state, "1", &result, line);
	}
}

/* The longest id and user, and the largest numbers fit. */
static void test_longest(void **state)
{
	char text[1024], id[400] = "", user[USER_ID_MAX];
	struct result result = result_make(ANSWER_REJECTED, ACK_ISSUED, 100);
	struct json_arena *other = json_arena_new();
	struct request *request;
	const char *error;

	for (int i = 0; i < 64; i++)
		strcat(id, "\\u0001");
	snprintf(text, sizeof(text),
		 "{\"id\":\"%s\",\"op\":\"issue\",\"coupon\":\"%lld\",\"user\":\"%lld\"}", id,
		 (long long)INT64_MAX, (long long)INT64_MAX);
	request = parse(*state, text);
	result.receive.coupon = INT64_MAX;
	result.receive.index = 255;
	memset(user, '"', USER_ID_MAX);
	user_id_parse(&result.receive.user, user, USER_ID_MAX);
	result.reason = "unknown_coupon";
	result.is_replayed = 1;
	request_answer(request, &result);
	assert_non_null(json_parse(other, client.line, strlen(client.line), &error));
	assert_non_null(strstr(client.line, id));
	assert_non_null(strstr(client.line, "\\\"." BATCH ".255\",\"slot\":100"));
	json_arena_free(other);
}

static void test_other_replies(void **state)
{
	cJSON *object;

	request_fail(parse(*state, "{\"id\":\"x\",\"op\":\"ping\"}"), ANSWER_BUSY, NULL);
	assert_string_equal(client.line, "{\"id\":\"x\",\"code\":20,\"status\":\"busy\","
					 "\"message\":\"a limit is reached; nothing was done; "
					 "retry later\"}");
	request_fail_wait(parse(*state, "{\"id\":7,\"op\":\"ping\"}"), ANSWER_RATE_LIMITED, 50,
			  NULL);
	assert_string_equal(
		client.line,
		"{\"id\":7,\"code\":23,\"status\":\"rate_limited\",\"retry_after_ms\":50,"
		"\"message\":\"too many requests; nothing was done; retry after "
		"retry_after_ms\"}");
	request_fail(parse(*state, "{\"op\":\"ping\"}"), ANSWER_NOT_FOUND, "no \"such\" thing");
	assert_string_equal(
		client.line,
		"{\"code\":1,\"status\":\"not_found\",\"message\":\"no \\\"such\\\" thing\"}");
	request_answer_object(parse(*state, "{\"id\":3,\"op\":\"ping\"}"), ANSWER_OK, NULL, NULL);
	assert_string_equal(client.line, "{\"id\":3,\"code\":0,\"status\":\"ok\"}");
	object = cJSON_CreateObject();
	cJSON_AddStringToObject(object, "a", "b");
	cJSON_AddNumberToObject(object, "n", 5);
	request_answer_object(parse(*state, "{\"op\":\"stats\"}"), ANSWER_OK, "issued", object);
	assert_string_equal(client.line, "{\"code\":0,\"status\":\"issued\",\"a\":\"b\",\"n\":5}");
	client.replies = 0;
	responder_line(&client.responder, NULL, ANSWER_TOO_LARGE,
		       answer_message_line("", ANSWER_TOO_LARGE, NULL));
	assert_int_equal(client.replies, 1);
	assert_string_equal(client.line, "{\"code\":43,\"status\":\"too_large\",\"message\":\"the "
					 "request is larger than allowed\"}");
	assert_string_equal(request_ack_names[ACK_QUEUED], "queued");
}

/* The header Idempotency-Key over HTTP. */
static void test_a_key_beside_the_object(void **state)
{
	static const char issue[] = "{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\"";
	char text[256];
	struct request *request;

	client.responder.key = "k";
	snprintf(text, sizeof(text), "%s}", issue);
	request = parse(*state, text);
	assert_string_equal(request_key(request), "k");
	free(request);
	snprintf(text, sizeof(text), "%s,\"key\":\"k\"}", issue);
	request = parse(*state, text);
	assert_string_equal(request_key(request), "k");
	free(request);
	snprintf(text, sizeof(text), "%s,\"key\":\"K\"}", issue);
	assert_null(parse_as(*state, text, OP_COUNT));
	assert_int_equal(client.answer, ANSWER_BAD_REQUEST);
	assert_non_null(
		strstr(client.line, "key is \\\"K\\\": differs from the header Idempotency-Key"));
	request = parse(*state, "{\"op\":\"status\",\"coupon\":\"1\",\"user\":\"2\"}");
	assert_int_equal(request->key_len, 0);
	free(request);
}

#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
#define TRACE_ALLOWED "must be a traceparent of W3C Trace Context"

static void test_traces(void **state)
{
	static const char issue[] =
		"{\"op\":\"issue\",\"coupon\":\"1\",\"user\":\"2\",\"key\":\"k\"";
	static const char *const wrong[] = { "1", "\"\"", "\"" PARENT "0\"", "null" };
	char text[256];
	struct request *request;

	snprintf(text, sizeof(text), "%s,\"trace\":\"" PARENT "01\"}", issue);
	request = parse(*state, text);
	assert_string_equal(request_trace(request), PARENT "01");
	assert_int_equal(request->trace_len, 55);
	assert_string_equal(request_key(request), "k");
	free(request);
	snprintf(text, sizeof(text), "%s,\"trace\":\"" PARENT "00\"}", issue);
	request = parse(*state, text);
	assert_string_equal(request_trace(request), "");
	assert_int_equal(request->trace_len, 0);
	free(request);
	request = parse(*state,
			"{\"op\":\"claim\",\"code\":\"c\",\"user\":\"2\",\"trace\":\"" PARENT
			"01\"}");
	assert_string_equal(request_trace(request), PARENT "01");
	assert_string_equal(request_code(request), "c");
	request_code_set(request, "1.2", 0);
	assert_string_equal(request_code(request), "1.2");
	assert_string_equal(request_trace(request), PARENT "01");
	free(request);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), "%s,\"trace\":%s}", issue, wrong[i]);
		assert_null(parse_as(*state, text, OP_COUNT));
		assert_int_equal(client.answer, ANSWER_BAD_REQUEST);
		assert_non_null(strstr(client.line, TRACE_ALLOWED));
	}
	assert_null(parse_as(*state, "{\"op\":\"ping\",\"trace\":\"" PARENT "01\"}", OP_COUNT));
	client.responder.trace = PARENT "01 order-77";
	snprintf(text, sizeof(text), "%s}", issue);
	request = parse(*state, text);
	assert_string_equal(request_trace(request), PARENT "01 order-77");
	free(request);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_issue),           TEST(test_other_operations),
		TEST(test_refused),         TEST(test_refused_issue),
		TEST(test_refused_reading), TEST(test_long_values),
		TEST(test_answers),         TEST(test_answers_without_a_receive),
		TEST(test_longest),         TEST(test_other_replies),
		TEST(test_coupons),         TEST(test_claim),
		TEST(test_refused_claim),   TEST(test_a_key_beside_the_object),
		TEST(test_traces),
	};

	return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
