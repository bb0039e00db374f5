/*
 * The pieces of a rebuild: taken slots, gathered and put into Redis under a temporary name by
 * lua/fill.lua. A piece holds Redis for less than a millisecond; what was filled vanishes by itself
 * when it is not put in place. The keeper's thread.
 */
#ifndef KEEPER_REBUILD_FILL_H
#define KEEPER_REBUILD_FILL_H

#include "common/ulid.h"
#include "keeper/context.h"

#define FILL_PIECE 256
#define FILL_LASTS_MS 180000 /* without a further piece: longer than KEEPER_PATIENCE_MS */

enum fill_what {
	FILL_ISSUED, /* rows of PostgreSQL */
	FILL_SINGLE, /* the same, where no user comes twice */
	FILL_FLIGHT  /* of the outbox: where the slot is free */
};

struct fill;

struct fill *fill_new(struct keeper_view *view, int64_t coupon, int64_t generation);
void fill_free(struct fill *fill);

/* The two keys that it fills. */
const char *fill_users(const struct fill *fill);
const char *fill_known(const struct fill *fill);

/*
 * Of which kind the next ones are, and how many of them may be added at most. Sends what was
 * gathered. 0, or -1.
 */
int fill_begin(struct fill *fill, enum fill_what what, int64_t room);
/* One slot. 0, or -1 when Redis failed or refused. */
int fill_add(struct fill *fill, int64_t user, int slot, const struct ulid *batch, int index,
	     const char *key);
/* Sends what was gathered. 0, or -1. */
int fill_flush(struct fill *fill);

int64_t fill_added(const struct fill *fill); /* since fill_begin(), of what was sent */

#endif
