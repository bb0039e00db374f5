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

/* What Redis has is not known while it refuses; only a key of another type is no copy. */
static void test_refused_replies(void **state)
{
	char loading[] = "LOADING Redis is loading the dataset in memory",
	     forbidden[] = "NOPERM No permissions to access a key",
	     other[] = "WRONGTYPE Operation against a key holding the wrong kind of value";
	redisReply reply = { .type = REDIS_REPLY_ERROR };
	struct changes copy = { .num = { 5 } };

	(void)state;
	reply.str = loading;
	assert_int_equal(changes_copy_take(&copy, &reply), -1);
	reply.str = forbidden;
	assert_int_equal(changes_copy_take(&copy, &reply), -1);
	reply.str = other;
	assert_int_equal(changes_copy_take(&copy, &reply), 0);
	assert_int_equal(copy.num[0], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal),           cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_behind),          cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_refused_replies),
	};

	return cmocka_run_group_tests_name("changes", tests, NULL, NULL);
}
