/*
 * Whether there is so much of one kind of load that the others do well to gather: each message,
 * transaction and script of theirs costs about the same with one request in it or with many.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define LOAD_FULL 1000 /* receives in LOAD_MS: the load is full */
#define LOAD_MS 100

struct load {
	int64_t since_ms; /* when the last LOAD_MS began */
	size_t receives;  /* since then */
	int was_full;     /* in the LOAD_MS before */
};

/* Whether it is full now. */
static inline int load_is_full(struct load *load, int64_t now_ms)
{
	int64_t past_ms = now_ms - load->since_ms;

	if (past_ms >= LOAD_MS) {
		load->was_full = load->receives >= LOAD_FULL && past_ms < 2 * LOAD_MS;
		load->since_ms = now_ms;
		load->receives = 0;
	}
	return load->was_full;
}
