/* Requests hold, use, release, rollback, quote: their members, every refusal, the exact replies. */
#include "tests/unit/request_rig.h"

#define ONE "\"1001.42." BATCH ".3\""
#define OTHER "\"1001.43." BATCH ".4\""
#define LONG64 "1234567890123456789012345678901234567890123456789012345678901234"

static void test_hold(void **state)
{
	struct request *request = parse(*state, "{\"op\":\"hold\",\"receive\":" ONE
						",\"order\":\"o 1\",\"key\":\"k\",\"ttl_s\":86400,"
						"\"amount\":12900,\"currency\":\"EUR\"}");
	const struct use *use = &request->use->use;

	assert_int_equal(request->op, OP_HOLD);
	assert_true(request->coupon == 1001);
	assert_int_equal(request->user.len, 0);
	assert_int_equal(use->receives_n, 1);
	assert_string_equal(request->use->receives[0].user.text, "42");
	assert_int_equal(request->use->receives[0].index, 3);
	assert_string_equal(use->order, "o 1");
	assert_string_equal(use->key, "k");
	assert_int_equal(use->ttl_s, 86400);
	assert_int_equal(use->amount, 12900);
	assert_string_equal(use->currency, "EUR");
	free(request);
	request = parse(*state, "{\"op\":\"hold\",\"receive\":" ONE ",\"order\":\"o\"}");
	assert_int_equal(request->use->use.ttl_s, 900);
	assert_int_equal(request->use->use.amount, -1);
	assert_string_equal(request->use->use.key, "");
	free(request);
}

static void test_receives(void **state)
{
	struct request *request = parse(*state, "{\"op\":\"use\",\"user\":\"42\",\"receives\":[" ONE
						"," OTHER "],\"order\":\"o\"}");

	assert_int_equal(request->use->use.receives_n, 2);
	assert_string_equal(request->use->receives[1].user.text, "43");
	assert_string_equal(request->user.text, "42");
	assert_true(request->coupon == 1001);
	free(request);
	request = parse(*state, "{\"op\":\"rollback\",\"user\":42,\"coupon\":1002,\"order\":\"o\","
				"\"reason\":\"sent back\"}");
	assert_int_equal(request->use->use.receives_n, 1);
	assert_true(request->use->receives[0].coupon == 1002);
	assert_string_equal(request->use->receives[0].user.text, "42");
	assert_int_equal(request->use->receives[0].index, USE_ANY_RECEIVE);
	assert_string_equal(request->use->use.reason, "sent back");
	free(request);
	request = parse(*state, "{\"op\":\"release\",\"receive\":" ONE ",\"user\":\"9\",\"order\":"
				"\"o\"}");
	assert_string_equal(request->user.text, "9");
	assert_string_equal(request->use->receives[0].user.text, "42");
	free(request);
}

static void test_quote(void **state)
{
	struct request *request = parse(*state, "{\"op\":\"quote\",\"coupon\":\"7\",\"amount\":"
						"\"12900\",\"currency\":\"EUR\"}");

	assert_int_equal(request->op, OP_QUOTE);
	assert_true(request->coupon == 7);
	assert_int_equal(request->use->use.amount, 12900);
	free(request);
	assert_true(request_operations[OP_QUOTE].reads);
	assert_false(request_operations[OP_USE].reads);
}

#define TARGET "use: takes either receive, or receives, or coupon and user"
#define ORDER ",\"order\":\"o\"}"

