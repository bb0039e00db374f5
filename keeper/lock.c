#include "keeper/lock.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/ulid.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOCK_KEY "couponmq:keeper"
#define LEASE_MOST_MS "600000" /* of any worker: the most that COUPON_KEEPER_LEASE_MS may be */

void keeper_lock_init(struct keeper_lock *lock, struct keeper_redis *redis, int64_t lease_ms)
{
	struct ulid token;

	memset(lock, 0, sizeof(*lock));
	lock->redis = redis;
	lock->lease_ms = lease_ms;
	ulid_new(&token, clock_wall_ms());
	ulid_format(&token, lock->token);
}

static int integer_is_one(redisReply *reply)
{
	int one = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;

	if (reply)
		freeReplyObject(reply);
	return one;
}

int keeper_lock_take(struct keeper_lock *lock)
{
	char lease[24];
	const char *eval[] = { "EVAL",      lua_keeper_take, "1",          LOCK_KEY,
			       lock->token, lease,           LEASE_MOST_MS };
	int64_t now_ms = clock_monotonic_ms();

	snprintf(lease, sizeof(lease), "%" PRId64, lock->lease_ms);
	lock->held = integer_is_one(keeper_redis_call(lock->redis, 7, eval, NULL));
	lock->renewed_ms = now_ms;
	return lock->held;
}

static int renew(struct keeper_lock *lock)
{
	char lease[24];
	const char *eval[] = { "EVAL", lua_keeper_renew, "1", LOCK_KEY, lock->token, lease };

	snprintf(lease, sizeof(lease), "%" PRId64, lock->lease_ms);
	return integer_is_one(keeper_redis_call(lock->redis, 6, eval, NULL));
}

int keeper_lock_hold(struct keeper_lock *lock)
{
	int64_t now_ms = clock_monotonic_ms();

	if (!lock->held)
		return -1;
	if (now_ms - lock->renewed_ms < lock->lease_ms / 3)
		return 0;
	lock->held = renew(lock);
	if (lock->held) {
		lock->renewed_ms = now_ms;
		return 0;
	}
	log_warn("keeper_lost", LOG_I("since_renewal_ms", now_ms - lock->renewed_ms));
	return -1;
}

void keeper_lock_release(struct keeper_lock *lock)
{
	const char *eval[] = { "EVAL", lua_keeper_release, "1", LOCK_KEY, lock->token };
	redisReply *reply;

	if (!lock->held)
		return;
	lock->held = 0;
	reply = keeper_redis_call(lock->redis, 5, eval, NULL);
	if (reply)
		freeReplyObject(reply);
}
