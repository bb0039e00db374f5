/*
 * The keeper's lock: a key in Redis that lasts for a lease and is renewed at a third of it. A
 * worker that cannot be certain to hold it does not hold it. The lock keeps two keepers from
 * working at the same time; the fence makes the writes of an earlier keeper fail.
 */
#ifndef KEEPER_LOCK_H
#define KEEPER_LOCK_H

#include "common/redis/client.h"

#define KEEPER_TOKEN_SIZE 27

struct keeper_lock {
	struct redis_client *redis;
	int64_t lease_ms;
	int64_t renewed_ms; /* just before the last renewal that succeeded */
	int held;
	char token[KEEPER_TOKEN_SIZE];
};

void keeper_lock_init(struct keeper_lock *lock, struct redis_client *redis, int64_t lease_ms);

/* Tries to become the keeper; 1 when this process is the keeper now. */
int keeper_lock_take(struct keeper_lock *lock);
/*
 * Renews it when due. 0 while it is certainly held, else -1 and it is lost. To be called before
 * every step.
 */
int keeper_lock_hold(struct keeper_lock *lock);
/* Gives it up, so that another need not wait for the end of the lease. */
void keeper_lock_release(struct keeper_lock *lock);

#endif