static void test_refused(void **state)
{
	static const struct refusal refusals[] = {
		{ "{\"op\":\"use\"" ORDER, TARGET },
		{ "{\"op\":\"use\",\"user\":\"1\"" ORDER, TARGET },
		{ "{\"op\":\"use\",\"coupon\":\"1\"" ORDER, TARGET },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"receives\":[" ONE "]" ORDER, TARGET },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"coupon\":\"1\"" ORDER, TARGET },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"coupon\":\"1\",\"user\":\"1\"" ORDER,
		  TARGET },
		{ "{\"op\":\"use\",\"receive\":" ONE "}", "order: is missing" },
		{ "{\"op\":\"use\",\"receive\":\"1001.42\"" ORDER,
		  "receive is \\\"1001.42\\\": must be a receive" },
		{ "{\"op\":\"use\",\"receive\":7" ORDER, "receive is 7: must be a receive" },
		{ "{\"op\":\"use\",\"receives\":" ONE ORDER,
		  "must be an array of 1 to 16 different receives" },
		{ "{\"op\":\"use\",\"receives\":[]" ORDER, "receives is []: must be an array" },
		{ "{\"op\":\"use\",\"receives\":[" ONE "," ONE "]" ORDER, "different receives" },
		{ "{\"op\":\"use\",\"receives\":[" ONE ",5]" ORDER, "element 2 must be a receive" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"order\":\"\"}",
		  "order is \\\"\\\": must be a string of 1 to 64 printable ASCII bytes" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"order\":\"" LONG64 "5\"}",
		  "must be a string of 1 to 64 printable ASCII bytes" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"order\":77}", "order is 77: must be" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"order\":\"\xc3\xa4\"}", "order is" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"ttl_s\":1" ORDER,
		  "ttl_s: no such member of use" },
		{ "{\"op\":\"hold\",\"receive\":" ONE ",\"ttl_s\":0" ORDER,
		  "ttl_s is 0: must be an integer from 1 to 86400" },
		{ "{\"op\":\"hold\",\"receive\":" ONE ",\"ttl_s\":86401" ORDER, "ttl_s is 86401" },
		{ "{\"op\":\"hold\",\"receive\":" ONE ",\"ttl_s\":\"9\"" ORDER, "ttl_s is" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"amount\":-1,\"currency\":\"EUR\"" ORDER,
		  "amount is -1: must be an integer from 0 to 2^53-1, or a string of at most 15 "
		  "digits, in the smallest unit" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"amount\":\"12.5\"" ORDER, "amount is" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"amount\":\"1234567890123456\"" ORDER,
		  "amount is" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"amount\":\"01\"" ORDER, "amount is" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"amount\":5" ORDER,
		  "currency: is missing: an amount needs a currency" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"currency\":\"EUR\"" ORDER,
		  "amount: is missing: a currency needs an amount" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"amount\":5,\"currency\":\"eur\"" ORDER,
		  "currency is \\\"eur\\\": must be three capital letters of ISO 4217" },
		{ "{\"op\":\"rollback\",\"receive\":" ONE ",\"reason\":\"\"" ORDER,
		  "reason is \\\"\\\": must be a string of 1 to 200 printable ASCII bytes" },
		{ "{\"op\":\"rollback\",\"receive\":" ONE ",\"reason\":\"" LONG64 LONG64 LONG64
		  "123456789\"" ORDER,
		  "must be a string of 1 to 200" },
		{ "{\"op\":\"rollback\",\"receive\":" ONE ",\"amount\":5" ORDER,
		  "currency: is missing: an amount needs a currency" },
		{ "{\"op\":\"rollback\",\"receives\":[" ONE
		  "],\"amount\":5,\"currency\":\"EUR\"" ORDER,
		  "amount: is a part of the discount of one receive" },
		{ "{\"op\":\"release\",\"receive\":" ONE ",\"amount\":5" ORDER,
		  "amount: no such member of release" },
		{ "{\"op\":\"release\",\"receive\":" ONE ",\"reason\":\"r\"" ORDER,
		  "reason: no such member of release" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"key\":\"\"" ORDER, "key is" },
		{ "{\"op\":\"use\",\"receive\":" ONE ",\"ack\":\"issued\"" ORDER,
		  "ack: no such member of use" },
		{ "{\"op\":\"quote\",\"coupon\":\"7\",\"currency\":\"EUR\"}",
		  "amount: is missing" },
		{ "{\"op\":\"quote\",\"coupon\":\"7\",\"amount\":1}", "currency: is missing" },
		{ "{\"op\":\"quote\",\"amount\":1,\"currency\":\"EUR\"}",
		  "takes either coupon, or user" },
		{ "{\"op\":\"quote\",\"receive\":" ONE "}", "receive: no such member of quote" },
	};
	char text[4096], *at = text;

	refuse_each(*state, refusals, sizeof(refusals) / sizeof(refusals[0]));
	at += sprintf(at, "{\"op\":\"use\",\"order\":\"o\",\"receives\":[");
	for (int i = 0; i < 17; i++)
		at += sprintf(at, "%s\"1001.42." BATCH ".%d\"", i > 0 ? "," : "", i);
	sprintf(at, "]}");
	refuse(*state, text, "must be an array of 1 to 16 different receives");
}

