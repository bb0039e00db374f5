/*
 * The pieces of a rebuild: taken slots, gathered and put into Redis under a temporary name by
 * lua/fill.lua. A piece holds Redis for less than a millisecond; what was filled vanishes by itself
 * when it is not put in place. The keeper's thread.
 */
#ifndef KEEPER_REBUILD_SLOT_WRITER_H
#define KEEPER_REBUILD_SLOT_WRITER_H

#include "common/ulid.h"
#include "keeper/context.h"

#define SLOT_WRITER_PIECE 256
#define SLOT_WRITER_LASTS_MS 180000 /* without a further piece: longer than KEEPER_PATIENCE_MS */

enum slot_kind {
	SLOT_ISSUED,        /* rows of PostgreSQL */
	SLOT_ISSUED_SINGLE, /* the same, where no user comes twice */
	SLOT_IN_FLIGHT      /* of the outbox: where the slot is free */
};

struct slot_writer;

struct slot_writer *slot_writer_new(struct keeper_context *context, int64_t coupon,
				    int64_t generation);
void slot_writer_free(struct slot_writer *writer);

/*
 * Of which kind the next ones are, and how many of them may be added at most. Sends what was
 * gathered. 0, or -1.
 */
int slot_writer_begin(struct slot_writer *writer, enum slot_kind what, int64_t room);
/* One slot. 0, or -1 when Redis failed or refused. */
int slot_writer_add(struct slot_writer *writer, int64_t user, int slot, const struct ulid *batch,
		    int index, const char *key);
/* Sends what was gathered. 0, or -1. */
int slot_writer_flush(struct slot_writer *writer);

int64_t slot_writer_added(
	const struct slot_writer *writer); /* since slot_writer_begin(), of what was sent */

#endif
