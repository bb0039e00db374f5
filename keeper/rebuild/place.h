/*
 * lua/place.lua: a coupon comes into Redis under a new generation, with its stock computed. What
 * slot_writer.h filled under that generation comes in place. The keeper's thread.
 */
#ifndef KEEPER_REBUILD_PLACE_H
#define KEEPER_REBUILD_PLACE_H

#include "keeper/rebuild/snapshot.h"

#include "keeper/context.h"

struct placing {
	const struct coupon_row *row;
	int64_t generation; /* the new one */
	int64_t issued;     /* PostgreSQL's rows, all of them filled */
	int64_t late;       /* late outcomes that are counted in this */
	const struct snapshot_generation *older;
	size_t older_n; /* at most SNAPSHOT_GENERATIONS_MAX */
};

/* What the script replied; NULL: the call failed. */
redisReply *place_run(struct keeper_context *context, const struct placing *placing);
/* Whether the coupon is in place: then `reply` has the five elements of the script. */
int place_is_done(const redisReply *reply);

#endif
