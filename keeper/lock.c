#include "keeper/lock.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/message/ulid.h"
#include "embed.h"

#include <string.h>

#define LEASE_MOST_MS "600000" /* the maximum of COUPON_KEEPER_LEASE_MS */
#define KEY_RENEWAL_WRITES 1

void keeper_lock_init(struct keeper_lock *lock, struct redis_client *redis, int64_t lease_ms)
{
	struct ulid token;

	memset(lock, 0, sizeof(*lock));
	lock->redis = redis;
	lock->lease_ms = lease_ms;
	redis_lease_init(&lock->lease, redis, 0);
	ulid_new(&token, clock_wall_ms());
	ulid_format(&token, lock->token);
}

/* The number that the script, on the key and with its token, replied; 0: it failed. */
static int64_t script_run(struct keeper_lock *lock, const char *script, int argc, const char **argv)
{
	redisReply *reply = redis_client_eval(lock->redis, script, 1,
					      (const char *[]){ KEEPER_LOCK_KEY }, argc, argv);
	int64_t number = reply ? redis_reply_number(reply) : 0;

	if (reply)
		freeReplyObject(reply);
	return number;
}

static int64_t key_take(struct keeper_lock *lock)
{
	char lease[NUMBER_SIZE];
	const char *argv[] = { lock->token, number_text(lock->lease_ms, lease), LEASE_MOST_MS };

	return script_run(lock, lua_keeper_take, 3, argv);
}

static int64_t key_renew(struct keeper_lock *lock)
{
	char lease[NUMBER_SIZE];
	const char *argv[] = { lock->token, number_text(lock->lease_ms, lease) };

	return script_run(lock, lua_keeper_renew, 2, argv);
}

static void key_release(struct keeper_lock *lock)
{
	const char *argv[] = { lock->token };

	script_run(lock, lua_keeper_release, 1, argv);
}

/* Both are held: the key until then. */
static void until_set(struct keeper_lock *lock, int64_t key_until_ms)
{
	lock->until_ms = key_until_ms < lock->lease.until_ms ? key_until_ms : lock->lease.until_ms;
}

static int renew(struct keeper_lock *lock)
{
	int64_t key_until_ms = key_renew(lock);

	if (key_until_ms == 0 || redis_lease_renew(&lock->lease) != LOCK_REPLY_YES)
		return 0;
	until_set(lock, key_until_ms);
	lock->writes += KEY_RENEWAL_WRITES + REDIS_LEASE_RENEWAL_WRITES;
	return 1;
}

/*
 * Redis was away for longer than a renewal may take, but the leases that this worker had have not
 * ended: nobody else was elected. Otherwise it gives up what is left of them.
 */
static int is_still_own(struct keeper_lock *lock)
{
	if (lock->lease.grants == 0)
		return 0;
	if (renew(lock))
		return 1;
	redis_lease_release(&lock->lease);
	key_release(lock);
	return 0;
}

int keeper_lock_take(struct keeper_lock *lock)
{
	const struct lock_request request = { KEEPER_LOCK_NAME, LOCK_EXCLUSIVE, lock->lease_ms };
	int64_t key_until_ms, unused;

	lock->held = 0;
	lock->renewed_ms = clock_monotonic_ms();
	if (is_still_own(lock)) {
		lock->held = 1;
		return 1;
	}
	lock->until_ms = 0;
	key_until_ms = key_take(lock);
	if (key_until_ms == 0)
		return 0;
	redis_lease_begin(&lock->lease, &request);
	if (redis_lease_take(&lock->lease, 0, &unused) != LOCK_REPLY_YES) {
		key_release(lock);
		return 0;
	}
	until_set(lock, key_until_ms);
	lock->held = 1;
	return 1;
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
	if (!lock->held)
		return;
	lock->held = 0;
	redis_lease_release(&lock->lease);
	key_release(lock);
}
