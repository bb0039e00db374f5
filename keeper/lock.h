/*
 * Who is the keeper: a key in Redis that lasts for a lease and is renewed at a third of it. Whoever
 * is not sure to hold it does not hold it. The lock only keeps two keepers from working at once;
 * that a stale one does no harm is the fence's job.
 */
#ifndef KEEPER_LOCK_H
#define KEEPER_LOCK_H

#include "common/redis/client.h"

#define KEEPER_TOKEN_SIZE 27

struct keeper_lock {
	struct redis_client *redis;
	int64_t lease_ms;
	int64_t renewed_ms; /* the moment before the last successful renewal was asked for */
	int held;
	char token[KEEPER_TOKEN_SIZE];
};

void keeper_lock_init(struct keeper_lock *lock, struct redis_client *redis, int64_t lease_ms);

/* Tries to become the keeper; 1 when this process is it now. */
int keeper_lock_take(struct keeper_lock *lock);
/*
 * Renews when it is time to. 0 while it is surely held, else -1 and it is lost. Call before every
 * step.
 */
int keeper_lock_hold(struct keeper_lock *lock);
/* Gives it up, so that another need not wait for the end of the lease. */
void keeper_lock_release(struct keeper_lock *lock);

#endif
