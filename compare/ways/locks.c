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
#include "lock/name.h"

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
	enum outcome outcome = sell_read_then_write(client, request, 0);

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
	outcome = sell_read_then_write(client, request, 0);
	redis_run(client, "EVALSHA %s 1 lock:%d %d", release_sha, request->item, token);
	return outcome;
}

/* Whoever comes to the end deletes the lock, whosever it is by then. */
static enum outcome buy_ownerless(struct client *client, const struct request *request)
{
	enum outcome outcome;

	while (redis_run(client, "SET lock:%d 1 NX PX %d", request->item,
			 client->market->lease_ms) == NONE)
		poll(NULL, 0, ASK_MS);
	outcome = sell_read_then_write(client, request, 0);
	redis_run(client, "DEL lock:%d", request->item);
	return outcome;
}

/* ---- lock/ */

/* The lock of these of the request's numbers: `n` of {item} and {user}. */
static struct lock *lock_need(struct client *client, const struct request *request,
			      enum lock_backend_id store, enum lock_kind kind, int n)
{
	static const char *const templates[] = { "compare:shop", "compare:item:{item}",
						 "compare:item:{item}:user:{user}" };
	char name[LOCK_NAME_SIZE], why[LOCK_NAME_WHY_SIZE], item[16], user[16];
	const struct lock_argument arguments[] = { { "item", item }, { "user", user } };

	snprintf(item, sizeof(item), "%d", request->item);
	snprintf(user, sizeof(user), "%d", request->user);
	check(lock_name_format(name, templates[n], arguments, (size_t)n, why) == 0);
	return client_lock(client, store, kind, name);
}

static enum outcome buy_under(struct client *client, const struct request *request,
			      enum lock_backend_id store, enum lock_kind kind, int n)
{
	struct lock *lock = lock_need(client, request, store, kind, n);
	enum outcome outcome = sell_read_then_write(client, request, lock_fence(lock));

	lock_release(lock);
	return outcome;
}

static enum outcome buy_redis(struct client *client, const struct request *request)
{
	return buy_under(client, request, LOCK_REDIS, LOCK_EXCLUSIVE, 1);
}

static enum outcome buy_redis_fair(struct client *client, const struct request *request)
{
	return buy_under(client, request, LOCK_REDIS, LOCK_FAIR, 1);
}

static enum outcome buy_redis_one(struct client *client, const struct request *request)
{
	return buy_under(client, request, LOCK_REDIS, LOCK_EXCLUSIVE, 0);
}

static enum outcome buy_postgres(struct client *client, const struct request *request)
{
	return buy_under(client, request, LOCK_POSTGRES, LOCK_EXCLUSIVE, 1);
}

#ifdef WITH_ZOOKEEPER
static enum outcome buy_zookeeper(struct client *client, const struct request *request)
{
	return buy_under(client, request, LOCK_ZOOKEEPER, LOCK_EXCLUSIVE, 1);
}
#endif

static enum outcome buy_of_user(struct client *client, const struct request *request)
{
	struct lock *lock = lock_need(client, request, LOCK_REDIS, LOCK_EXCLUSIVE, 2);
	enum outcome outcome = sell_checked(client, request);

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
	{ .id = "5d", .name = "lock/ Redis", .buy = buy_redis },
	{ .id = "5e", .name = "lock/ Redis, fair", .buy = buy_redis_fair },
	{ .id = "5f", .name = "lock/ Redis, one for all", .buy = buy_redis_one },
	{ .id = "5g", .name = "lock/ PostgreSQL", .buy = buy_postgres },
#ifdef WITH_ZOOKEEPER
	{ .id = "5h", .name = "lock/ ZooKeeper", .buy = buy_zookeeper },
#endif
	{ .id = "6", .name = "lock for each user", .buy = buy_of_user },
	{ 0 },
};
