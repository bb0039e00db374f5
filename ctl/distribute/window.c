#include "ctl/distribute/window.h"

#include <string.h>

#define FIRST 64          /* requests in flight at first */
#define LEAST 16          /* however slow the answers are: one script call, not one request */
#define GROW 1.5          /* the factor of the slow start */
#define STEP 128          /* added in each interval after it */
#define SHRINK 0.7        /* the factor when the target is missed */
#define INTERVAL_US 50000 /* between two changes, at least */
#define BURST_US 10000    /* of the rate: what was missed is made up for, but for no longer */

static void limit_set(struct window *window, double limit, int64_t now_us)
{
	if (limit > window->most)
		limit = window->most;
	window->limit = limit;
	window->changed_us = now_us;
	window->sum_us = 0;
	window->answers_n = 0;
	window->was_full = 0;
}

static void shrink(struct window *window, double factor, int64_t now_us)
{
	double least = window->limit < LEAST ? window->limit : LEAST,
	       limit = window->limit * factor;

	window->is_slow_start = 0;
	limit_set(window, limit < least ? least : limit, now_us);
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
	int64_t took_us = now_us - sent_us, delay_us;
	double limit = window->limit;

	if (window->fastest_us == 0 || took_us < window->fastest_us)
		window->fastest_us = took_us;
	if (sent_us < window->changed_us)
		return;
	window->sum_us += took_us;
	window->answers_n++;
	if (now_us - window->changed_us < INTERVAL_US)
		return;
	delay_us = window->sum_us / window->answers_n - window->fastest_us;
	if (delay_us > window->target_us) {
		shrink(window, SHRINK, now_us);
		return;
	}
	if (delay_us > window->target_us / 2)
		window->is_slow_start = 0;
	/* If the limit was not reached, growth would have no cause. */
	if (window->was_full)
		limit = window->is_slow_start ? limit * GROW : limit + STEP;
	limit_set(window, limit, now_us);
}

void window_busy(struct window *window, int64_t sent_us, int64_t now_us)
{
	if (sent_us >= window->changed_us)
		shrink(window, 0.5, now_us);
}

void window_restart(struct window *window, int64_t now_us)
{
	window->is_slow_start = 1;
	limit_set(window, 1, now_us);
}

void pace_init(struct pace *pace, int64_t rate)
{
	*pace = (struct pace){ .step_us = rate ? 1e6 / (double)rate : 0 };
}

uint32_t pace_room(struct pace *pace, int64_t now_us, uint32_t n)
{
	double room;

	if (pace->step_us == 0)
		return n;
	if (pace->due_us < (double)(now_us - BURST_US))
		pace->due_us = (double)(now_us - BURST_US);
	if (pace->due_us > (double)now_us)
		return 0;
	room = ((double)now_us - pace->due_us) / pace->step_us + 1;
	return room < (double)n ? (uint32_t)room : n;
}

void pace_sent(struct pace *pace, uint32_t n)
{
	pace->due_us += pace->step_us * (double)n;
}

int64_t pace_wait_us(const struct pace *pace, int64_t now_us)
{
	double left_us = pace->due_us - (double)now_us;

	return pace->step_us > 0 && left_us > 0 ? (int64_t)left_us + 1 : 0;
}
