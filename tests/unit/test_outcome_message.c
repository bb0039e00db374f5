/* Messages with outcomes, as the gateway decodes them. */
#include "gateway/publish/waiters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"

static int told;
static char words[1024];

static void each(void *context, const struct ulid *batch, int index, enum outcome_state state,
		 const char *reason)
{
	char text[ULID_SIZE];
	size_t len = strlen(words);

	assert_ptr_equal(context, &told);
	assert_string_equal(ulid_format(batch, text), BATCH);
	told++;
	snprintf(words + len, sizeof(words) - len, "%d:%s%s%s ", index,
		 state == OUTCOME_ISSUED ? "issued" : "rejected", reason ? "," : "",
		 reason ? reason : "");
}

static int decode(struct json_arena *arena, const char *body)
{
	told = 0;
	words[0] = '\0';
	return outcome_message_decode(arena, body, strlen(body), each, &told);
}

static int setup(void **state)
{
	*state = json_arena_new();
	return 0;
}

static int teardown(void **state)
{
	json_arena_free(*state);
	return 0;
}

static void test_taken(void **state)
{
	assert_int_equal(decode(*state,
				"{\"v\":1,\"batch\":\"" BATCH
				"\",\"outcomes\":[[0,\"issued\"],[1,\"rejected\",\"slot_taken\"],"
				"[255,\"rejected\",\"out_of_stock\"],[2,\"issued\",\"x\",5]]}"),
			 0);
	assert_string_equal(words,
			    "0:issued 1:rejected,slot_taken 255:rejected,out_of_stock 2:issued ");
	assert_int_equal(decode(*state, "{\"v\":1,\"batch\":\"" BATCH "\",\"outcomes\":[]}"), 0);
	assert_int_equal(told, 0);
}

/* Only known reasons are used in an answer. */
static void test_reasons(void **state)
{
	static const char *const reasons[] = { "unknown_coupon", "slot_taken", "slot_invalid",
					       "out_of_stock",   "key_taken",  "lost" };

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		assert_string_equal(outcome_reason(reasons[i]), reasons[i]);
	assert_string_equal(outcome_reason(""), "other");
	assert_string_equal(outcome_reason("\\\"},{"), "other");
	assert_int_equal(decode(*state, "{\"v\":1,\"batch\":\"" BATCH
					"\",\"outcomes\":[[0,\"rejected\",\"\\\"quote\"]]}"),
			 0);
	assert_string_equal(words, "0:rejected,other ");
}

static void test_refused(void **state)
{
	static const char *const bodies[] = {
		"",
		"x",
		"[]",
		"5",
		"{}",
		"{\"batch\":5,\"outcomes\":[]}",
		"{\"batch\":\"\",\"outcomes\":[]}",
		"{\"batch\":\"01arz3ndektsv4rrffq69g5fav\",\"outcomes\":[]}",
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
	char body[256];

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		assert_int_equal(decode(*state, bodies[i]), -1);
		assert_int_equal(told, 0);
	}
	for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
		snprintf(body, sizeof(body),
			 "{\"v\":1,\"batch\":\"" BATCH
			 "\",\"outcomes\":[[7,\"issued\"],%s,[8,\"issued\"]]}",
			 outcomes[i]);
		assert_int_equal(decode(*state, body), -1);
		assert_string_equal(words, "7:issued "); /* the outcomes before the fault */
	}
}

static void test_without_outcomes(void **state)
{
	assert_int_equal(decode(*state, "{\"v\":1,\"batch\":\"" BATCH "\"}"), -1);
	assert_int_equal(decode(*state, "{\"v\":1,\"batch\":\"" BATCH "\",\"outcomes\":5}"), -1);
	assert_int_equal(decode(*state, "{\"v\":1,\"batch\":\"" BATCH
					"\",\"outcomes\":{\"a\":[0,\"issued\"]}}"),
			 -1);
	assert_int_equal(told, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_taken),
		TEST(test_reasons),
		TEST(test_refused),
		TEST(test_without_outcomes),
	};

	return cmocka_run_group_tests_name("outcome_message", tests, NULL, NULL);
}
