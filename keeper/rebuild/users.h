/*
 * Reads from the users' hash, for a rebuild, the slots of receives in flight. A message in the
 * queue may no longer be in the outbox, but a repeated request must not get a second slot.
 */
#ifndef KEEPER_REBUILD_USERS_H
#define KEEPER_REBUILD_USERS_H

#include "keeper/rebuild/slot_writer.h"
#include "keeper/rebuild/snapshot.h"

/*
 * Adds to `writer` (begun with SLOT_IN_FLIGHT) every slot whose receive was not rejected, however
 * old it is, until the writer is full: a message may wait in the queue for any time. fill.lua skips
 * those that are issued. A missing or malformed hash adds none. 0, or -1 when Redis or PostgreSQL
 * failed.
 */
int rebuild_users(struct keeper_context *context, struct snapshot *snapshot,
		  struct slot_writer *writer);

#endif
