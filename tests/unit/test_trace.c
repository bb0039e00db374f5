/* Tracing: what each name enables, and which names are refused. */
#include "common/log/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_off(void **state)
{
	(void)state;
	assert_int_equal(trace_init(""), 0);
	assert_int_equal(trace_set, 0);
}

static void test_names(void **state)
{
	(void)state;
	assert_int_equal(trace_init("redis"), 0);
	assert_int_equal(trace_set, 1u << TRACE_REDIS);
	assert_int_equal(trace_init("call,delivery"), 0);
	assert_int_equal(trace_set, 1u << TRACE_CALL | 1u << TRACE_DELIVERY);
	assert_int_equal(trace_init("all"), 0);
	assert_int_equal(trace_set, (1u << TRACE_COUNT) - 1);
}

static void test_refused(void **state)
{
	static const char *const wrong[] = { "redi",        "rediss", "redis call", ",",
					     "redis,,call", "al",     "ALL" };

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(trace_init(wrong[i]), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