static struct use_outcome outcome_make(enum use_result result)
{
	return (struct use_outcome){ .result = result,
				     .receive = result_make(ANSWER_OK, ACK_ACCEPTED, 1).receive,
				     .until_ms = -1,
				     .amount_off = -1 };
}

static void reply_check(const struct use_outcome *outcomes, size_t n, struct request *request,
			enum answer answer, const char *line)
{
	request_answer_use(request, outcomes, n);
	assert_int_equal(client.replies, 1);
	assert_int_equal(client.answer, answer);
	assert_string_equal(client.line, line);
}

static void test_replies(void **state)
{
	static const char one[] = "{\"id\":7,\"op\":\"use\",\"receive\":" ONE ",\"key\":\"k\\\"\","
				  "\"amount\":9,\"currency\":\"USD\"" ORDER,
			  many[] = "{\"op\":\"hold\",\"receives\":[" ONE "]" ORDER;
	struct use_outcome outcome = outcome_make(USE_USED);

	strcpy(outcome.currency, "EUR"); /* nothing is taken off */
	reply_check(&outcome, 1, parse(*state, one), ANSWER_OK,
		    "{\"id\":7,\"code\":0,\"status\":\"used\",\"receive\":" ONE "}");
	outcome.result = USE_HELD;
	outcome.until_ms = 1700000900123;
	outcome.amount_off = 500;
	strcpy(outcome.currency, "EUR");
	reply_check(&outcome, 1, parse(*state, many), ANSWER_OK,
		    "{\"code\":0,\"status\":\"held\",\"receives\":[{\"receive\":" ONE
		    ",\"until\":\"2023-11-14T22:28:20.123Z\",\"amount_off\":500,"
		    "\"currency\":\"EUR\"}]}");
	outcome = outcome_make(USE_HELD_BY_OTHER);
	reply_check(&outcome, 1, parse(*state, one), ANSWER_HELD_BY_OTHER,
		    "{\"id\":7,\"code\":10,\"status\":\"held_by_other\",\"receive\":" ONE
		    ",\"message\":\"another order holds the receive\"}");
	outcome = outcome_make(USE_NOT_FOUND);
	outcome.receive.index = USE_ANY_RECEIVE;
	reply_check(&outcome, 1, parse(*state, one), ANSWER_NOT_FOUND,
		    "{\"id\":7,\"code\":1,\"status\":\"not_found\","
		    "\"message\":\"no such coupon or receive\"}");
	outcome = outcome_make(USE_KEY_TAKEN);
	reply_check(&outcome, 1, parse(*state, one), ANSWER_KEY_REUSED,
		    "{\"id\":7,\"code\":44,\"status\":\"key_reused\","
		    "\"message\":\"key is \\\"k\\\"\\\": was used for another request; a new "
		    "request needs a new key\"}");
	outcome = outcome_make(USE_CURRENCY_WRONG);
	reply_check(&outcome, 1, parse(*state, one), ANSWER_BAD_REQUEST,
		    "{\"id\":7,\"code\":40,\"status\":\"bad_request\","
		    "\"message\":\"currency is \\\"USD\\\": must be that of coupon 1001\"}");
	outcome = outcome_make(USE_NOT_USED);
	reply_check(&outcome, 1, parse(*state, one), ANSWER_BAD_REQUEST,
		    "{\"id\":7,\"code\":40,\"status\":\"bad_request\","
		    "\"message\":\"op is \\\"rollback\\\": the order has not used the receive; use "
		    "release to end a hold\"}");
	outcome = outcome_make(USE_AMOUNT_EXCEEDED);
	reply_check(&outcome, 1, parse(*state, one), ANSWER_AMOUNT_EXCEEDED,
		    "{\"id\":7,\"code\":18,\"status\":\"amount_exceeded\",\"receive\":" ONE
		    ",\"message\":\"the amount is more than the use takes off\"}");
	outcome = outcome_make(USE_AMOUNT_NEEDED);
	reply_check(&outcome, 1, parse(*state, many), ANSWER_BAD_REQUEST,
		    "{\"code\":40,\"status\":\"bad_request\",\"message\":\"amount: is missing: "
		    "the discount of coupon 1001 depends on it\"}");
}

