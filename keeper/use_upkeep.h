/*
 * What the keeper does for uses, which are what orders have done with receives. Holds end, refusals
 * are forgotten, and campaigns whose budget is used up are paused until there is room again.
 *
 * Uses are in a list in Redis, too (lua/uses.lua), for a PostgreSQL that is put back. After Redis
 * has lost some of it, the keeper fills the list again from PostgreSQL, the newest first.
 *
 * A restart of Redis loses, if anything, what was written last. So in a new process the end of the
 * list is compared with the latest operations of PostgreSQL: if one of them is not there, and no
 * worker adds it within some time, the list is filled anew. It is the same when the list is gone,
 * or all that Redis tells of it.
 *
 * While Redis is nearly full, the oldest of the list is removed (lua/uses_trim.lua). The keeper's
 * thread.
 */
#pragma once

#include "keeper/context.h"

struct use_upkeep {
	int64_t keep_bytes; /* COUPON_KEEP_USES_BYTES */

	/* Private. */
	char look_run_id[REDIS_RUN_ID_SIZE]; /* of the process that is compared */
	int64_t look_ms;                     /* since when */
};

/*
 * The part of a round of the elected keeper: at most so much that coupons do not wait for long.
 * What it changes of a campaign is a change of terms, which the sweep brings to Redis. What one
 * campaign refuses is tried again in the next round. 0, or -1 when the round is over.
 */
int use_upkeep_round(struct use_upkeep *upkeep, struct keeper_context *context);
