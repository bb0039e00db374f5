/* The commands to Redis about batches that have come to their end, and the replies. */
#ifndef WORKER_OUTBOX_COMMANDS_H
#define WORKER_OUTBOX_COMMANDS_H

#include "common/changes.h"
#include "common/redis/client.h"
#include "worker/outbox/entries.h"

#define COMMANDS_SHA_SIZE 41
#define COMMANDS_DEAD_S 2592000 /* 30 days: the set of dead ones expires so long after the last */

/*
 * Loads lua/settled.lua, each time, since it may have been flushed, and copies the numbers: in a
 * round trip of its own, so that nothing is removed should Redis refuse it. 0, or -1: also when
 * Redis does not belong to this installation.
 */
int commands_prepare(struct redis_client *redis, const struct changes *changes,
		     char sha[COMMANDS_SHA_SIZE]);

/*
 * Appends the command for `*at` and those of the same coupon that follow it, and moves `*at` behind
 * them. Returns how many they are.
 */
size_t commands_append_settled(struct redis_client *redis, const char *sha,
			       const struct entry **at);
size_t commands_append_dead(struct redis_client *redis, const struct entry **at);

/*
 * The number that Redis replied to such a command; -1: it refused, or the connection is lost.
 */
int64_t commands_reply_settled(struct redis_client *redis);
int64_t commands_reply_dead(struct redis_client *redis);

#endif
