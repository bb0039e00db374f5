#include "compare/ways/sell.h"

#include <poll.h>
#include <stdatomic.h>

/* As a long garbage collection or a virtual machine that is moved would stop it. */
static void pause_now_and_then(const struct market *market, const struct request *request)
{
	static atomic_int sales;

	if (market->pause_every && request->item <= market->items &&
	    atomic_fetch_add(&sales, 1) % market->pause_every == market->pause_every - 1)
		poll(NULL, 0, market->pause_ms);
}

enum outcome roll_back(struct client *client, enum outcome outcome)
{
	sql(client, "ROLLBACK");
	return outcome;
}

int user_has_one(struct client *client, const struct request *request)
{
	return sql(client, "SELECT count(*) FROM sale WHERE item = $1 AND buyer = $2",
		   request->item, request->user) > 0;
}

/*
 * Reads the stock. Who comes with a fence leaves it there, so that nobody with a lower one can
 * write any more; NONE: a higher one was here before.
 */
static long long stock_read(struct client *client, int item, long long fence)
{
	if (fence == 0)
		return sql(client, "SELECT stock FROM item WHERE id = $1", item);
	return sql(client,
		   "UPDATE item SET fence = $2 WHERE id = $1 AND fence <= $2 RETURNING stock", item,
		   fence);
}

enum outcome sell_read_then_write(struct client *client, const struct request *request,
				  long long fence)
{
	long long stock = stock_read(client, request->item, fence);

	if (stock == NONE)
		return FAILED;
	if (stock == 0)
		return SOLD_OUT;
	if (user_has_one(client, request))
		return HAS_ONE;
	pause_now_and_then(client->market, request);
	sql(client, "BEGIN");
	if (!sql(client, "UPDATE item SET stock = $2 WHERE id = $1 AND fence <= $3", request->item,
		 stock - 1, fence))
		return roll_back(client, FAILED);
	sql(client, "INSERT INTO sale VALUES ($1, $2)", request->item, request->user);
	sql(client, "COMMIT");
	return SOLD;
}

enum outcome sell_checked(struct client *client, const struct request *request)
{
	if (user_has_one(client, request))
		return HAS_ONE;
	sql(client, "BEGIN");
	sql(client, "INSERT INTO sale VALUES ($1, $2)", request->item, request->user);
	if (!sql(client, "UPDATE item SET stock = stock - 1 WHERE id = $1 AND stock > 0",
		 request->item))
		return roll_back(client, SOLD_OUT);
	sql(client, "COMMIT");
	return SOLD;
}

static char script_sha[REDIS_SHA_SIZE];

void stock_set(struct client *client)
{
	for (int item = 1; item <= client->market->items + 1; item++)
		redis_run(client, "SET stock:%d %d", item, client->market->stock);
}

void script_prepare(struct client *client)
{
	stock_set(client);
	redis_script_load(client,
			  "if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 0 end "
			  "if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then return -1 end "
			  "redis.call('DECR', KEYS[1]) "
			  "return 1",
			  script_sha);
}

void script_ask(struct client *client, const struct asked *asked)
{
	redis_ask(client, "EVALSHA %s 2 stock:%d buyers:%d %d", script_sha, asked->request->item,
		  asked->request->item, asked->request->user);
}

enum outcome script_answer(struct client *client)
{
	switch (redis_answer(client)) {
	case 0:
		return SOLD_OUT;
	case NONE:
		return HAS_ONE;
	default:
		return SOLD;
	}
}

enum outcome script_run(struct client *client, const struct request *request)
{
	script_ask(client, &(struct asked){ .request = request });
	return script_answer(client);
}
