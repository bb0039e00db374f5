/* The window of requests under way, and its rate. */
#include "ctl/distribute/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TARGET_US 20000
#define MOST 10000

/*
 * A system that answers `rate` requests a second in their order, after `base_us` at least. Runs it
 * for a while with as many requests in flight as the window allows. Returns the limit.
 */
struct served {
	struct window window;
	int64_t now_us;
};

static double serve(struct served *served, double rate, int64_t base_us, int64_t duration_us)
{
	int64_t until_us = served->now_us + duration_us;

	while (served->now_us < until_us) {
		uint32_t n = window_room(&served->window, 0);
		int64_t full_us = (int64_t)((double)n * 1e6 / rate),
			took_us = full_us > base_us ? full_us : base_us;

		window_room(&served->window, n);
		for (uint32_t i = 0; i < n; i++)
			window_answer(&served->window, served->now_us, served->now_us + took_us);
		served->now_us += took_us;
	}
	return served->window.limit;
}

static void test_grows_until_the_delay_is_the_target(void **state)
{
	struct served served = { .now_us = 1 };
	double limit;

	(void)state;
	window_init(&served.window, TARGET_US, MOST);
	limit = serve(&served, 50000, 5000, 5000000);
	/* By Little's law 25 ms of 50,000 a second. */
	assert_true(limit > 0.5 * 1250 && limit < 1.5 * 1250);
	/* Live traffic takes nine tenths of the system, and gives them back. */
	limit = serve(&served, 5000, 5000, 5000000);
	assert_true(limit > 16 && limit < 3 * 125);
	limit = serve(&served, 50000, 5000, 5000000);
	assert_true(limit > 0.5 * 1250 && limit < 1.5 * 1250);
}

static void test_has_bounds(void **state)
{
	struct served served = { .now_us = 1 };

	(void)state;
	window_init(&served.window, TARGET_US, MOST);
	assert_true(serve(&served, 1e9, 1000, 10000000) == MOST);
	assert_true(serve(&served, 10, 1000, 10000000000) == 16);
}

static void test_a_slow_system_is_not_taken_for_a_full_one(void **state)
{
	struct served served = { .now_us = 1 };

	(void)state;
	window_init(&served.window, TARGET_US, MOST);
	assert_true(serve(&served, 1e9, 300000, 20000000) > 1000);
}

static void test_does_not_grow_without_need(void **state)
{
	struct window window;

	(void)state;
	window_init(&window, TARGET_US, MOST);
	for (int64_t now_us = 0; now_us < 10000000; now_us += 1000)
		window_answer(&window, now_us, now_us + 1000);
	assert_true(window.limit == 64);
}

static void test_busy_halves_once_for_what_was_in_flight(void **state)
{
	struct window window;

	(void)state;
	window_init(&window, TARGET_US, MOST);
	for (int i = 0; i < 10; i++)
		window_busy(&window, 1000, 2000 + i);
	assert_true(window.limit == 32);
	/* Nor is what was sent before the change an answer to it. */
	window_answer(&window, 1999, 2000);
	window_answer(&window, 1000, 1000000);
	assert_true(window.limit == 32);
	window_busy(&window, 3000, 4000);
	window_busy(&window, 5000, 6000);
	assert_true(window.limit == 16);
	window_restart(&window, 7000);
	assert_int_equal(window_room(&window, 0), 1);
	assert_int_equal(window_room(&window, 1), 0);
}

static void test_pace(void **state)
{
	struct pace pace;
	uint32_t sent = 0;

	(void)state;
	pace_init(&pace, 0);
	assert_int_equal(pace_room(&pace, 0, 7), 7);
	pace_init(&pace, 1000);
	for (int64_t now_us = 0; now_us < 1000000; now_us += 300) {
		uint32_t n = pace_room(&pace, now_us, 100);

		pace_sent(&pace, n);
		sent += n;
	}
	assert_in_range(sent, 999, 1012);
	/* A stall is not made up for. */
	assert_in_range(pace_room(&pace, 10000000, 10000), 1, 11);
	pace_sent(&pace, 20);
	assert_in_range(pace_wait_us(&pace, 10000000), 8000, 11001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows_until_the_delay_is_the_target),
		cmocka_unit_test(test_has_bounds),
		cmocka_unit_test(test_a_slow_system_is_not_taken_for_a_full_one),
		cmocka_unit_test(test_does_not_grow_without_need),
		cmocka_unit_test(test_busy_halves_once_for_what_was_in_flight),
		cmocka_unit_test(test_pace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
