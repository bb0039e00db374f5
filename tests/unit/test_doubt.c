/*
 * Coupons in doubt, as recorded by the processes of a gateway for each other. Here one process
 * enters as each of them in turn.
 */
#include "gateway/admit/doubt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MEMORY_MS 60000

static void test_alone(void **state)
{
	(void)state;
	doubt_init(1);
	doubt_enter(0, 1000, MEMORY_MS);
	doubt_busy(7, 1);
	doubt_until(7, 5000);
	assert_false(doubt_elsewhere(7, 1000));
}

/*
 * One after the other: each entering process is a new one, so that the earlier process of a page
 * counts as dead.
 */
static void test_three(void **state)
{
	(void)state;
	doubt_init(3);
	doubt_enter(0, 1000, MEMORY_MS);
	doubt_busy(7, 1);
	doubt_busy(8, 1);
	doubt_busy(8, 0);
	doubt_until(9, 5000);
	assert_false(doubt_elsewhere(7, 1000)); /* its own record does not count */
	doubt_enter(1, 1000, MEMORY_MS);
	assert_true(doubt_elsewhere(7, 1000));
	assert_false(doubt_elsewhere(8, 1000));
	assert_true(doubt_elsewhere(9, 4999));
	assert_false(doubt_elsewhere(9, 5000));
	assert_false(doubt_elsewhere(10, 1000));
	/*
	 * Process 0 has died and was restarted: it holds no requests, but earlier ones may still
	 * take effect.
	 */
	doubt_enter(0, 2000, MEMORY_MS);
	assert_true(doubt_elsewhere(10, 2000));
	doubt_enter(2, 2000, MEMORY_MS);
	assert_true(doubt_elsewhere(10, 2000 + MEMORY_MS - 1));
	assert_false(doubt_elsewhere(7, 2000 + MEMORY_MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_alone),
					    cmocka_unit_test(test_three) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
