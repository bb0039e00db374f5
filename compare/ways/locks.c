/*
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
static int64_t getset_lock(struct client *client, int item)
{
	for (;;) {
		int64_t now_ms = clock_wall_ms(), until_ms = now_ms + client->market->lease_ms;
		long long old_ms;

		if (redis_run(client, "SETNX lock:%d %lld", item, (long long)until_ms))
			return until_ms;
		old_ms = redis_run(client, "GET lock:%d", item);
		if (old_ms != NONE && old_ms < now_ms &&
		    redis_run(client, "GETSET lock:%d %lld", item, (long long)until_ms) == old_ms)
			return until_ms;
		poll(NULL, 0, ASK_MS);
	}
}

static enum outcome buy_getset(struct client *client, const struct request *request)
{
	int64_t until_ms = getset_lock(client, request->item);
	enum outcome outcome = sell_read_then_write(client, request);

	if (clock_wall_ms() < until_ms)
		redis_run(client, "DEL lock:%d", request->item);
	return outcome;
}

static char release_sha[REDIS_SHA_SIZE];

static void release_load(struct client *client)
{
	redis_script_load(client,
			  "if redis.call('GET', KEYS[1]) == ARGV[1] then "
			  "return redis.call('DEL', KEYS[1]) end return 0",
			  release_sha);
}

/* The value is the owner's, and only the owner deletes it. */
static enum outcome buy_token(struct client *client, const struct request *request)
{
	int token = rand_r(&client->random);
	enum outcome outcome;

	while (redis_run(client, "SET lock:%d %d NX PX %d", request->item, token,
			 client->market->lease_ms) == NONE)
		poll(NULL, 0, ASK_MS);
	outcome = sell_read_then_write(client, request);
	redis_run(client, "EVALSHA %s 1 lock:%d %d", release_sha, request->item, token);
	return outcome;
}

/* Deletes the lock at the end, even if another client holds it by then. */
static enum outcome buy_ownerless(struct client *client, const struct request *request)
{
	enum outcome outcome;

	while (redis_run(client, "SET lock:%d 1 NX PX %d", request->item,
			 client->market->lease_ms) == NONE)
		poll(NULL, 0, ASK_MS);
	outcome = sell_read_then_write(client, request);
	redis_run(client, "DEL lock:%d", request->item);
	return outcome;
}

/* ---- lock/ */

/* A client uses one store for its locks. */
static struct lock_owner *owner_of(struct client *client)
{
	const struct market *market = client->market;
	const char *const urls[] = { [LOCK_REDIS] = market->redis,
				     [LOCK_POSTGRES] = market->postgres_locks,
				     [LOCK_ZOOKEEPER] = market->zookeeper };
	enum lock_backend_id store = client->way->lock_store;

	if (!client->locks)
		client->locks = checked(lock_owner_new(store, urls[store], NULL, NULL));
	return client->locks;
}

/* With the lease of the market; it is watched unless holders stop. */
static enum outcome buy_under(struct client *client, const struct request *request)
{
	const struct way *way = client->way;
	const struct lock_options options = { .kind = way->lock_kind,
					      .wait_ms = LOCK_WAIT_FOREVER,
					      .lease_ms = client->market->lease_ms,
					      .is_watched = client->market->pause_every == 0 };
	struct lock_owner *owner = owner_of(client);
	enum outcome outcome;
	struct lock *lock;
	char name[64] = "compare:shop";

	if (way->lock_of == LOCK_OF_ITEM)
		snprintf(name, sizeof(name), "compare:item:%d", request->item);
	else if (way->lock_of == LOCK_OF_USER)
		snprintf(name, sizeof(name), "compare:item:%d:user:%d", request->item,
			 request->user);
	if (lock_take(owner, name, &options, &lock) != LOCK_TAKEN)
		client_fail("lock", name, lock_error(owner));
	client->fence = lock_fence(lock);
	outcome = way->lock_of == LOCK_OF_USER ? sell_checked(client, request)
					       : sell_read_then_write(client, request);
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
