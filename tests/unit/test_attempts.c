/* Wrong exchange codes: who waits, and for how long. */
#include "gateway/redeem/attempts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct attempts *attempts;
static const struct user_id none;

static int setup(void **state)
{
	(void)state;
	attempts = attempts_new(
		&(struct attempts_limits){ .free_max = 3, .wrong_max = 10, .users_max = 4 });
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	attempts_free(attempts);
	return 0;
}

static struct user_id user(int64_t number)
{
	return user_id_of_number(number);
}

static int64_t wait_of(int64_t number, int64_t now_ms)
{
	struct user_id id = user(number);

	return attempts_wait_ms(attempts, &id, 0, now_ms);
}

static void wrong(int64_t number, int64_t now_ms)
{
	struct user_id id = user(number);

	attempts_wrong(attempts, &id, 0, now_ms);
}

static void test_a_few_cost_nothing(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(wait_of(1, 1000), 0);
		wrong(1, 1000);
	}
	assert_int_equal(wait_of(1, 1000), 0);
	wrong(1, 1000);
	assert_int_equal(wait_of(1, 1000), 1000);
	assert_int_equal(wait_of(1, 1999), 1);
	assert_int_equal(wait_of(1, 2000), 0);
	assert_int_equal(wait_of(2, 1000), 0);
}

static void test_each_wait_is_twice_as_long_up_to_an_hour(void **state)
{
	int64_t now_ms = 1000, expected = 1000;

	(void)state;
	for (int i = 0; i < 3; i++)
		wrong(1, now_ms);
	for (int i = 0; i < 20; i++) {
		wrong(1, now_ms);
		assert_int_equal(wait_of(1, now_ms), expected);
		now_ms += expected;
		assert_int_equal(wait_of(1, now_ms), 0);
		expected = expected * 2 < 3600000 ? expected * 2 : 3600000;
	}
}

static void test_an_hour_later_all_is_forgotten(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		wrong(1, 1000);
	assert_int_equal(wait_of(1, 1000), 2000);
	wrong(1, 3000 + ATTEMPTS_FORGET_MS);
	assert_int_equal(wait_of(1, 3000 + ATTEMPTS_FORGET_MS), 4000);
	wrong(1, 8000 + 2 * ATTEMPTS_FORGET_MS);
	assert_int_equal(wait_of(1, 8000 + 2 * ATTEMPTS_FORGET_MS), 0);
}

static void test_of_all_users_together(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(wait_of(100, 5000), 0);
		wrong(i, 5000 + i);
	}
	assert_int_equal(wait_of(100, 5600), 400);
	assert_int_equal(attempts_wait_ms(attempts, &none, 3, 5600), 0);
	assert_int_equal(wait_of(100, 6000), 0);
}

static void test_the_one_who_was_wrong_longest_ago_is_forgotten(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		wrong(1, 1000);
	for (int i = 2; i < 5; i++)
		wrong(i, 1000);
	assert_int_equal(wait_of(1, 1000), 1000);
	wrong(5, 1000);
	assert_int_equal(wait_of(1, 1000), 0);
}

static void test_without_limits(void **state)
{
	(void)state;
	attempts_free(attempts);
	attempts = attempts_new(&(struct attempts_limits){ .users_max = 4 });
	for (int i = 0; i < 10000; i++)
		wrong(1, 1000);
	assert_int_equal(wait_of(1, 1000), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_few_cost_nothing),
		TEST(test_each_wait_is_twice_as_long_up_to_an_hour),
		TEST(test_an_hour_later_all_is_forgotten),
		TEST(test_of_all_users_together),
		TEST(test_the_one_who_was_wrong_longest_ago_is_forgotten),
		TEST(test_without_limits),
	};

	return cmocka_run_group_tests_name("attempts", tests, NULL, NULL);
}
