/*
 * What orders have done with receives is in a list in Redis, too (lua/uses.lua), for a PostgreSQL
 * that is put back. After Redis has lost some of it, the keeper fills the list again from
 * PostgreSQL, the newest first.
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

struct uses_list {
	int64_t keep_s, keep_bytes;

	/* Its own. */
	char look_run_id[REDIS_RUN_ID_SIZE]; /* of the process that is compared */
	int64_t look_ms;                     /* since when */
};

/* While elected, in each round: 1: more is to be done, 0: nothing now, or -1: the round is over. */
int uses_list_step(struct uses_list *list, struct keeper_context *context);
