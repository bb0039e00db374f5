/* Sends the requests of a rush and records every answer. */
#pragma once

#include "rush/tally.h"

struct rush_figures {
	int64_t begin_us;    /* the first request, on the monotonic clock */
	int64_t duration_us; /* until the last answer, or the last request ended */
	int64_t cpu_us;      /* of this process during that time */
	uint32_t connected;  /* connections that were open at the start; 0: nothing was sent */
	uint32_t disconnections;
	int stopped;     /* by a signal, before all were sent */
	char error[160]; /* why the last connection ended or could not be opened */
};

/*
 * Returns when every request has ended, or nothing can be sent any more. SIGINT or SIGTERM: no more
 * requests are sent; the second signal ends the process.
 */
void rush_load_run(struct rush_requests *requests, const struct gateway_address *address,
		   int progress, struct rush_figures *figures);

/* How far a rush is, on a terminal, at most ten times a second. `*next_us` is 0 at first. */
void rush_progress_print(const struct rush_requests *requests, int64_t now_us, int64_t *next_us);
