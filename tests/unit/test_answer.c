/* The answer codes: numbers and names are part of the protocol. */
#include "common/message/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_numbers(void **state)
{
	static const struct {
		int code;
		const char *status;
		int http;
	} cases[] = {
		{ 0, "ok", 200 },
		{ 1, "not_found", 404 },
		{ 2, "out_of_stock", 409 },
		{ 3, "ended", 409 },
		{ 4, "limit_reached", 409 },
		{ 5, "not_started", 409 },
		{ 6, "paused", 409 },
		{ 7, "code_invalid", 422 },
		{ 8, "code_used", 409 },
		{ 16, "code_expired", 409 },
		{ 9, "rejected", 409 },
		{ 20, "busy", 429 },
		{ 21, "unavailable", 503 },
		{ 22, "unknown", 504 },
		{ 40, "bad_request", 400 },
		{ 41, "unauthorized", 401 },
		{ 42, "forbidden", 403 },
		{ 43, "too_large", 413 },
		{ 44, "key_reused", 422 },
		{ 23, "rate_limited", 429 },
		{ 10, "held_by_other", 409 },
		{ 11, "already_used", 409 },
		{ 12, "expired", 409 },
		{ 13, "not_valid_yet", 409 },
		{ 14, "voided", 409 },
		{ 15, "budget_spent", 409 },
		{ 17, "below_threshold", 409 },
		{ 18, "amount_exceeded", 409 },
	};

	(void)state;
	assert_int_equal(ANSWER_COUNT, sizeof(cases) / sizeof(cases[0]));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		enum answer answer = answer_from_code(cases[i].code);

		assert_int_not_equal(answer, ANSWER_COUNT);
		assert_int_equal(answer_code(answer), cases[i].code);
		assert_string_equal(answer_status(answer), cases[i].status);
		assert_int_equal(answer_http(answer), cases[i].http);
		assert_true(strlen(answer_text(answer)) > 0);
	}
}

static void test_no_such_code(void **state)
{
	(void)state;
	assert_int_equal(answer_from_code(-1), ANSWER_COUNT);
	assert_int_equal(answer_from_code(19), ANSWER_COUNT);
	assert_int_equal(answer_from_code(45), ANSWER_COUNT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_no_such_code),
	};

	return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
