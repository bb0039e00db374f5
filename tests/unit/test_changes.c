/* Whether PostgreSQL is behind the copy of its numbers. */
#include "common/changes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_equal(void **state)
{
	struct changes both = { .num = { 5, 0, 7 } };

	(void)state;
	assert_int_equal(changes_behind(&both, &both), 0);
}

static void test_ahead(void **state)
{
	struct changes changes = { .num = { 5, 1 } }, copy = { .num = { 4, 0 } };

	(void)state;
	assert_int_equal(changes_behind(&changes, &copy), 0);
}

/* What one stripe is ahead does not make up for another. */
static void test_behind(void **state)
{
	struct changes changes = { .num = { 100, 3 } }, copy = { .num = { 4, 5 } };

	(void)state;
	assert_int_equal(changes_behind(&changes, &copy), 2);
	changes.num[CHANGES_STRIPES - 1] = 0;
	copy.num[CHANGES_STRIPES - 1] = 1;
	assert_int_equal(changes_behind(&changes, &copy), 3);
}

/* An empty database, and a Redis that lost its data. */
static void test_nothing(void **state)
{
	struct changes none = { .num = { 0 } }, some = { .num = { [7] = 9 } };

	(void)state;
	assert_int_equal(changes_behind(&none, &some), 9);
	assert_int_equal(changes_behind(&some, &none), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_behind),
		cmocka_unit_test(test_nothing),
	};

	return cmocka_run_group_tests_name("changes", tests, NULL, NULL);
}
