/*
 * The speed of a distribution. No I/O; times are those of one clock in microseconds.
 *
 * How many requests may be in flight: by Little's law, requests in flight = rate x answer time:
 * beyond what the system needs to be busy, more requests in flight only wait in its queues, and
 * with them those of live clients. So the limit is chosen by the answer time, as TCP chooses its
 * window: it grows by steps while answers come in time, and shrinks by a factor when they do not
 * (additive increase, multiplicative decrease; Chiu and Jain 1989, RFC 5681). In time is within a
 * target over the fastest answer so far: that delay is the signal of background transfers that give
 * way to others (LEDBAT, RFC 6817).
 */
#pragma once

#include <stdint.h>

struct window {
	int64_t target_us;
	uint32_t most;
	int64_t fastest_us; /* answer; 0: none yet */
	double limit;       /* requests in flight */
	int is_slow_start;  /* the delay was small so far: the limit grows by a factor */
	int64_t changed_us; /* answers to earlier requests do not show the effect of it */
	int64_t sum_us;     /* of the answer times since then */
	int64_t answers_n;
	int was_full; /* since then, the limit kept requests back */
};

void window_init(struct window *window, int64_t target_us, uint32_t most);

/* The number of requests that may be sent now, while so many are in flight. */
uint32_t window_room(struct window *window, uint32_t inflight);

/* An answer that was final. */
void window_answer(struct window *window, int64_t sent_us, int64_t now_us);

/* The gateway was `busy` or `rate_limited`: half of the limit. */
void window_busy(struct window *window, int64_t sent_us, int64_t now_us);

/* Nothing is answered: begins anew with one request. */
void window_restart(struct window *window, int64_t now_us);

/* At most so many users a second, in steps of some milliseconds. */
struct pace {
	double step_us; /* from one user to the next; 0: no limit */
	double due_us;  /* when the next one is due */
};

void pace_init(struct pace *pace, int64_t rate); /* users a second; 0: no limit */

/* How many of `n` may be sent now. */
uint32_t pace_room(struct pace *pace, int64_t now_us, uint32_t n);
void pace_sent(struct pace *pace, uint32_t n);

/* How long until the next one is due; 0: it is. */
int64_t pace_wait_us(const struct pace *pace, int64_t now_us);
