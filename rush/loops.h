/*
 * The two ways to put load on the gateway, and what is measured on the way. A closed loop has some
 * connections, each with a pipeline of requests; in an open loop users come whatever the answers
 * do, each over a connection of its own. Every answer is recorded.
 */
#pragma once

#include "rush/crowd.h"

#define RUSH_CALM_S 5 /* after the end of an open loop all must be calm */

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
void rush_closed_loop_run(struct rush_requests *requests, const struct gateway_address *address,
			  int progress, struct rush_figures *figures);

/*
 * Ends the process with a sentence unless this one may have as many descriptors and ports as the
 * plan needs. Raises its own limit of descriptors.
 */
void rush_open_loop_check(const struct rush_plan *plan, const struct gateway_address *address);

/*
 * Returns when the last user has ended. SIGINT or SIGTERM: nobody comes any more; the second signal
 * ends the process.
 */
void rush_open_loop_run(struct rush_crowd *crowd, const struct gateway_address *address,
			int progress, struct rush_figures *figures);

/*
 * Waits until RUSH_CALM_S after the end of the loop. Then the time of a ping over a new connection
 * in microseconds; -1: it had no answer within the time after which users give up.
 */
int64_t rush_open_loop_calm(const struct rush_plan *plan, const struct gateway_address *address);
