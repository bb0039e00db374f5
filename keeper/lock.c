#include "keeper/lock.h"

#include "common/clock.h"
#include "common/log/log.h"

#include <string.h>

void keeper_lock_init(struct keeper_lock *lock, struct redis_client *redis, int64_t lease_ms)
{
	memset(lock, 0, sizeof(*lock));
	lock->redis = redis;
	lock->lease_ms = lease_ms;
	redis_lease_init(&lock->lease, redis, 0);
}

static enum lock_reply renew(struct keeper_lock *lock)
{
	enum lock_reply reply = redis_lease_renew(&lock->lease);

	if (reply == LOCK_REPLY_YES)
		lock->writes += REDIS_LEASE_RENEWAL_WRITES;
	return reply;
}

int keeper_lock_take(struct keeper_lock *lock)
{
	const struct lock_request request = { KEEPER_LOCK_NAME, LOCK_EXCLUSIVE, lock->lease_ms };
	enum lock_reply reply = LOCK_REPLY_NO;
	int64_t unused;

	lock->renewed_ms = clock_monotonic_ms();
	if (lock->may_own)
		reply = renew(lock);
	/* Without an answer it may have its lease still, for whose end a new request would wait. */
	if (reply == LOCK_REPLY_NO) {
		redis_lease_begin(&lock->lease, &request);
		reply = redis_lease_take(&lock->lease, 0, &unused);
		lock->may_own = reply != LOCK_REPLY_NO;
	}
	lock->held = reply == LOCK_REPLY_YES;
	return lock->held;
}

int keeper_lock_hold(struct keeper_lock *lock)
{
	int64_t now_ms = clock_monotonic_ms();

	if (!lock->held)
		return -1;
	if (now_ms - lock->renewed_ms < lock->lease_ms / 3)
		return 0;
	lock->held = renew(lock) == LOCK_REPLY_YES;
	if (lock->held) {
		lock->renewed_ms = now_ms;
		return 0;
	}
	log_warn("keeper_lost", LOG_I("since_renewal_ms", now_ms - lock->renewed_ms));
	return -1;
}

void keeper_lock_release(struct keeper_lock *lock)
{
	if (!lock->held)
		return;
	lock->held = 0;
	redis_lease_release(&lock->lease);
}
