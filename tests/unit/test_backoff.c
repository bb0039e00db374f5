/* Waits between attempts: they grow, have jitter, and stay within their limits. */
#include "common/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_bounds(void **state)
{
	(void)state;
	for (int round = 0; round < 200; round++) {
		struct backoff backoff = { 0 };
		int64_t longest = BACKOFF_FIRST_MS;

		for (int failure = 0; failure < 12; failure++) {
			int64_t wait = backoff_ms(&backoff);

			assert_in_range(wait, longest / 2, longest);
			longest = longest * 2 > BACKOFF_MOST_MS ? BACKOFF_MOST_MS : longest * 2;
		}
	}
}

static void test_reset_and_jitter(void **state)
{
	struct backoff backoff = { 0 };
	int64_t least = INT64_MAX, most = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		int64_t wait;

		for (int failure = 0; failure < 8; failure++)
			wait = backoff_ms(&backoff);
		wait = backoff_ms(&backoff);
		least = wait < least ? wait : least;
		most = wait > most ? wait : most;
		backoff_reset(&backoff);
		assert_in_range(backoff_ms(&backoff), BACKOFF_FIRST_MS / 2, BACKOFF_FIRST_MS);
		backoff_reset(&backoff);
	}
	assert_true(most - least > BACKOFF_MOST_MS / 4);
}

static void test_connections_are_tried_often_at_first(void **state)
{
	struct backoff backoff = { 0 };
	int64_t longest = BACKOFF_CONNECT_MS;

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < BACKOFF_CONNECT_TRIES; i++)
			assert_in_range(backoff_connect_ms(&backoff), BACKOFF_CONNECT_MS / 2,
					BACKOFF_CONNECT_MS);
		if (round == 0)
			backoff_reset(&backoff);
	}
	for (int i = 0; i < 12; i++) {
		assert_in_range(backoff_connect_ms(&backoff), longest / 2, longest);
		longest = longest * 2 > BACKOFF_MOST_MS ? BACKOFF_MOST_MS : longest * 2;
	}
}

/* One reason is told once a minute, another one after ten seconds, any after a success. */
static void test_failures_are_told_once(void **state)
{
	struct backoff backoff = { 0 };
	int n = 0;

	(void)state;
	for (int64_t now_ms = 1; now_ms < 2 * BACKOFF_TELL_MS; now_ms += 500)
		n += backoff_tells(&backoff, "refused", now_ms);
	assert_int_equal(n, 2);
	backoff_reset(&backoff);
	for (int64_t now_ms = 1; now_ms < BACKOFF_TELL_MS; now_ms += 500)
		n += backoff_tells(&backoff, now_ms % 1000 == 1 ? "a; b" : "b; a", now_ms);
	assert_in_range(n, 2 + 2, 2 + BACKOFF_TELL_MS / BACKOFF_TELL_OTHER_MS);
	assert_false(backoff_tells(&backoff, "c", BACKOFF_TELL_MS));
	backoff_reset(&backoff);
	assert_true(backoff_tells(&backoff, "c", BACKOFF_TELL_MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_reset_and_jitter),
		cmocka_unit_test(test_connections_are_tried_often_at_first),
		cmocka_unit_test(test_failures_are_told_once),
	};

	return cmocka_run_group_tests_name("backoff", tests, NULL, NULL);
}
