#include "ctl/distribute/window.h"

#include <string.h>

#define FIRST 64          /* requests in flight at first */
#define STEP 64           /* added in each interval within the target */
#define SHRINK 0.7        /* the factor when the target is missed */
#define INTERVAL_US 50000 /* between two changes, at least */

static void limit_set(struct window *window, double limit, int64_t now_us)
{
	if (limit > window->most)
		limit = window->most;
	window->limit = limit < 1 ? 1 : limit;
	window->changed_us = now_us;
	window->sum_us = 0;
	window->answers_n = 0;
	window->was_full = 0;
}

void window_init(struct window *window, int64_t target_us, uint32_t most)
{
	memset(window, 0, sizeof(*window));
	window->target_us = target_us;
	window->most = most;
	window->is_slow_start = 1;
	limit_set(window, FIRST, 0);
}

uint32_t window_room(struct window *window, uint32_t inflight)
{
	if (inflight < (uint32_t)window->limit)
		return (uint32_t)window->limit - inflight;
	window->was_full = 1;
	return 0;
}

void window_answer(struct window *window, int64_t sent_us, int64_t now_us)
{
	int64_t mean_us;

	if (sent_us < window->changed_us)
		return;
	window->sum_us += now_us - sent_us;
	window->answers_n++;
	mean_us = window->sum_us / window->answers_n;
	if (now_us - window->changed_us < INTERVAL_US)
		return;
	if (mean_us > window->target_us) {
		window->is_slow_start = 0;
		limit_set(window, window->limit * SHRINK, now_us);
	} else if (window->was_full) {
		limit_set(window, window->is_slow_start ? window->limit * 2 : window->limit + STEP,
			  now_us);
	} else {
		/* The limit was not the reason for the rate, and its growth would have no cause. */
		limit_set(window, window->limit, now_us);
	}
}

void window_busy(struct window *window, int64_t sent_us, int64_t now_us)
{
	if (sent_us < window->changed_us)
		return;
	window->is_slow_start = 0;
	limit_set(window, window->limit / 2, now_us);
}

void window_restart(struct window *window, int64_t now_us)
{
	window->is_slow_start = 1;
	limit_set(window, 1, now_us);
}
