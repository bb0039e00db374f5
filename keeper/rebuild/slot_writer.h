/*
 * Writes the taken slots of a rebuild into Redis, in pieces, under a temporary name (lua/fill.lua).
 * A piece occupies Redis for less than a millisecond. The filled keys expire unless they are put in
 * place. The keeper's thread.
 *
 * With appendfsync always Redis replies after its disk has the piece, and waits for the disk once
 * for what all connections have sent meanwhile. So the pieces of a coupon with many rows go over
 * several connections, each with several pieces under way.
 */
#ifndef KEEPER_REBUILD_SLOT_WRITER_H
#define KEEPER_REBUILD_SLOT_WRITER_H

#include "common/message/receive.h"
#include "keeper/context.h"

#define SLOT_WRITER_PIECE 256
#define SLOT_WRITER_LASTS_MS 180000 /* without a further piece: longer than KEEPER_PATIENCE_MS */

enum slot_kind {
	SLOT_ISSUED,        /* rows of PostgreSQL */
	SLOT_ISSUED_SINGLE, /* the same, with one slot per user */
	SLOT_IN_FLIGHT      /* receives in flight: skipped if the slot is taken */
};

struct slot_writer;

struct slot_writer *slot_writer_new(struct keeper_context *context, int64_t coupon,
				    int64_t generation);
void slot_writer_free(struct slot_writer *writer);

/*
 * Sets the kind of the following slots and the largest number of them to add. Sends the buffered
 * slots first. 0, or -1.
 */
int slot_writer_begin(struct slot_writer *writer, enum slot_kind what, int64_t room);
/* Adds one slot. 0, or -1 when Redis failed, or refused this or an earlier piece. */
int slot_writer_add(struct slot_writer *writer, const struct user_id *user, int slot,
		    const struct ulid *batch, int index, const char *tail);
/* Sends the buffered slots, and waits for all replies. 0, or -1. */
int slot_writer_flush(struct slot_writer *writer);

/* Whether as many slots were sent as slot_writer_begin() allows. */
int slot_writer_is_full(const struct slot_writer *writer);
int64_t slot_writer_added(const struct slot_writer *writer); /* sent since slot_writer_begin() */

#endif
