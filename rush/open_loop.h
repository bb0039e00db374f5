/* Lets the users of an open loop come, each over a connection of its own. */
#pragma once

#include "rush/crowd.h"
#include "rush/load.h"

#define RUSH_CALM_S 5 /* after the end of an open loop all must be calm */

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
