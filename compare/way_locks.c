/*
 * The ways with a lock.
 *
 * 5. A lock around read-then-write. First the recipes in Redis that were passed on for years: they
 * are here to be compared, not to be used. Then lock/, the library: the item stores the highest
 * fence, so a holder whose lease has ended is refused, and tries again.
 *
 * 6. A lock for each user, so that nobody waits for another's: one for each user is checked under
 * it, and the stock is left to UPDATE … WHERE stock > 0.
 */
#include "common/check.h"
#include "common/clock.h"
#include "compare/way.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_MS 1

/*
 * The value is the time at which the lock expires, by the client's clock. Who finds it expired
 * takes it over with GETSET, and has it if no other was faster.
 */
static enum sale_outcome buy_getset(struct seller *seller, const struct sale_request *request)
{
	enum sale_outcome outcome;
	int64_t now_ms, until_ms;
	long long old_ms;

	for (;;) {
		now_ms = clock_wall_ms();
		until_ms = now_ms + seller->market->lease_ms;
		if (redis_run(seller, "SETNX lock:%d %lld", request->item, (long long)until_ms))
			break;
		old_ms = redis_run(seller, "GET lock:%d", request->item);
		if (old_ms != NONE && old_ms < now_ms &&
		    redis_run(seller, "GETSET lock:%d %lld", request->item, (long long)until_ms) ==
			    old_ms)
			break;
		poll(NULL, 0, ASK_MS);
	}
	outcome = sell_read_then_write(seller, request);
	if (clock_wall_ms() < until_ms)
		redis_run(seller, "DEL lock:%d", request->item);
	return outcome;
}

static char release_sha[REDIS_SHA_SIZE];

static void release_load(struct seller *seller)
{
	redis_script_load(seller,
			  "if redis.call('GET', KEYS[1]) == ARGV[1] then "
			  "return redis.call('DEL', KEYS[1]) end return 0",
			  release_sha);
}

/* The value is the owner's, and only the owner deletes it. */
static enum sale_outcome buy_token(struct seller *seller, const struct sale_request *request)
{
	int token = rand_r(&seller->random);
	enum sale_outcome outcome;

	while (redis_run(seller, "SET lock:%d %d NX PX %d", request->item, token,
			 seller->market->lease_ms) == NONE)
		poll(NULL, 0, ASK_MS);
	outcome = sell_read_then_write(seller, request);
	redis_run(seller, "EVALSHA %s 1 lock:%d %d", release_sha, request->item, token);
	return outcome;
}

/* Deletes the lock at the end, even if another client holds it by then. */
static enum sale_outcome buy_ownerless(struct seller *seller, const struct sale_request *request)
{
	enum sale_outcome outcome;

	while (redis_run(seller, "SET lock:%d 1 NX PX %d", request->item,
			 seller->market->lease_ms) == NONE)
		poll(NULL, 0, ASK_MS);
	outcome = sell_read_then_write(seller, request);
	redis_run(seller, "DEL lock:%d", request->item);
	return outcome;
}

/* ---- lock/ */

/* With the lease of the market; it is watched unless holders stop. */
static enum sale_outcome buy_under(struct seller *seller, const struct sale_request *request)
{
	const struct way *way = seller->way;
	const struct market *market = seller->market;
	const char *const urls[] = { [LOCK_REDIS] = market->redis,
				     [LOCK_POSTGRES] = market->postgres_locks,
				     [LOCK_ZOOKEEPER] = market->zookeeper };
	const struct lock_options options = { .kind = way->lock_kind,
					      .wait_ms = LOCK_WAIT_FOREVER,
					      .lease_ms = market->lease_ms,
					      .is_watched = market->pause_every == 0 };
	enum sale_outcome outcome;
	struct lock *lock;
	char name[64] = "compare:shop";

	/* A seller uses one store for its locks. */
	if (!seller->locks)
		seller->locks = checked(
			lock_owner_new(way->lock_store, urls[way->lock_store], NULL, NULL));
	if (way->lock_of == LOCK_OF_ITEM)
		snprintf(name, sizeof(name), "compare:item:%d", request->item);
	else if (way->lock_of == LOCK_OF_USER)
		snprintf(name, sizeof(name), "compare:item:%d:user:%d", request->item,
			 request->user);
	if (lock_take(seller->locks, name, &options, &lock) != LOCK_TAKEN)
		store_fail("lock", name, lock_error(seller->locks));
	seller->fence = lock_fence(lock);
	outcome = way->lock_of == LOCK_OF_USER ? sell_checked(seller, request)
					       : sell_read_then_write(seller, request);
	lock_release(lock);
	return outcome;
}

const struct way ways_locks[] = {
	{
		.id = "5a",
		.name = "lock: SETNX, GETSET",
		.may = "oversold miscounted over_limit",
		.wrong = "a holder that stopped for longer than its lease writes what it read "
			 "before another took the lock over",
		.buy = buy_getset,
	},
	{
		.id = "5b",
		.name = "lock: SET NX PX, a token",
		.may = "oversold miscounted over_limit",
		.wrong = "a holder that stopped for longer than its lease writes what it read "
			 "before the lock expired: the token protects the next lock from it, not "
			 "the stock",
		.prepare = release_load,
		.buy = buy_token,
	},
	{
		.id = "5c",
		.name = "lock without owner",
		.may = "oversold miscounted over_limit",
		.wrong = "a holder that stopped for longer than its lease deletes the lock of the "
			 "next one: from then on two work at once",
		.buy = buy_ownerless,
	},
	{ .id = "5d", .name = "lock/ Redis", .buy = buy_under },
	{ .id = "5e", .name = "lock/ Redis, fair", .buy = buy_under, .lock_kind = LOCK_FAIR },
	{ .id = "5f",
	  .name = "lock/ Redis, one for all",
	  .buy = buy_under,
	  .lock_of = LOCK_OF_SHOP },
	{ .id = "5g", .name = "lock/ PostgreSQL", .buy = buy_under, .lock_store = LOCK_POSTGRES },
#ifdef WITH_ZOOKEEPER
	{ .id = "5h", .name = "lock/ ZooKeeper", .buy = buy_under, .lock_store = LOCK_ZOOKEEPER },
#endif
	{ .id = "6", .name = "lock for each user", .buy = buy_under, .lock_of = LOCK_OF_USER },
	{ 0 },
};
