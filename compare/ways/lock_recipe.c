/*
 * 5. A lock in Redis around read-then-write: the recipes that were passed on for years. They are
 * here to be compared, not to be used: lock/ is the library.
 */
#include "common/clock.h"
#include "compare/ways/sell.h"

#include <poll.h>
#include <stdlib.h>

#define ASK_MS 1

static void wait_a_moment(void)
{
	poll(NULL, 0, ASK_MS);
}

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
		wait_a_moment();
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
		wait_a_moment();
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
		wait_a_moment();
	outcome = sell_read_then_write(client, request, 0);
	redis_run(client, "DEL lock:%d", request->item);
	return outcome;
}

const struct way way_lock_getset = {
	.id = "5a",
	.name = "lock: SETNX, GETSET",
	.may = "oversold miscounted over_limit",
	.wrong = "a holder that stopped for longer than its lease writes what it read before "
		 "another took the lock over",
	.buy = buy_getset,
};
const struct way way_lock_token = {
	.id = "5b",
	.name = "lock: SET NX PX, a token",
	.may = "oversold miscounted over_limit",
	.wrong = "a holder that stopped for longer than its lease writes what it read before "
		 "the lock expired: the token protects the next lock from it, not the stock",
	.prepare = release_load,
	.buy = buy_token,
};
const struct way way_lock_ownerless = {
	.id = "5c",
	.name = "lock without owner",
	.may = "oversold miscounted over_limit",
	.wrong = "a holder that stopped for longer than its lease deletes the lock of the next "
		 "one: from then on two work at once",
	.buy = buy_ownerless,
};