/* The first one that is refused decides. */
static void test_of_several(void **state)
{
	static const char text[] = "{\"op\":\"use\",\"receives\":[" ONE "," OTHER "]" ORDER;
	struct use_outcome outcomes[2] = { outcome_make(USE_USED), outcome_make(USE_USED) };

	outcomes[1].receive.user = user_id_of_number(43);
	outcomes[1].receive.index = 4;
	reply_check(outcomes, 2, parse(*state, text), ANSWER_OK,
		    "{\"code\":0,\"status\":\"used\",\"receives\":[{\"receive\":" ONE
		    "},{\"receive\":" OTHER "}]}");
	outcomes[0].result = USE_KEPT;
	outcomes[1].result = USE_EXPIRED;
	reply_check(outcomes, 2, parse(*state, text), ANSWER_EXPIRED,
		    "{\"code\":12,\"status\":\"expired\",\"receive\":" OTHER
		    ",\"message\":\"the receive is no longer valid\"}");
}

/* Everything as long as it may be. */
static void test_longest_reply(void **state)
{
	static char text[8192];
	struct use_outcome outcomes[USE_RECEIVES_MAX];
	struct request *request;
	char *at = text;

	at += sprintf(at, "{\"id\":\"" LONG64 "\",\"op\":\"use\",\"order\":\"o\",\"receives\":[");
	for (int i = 0; i < USE_RECEIVES_MAX; i++) {
		struct use_outcome *outcome = &outcomes[i];

		*outcome = outcome_make(USE_HELD);
		outcome->receive.coupon = INT64_MAX;
		outcome->receive.index = 255;
		memset(outcome->receive.user.text, '"', USER_ID_MAX);
		outcome->receive.user.len = USER_ID_MAX;
		outcome->until_ms = 253402300799999;
		outcome->amount_off = JSON_INTEGER_MAX;
		strcpy(outcome->currency, "EUR");
		at += sprintf(at, "%s\"1001.42." BATCH ".%d\"", i > 0 ? "," : "", i);
	}
	sprintf(at, "]}");
	request = parse(*state, text);
	request_answer_use(request, outcomes, USE_RECEIVES_MAX);
	assert_int_equal(client.replies, 1);
	assert_non_null(
		json_parse(*state, client.line, strlen(client.line), &(const char *){ NULL }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hold),          TEST(test_receives), TEST(test_quote),
		TEST(test_refused),       TEST(test_replies),  TEST(test_of_several),
		TEST(test_longest_reply),
	};

	return cmocka_run_group_tests_name("request_uses", tests, NULL, NULL);
}
