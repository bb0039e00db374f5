/*
 * Notices that PostgreSQL was put back to an earlier moment: a number of change_count is below its
 * copy in Redis (common/changes.h). While it is, the keeper holds every coupon in Redis and does
 * nothing else, until couponctl recover has ended.
 *
 * That is asked of the Redis of this PostgreSQL only. While Redis has the id of another
 * installation nothing is changed anywhere. While it has none, having lost its data, it is claimed
 * by the gateways, which know the id from before; by this thread only when none has done so.
 *
 * The keeper's thread.
 */
#ifndef KEEPER_PUT_BACK_H
#define KEEPER_PUT_BACK_H

#include "common/changes.h"
#include "keeper/context.h"

struct put_back {
	struct changes copy;                  /* the caller reads it before put_back_look() */
	enum relation relation;               /* RELATION_UNKNOWN: it was never seen */
	char installation[INSTALLATION_SIZE]; /* of PostgreSQL */
	int installations_n;                  /* another number: PostgreSQL has got another id */
	int64_t unclaimed_ms;                 /* since when Redis has no id; 0: it has one */
	int is_behind;
	int64_t fence; /* of the last elected keeper, by PostgreSQL */
	int64_t hold_due_ms;
};

/*
 * Compares PostgreSQL with the copy, and raises the copy in Redis. 0, and `relation`, `is_behind`
 * and `fence` are set; or -1: Redis or PostgreSQL failed.
 */
int put_back_look(struct put_back *put_back, struct keeper_context *context);
/* Holds every coupon in Redis, when a pass is due. 0, or -1: Redis or the lock is lost. */
int put_back_hold(struct put_back *put_back, struct keeper_context *context);

#endif
