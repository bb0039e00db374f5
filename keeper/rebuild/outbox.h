/*
 * Reads the receives in a coupon's outbox for a rebuild: receives in flight whose users, slots and
 * keys Redis still has.
 */
#ifndef KEEPER_REBUILD_OUTBOX_H
#define KEEPER_REBUILD_OUTBOX_H

#include "keeper/rebuild/slot_writer.h"
#include "keeper/rebuild/snapshot.h"

/*
 * Adds to `writer` (begun with SLOT_IN_FLIGHT) every receive of the outbox that was not rejected,
 * and raises the highest numbers of snapshot->generations to those of the messages. 0, or -1 when
 * Redis or PostgreSQL failed.
 */
int rebuild_outbox(struct keeper_context *context, struct snapshot *snapshot,
		   struct slot_writer *writer);

#endif
