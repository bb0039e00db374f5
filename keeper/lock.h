/*
 * The keeper's lock: the lock "keeper" of lock/, in Redis. Its lease is renewed after a third of
 * it, by the keeper's thread, so that one that hangs loses it, and over the connection of the
 * keeper's scripts. A worker that cannot verify that it holds the lock treats it as lost. The lock
 * prevents two keepers from working at the same time. The writes of an earlier keeper fail: each
 * script compares the fence, and refuses to run outside the times within which this worker has held
 * the lock.
 */
#ifndef KEEPER_LOCK_H
#define KEEPER_LOCK_H

#include "lock/redis_lease.h"

#define KEEPER_LOCK_NAME "keeper"

struct keeper_lock {
	struct redis_client *redis;
	struct redis_lease lease;
	int64_t lease_ms;
	int64_t renewed_ms; /* just before the last renewal that succeeded */
	int64_t writes;     /* to Redis, by its renewals */
	int held;
	int may_own; /* the lease was granted, or nobody knows: no answer came */
};

void keeper_lock_init(struct keeper_lock *lock, struct redis_client *redis, int64_t lease_ms);

/*
 * Tries to take the lock. 1 when this process holds it. One that could not be renewed in time,
 * because Redis was away, is this worker's again if its lease has not ended.
 */
int keeper_lock_take(struct keeper_lock *lock);
/*
 * Renews the lock when due. 0 while it is held, -1 when it is lost. Called before every step.
 */
int keeper_lock_hold(struct keeper_lock *lock);
/* Releases the lock, so that another worker can take it before the lease expires. */
void keeper_lock_release(struct keeper_lock *lock);

#endif
