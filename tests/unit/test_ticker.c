/* The ticker of a thread. */
#include "common/serve/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct waiting {
	struct ticker *ticker;
	int left; /* what waits: one less with each tick */
	int ticks;
	int again; /* something is added within the last tick */
};

static int on_tick(void *context)
{
	struct waiting *waiting = context;

	waiting->ticks++;
	waiting->left--;
	if (waiting->left == 0 && waiting->again) {
		waiting->again = 0;
		waiting->left++;
		ticker_start(waiting->ticker);
	}
	return waiting->left > 0;
}

/* The loop ends when no timer runs. */
static void test_runs_while_something_waits(void **state)
{
	struct event_base *base = event_base_new();
	struct waiting waiting = { .left = 3 };

	(void)state;
	waiting.ticker = ticker_new(base, 1, on_tick, &waiting);
	event_base_dispatch(base);
	assert_int_equal(waiting.ticks, 0);
	ticker_start(waiting.ticker);
	ticker_start(waiting.ticker);
	event_base_dispatch(base);
	assert_int_equal(waiting.ticks, 3);
	waiting.left = 1;
	waiting.again = 1;
	ticker_start(waiting.ticker);
	event_base_dispatch(base);
	assert_int_equal(waiting.ticks, 5);
	ticker_start(waiting.ticker);
	ticker_free(waiting.ticker);
	event_base_dispatch(base);
	assert_int_equal(waiting.ticks, 5);
	event_base_free(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs_while_something_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
