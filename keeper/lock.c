#include "keeper/lock.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/message/ulid.h"
#include "embed.h"

#include <string.h>

#define LEASE_MOST_MS "600000" /* the maximum of COUPON_KEEPER_LEASE_MS */

void keeper_lock_init(struct keeper_lock *lock, struct redis_client *redis, int64_t lease_ms)
{
	struct ulid token;

	memset(lock, 0, sizeof(*lock));
	lock->redis = redis;
	lock->lease_ms = lease_ms;
	ulid_new(&token, clock_wall_ms());
	ulid_format(&token, lock->token);
}

/* The number that the script, on the lock's key and with its token, replied; 0: it failed. */
static int64_t script_run(struct keeper_lock *lock, const char *script, int argc, const char **argv)
{
	redisReply *reply = redis_client_eval(lock->redis, script, 1,
					      (const char *[]){ KEEPER_LOCK_KEY }, argc, argv);
	int64_t number = reply ? redis_reply_number(reply) : 0;

	if (reply)
		freeReplyObject(reply);
	return number;
}

int keeper_lock_take(struct keeper_lock *lock)
{
	char lease[NUMBER_SIZE];
	const char *argv[] = { lock->token, number_text(lock->lease_ms, lease), LEASE_MOST_MS };
	int64_t now_ms = clock_monotonic_ms();

	lock->until_ms = script_run(lock, lua_keeper_take, 3, argv);
	lock->held = lock->until_ms > 0;
	lock->renewed_ms = now_ms;
	return lock->held;
}

static int renew(struct keeper_lock *lock)
{
	char lease[NUMBER_SIZE];
	const char *argv[] = { lock->token, number_text(lock->lease_ms, lease) };
	int64_t until_ms = script_run(lock, lua_keeper_renew, 2, argv);

	if (until_ms > 0) {
		lock->until_ms = until_ms;
		lock->renewals++;
	}
	return until_ms > 0;
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
	const char *argv[] = { lock->token };

	if (!lock->held)
		return;
	lock->held = 0;
	script_run(lock, lua_keeper_release, 1, argv);
}
