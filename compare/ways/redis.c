/*
 * The ways in Redis alone.
 *
 * 7. With WATCH: MULTI … EXEC does nothing if another client has changed a key since WATCH. Who
 * comes second has failed, and may try again. A Lua script needs no WATCH.
 *
 * 13. A list with a token for each piece: who takes one has a piece. Who dies between the commands
 * has a place among the buyers and no token, or the reverse.
 */
#include "compare/way.h"

static enum outcome unwatch(struct client *client, enum outcome outcome)
{
	redis_run(client, "UNWATCH");
	return outcome;
}

static enum outcome watch(struct client *client, const struct request *request)
{
	redis_run(client, "WATCH stock:%d", request->item);
	if (redis_run(client, "GET stock:%d", request->item) <= 0)
		return unwatch(client, SOLD_OUT);
	if (redis_run(client, "SISMEMBER buyers:%d %d", request->item, request->user))
		return unwatch(client, HAS_ONE);
	gap(client->market, request);
	redis_run(client, "MULTI");
	redis_run(client, "DECR stock:%d", request->item);
	redis_run(client, "SADD buyers:%d %d", request->item, request->user);
	return redis_run(client, "EXEC") == NONE ? FAILED : SOLD;
}

/* Two round trips: what is read, and what is written. */
static enum outcome watch_pipelined(struct client *client, const struct request *request)
{
	long long stock, has_one;

	redis_ask(client, "WATCH stock:%d", request->item);
	redis_ask(client, "GET stock:%d", request->item);
	redis_ask(client, "SISMEMBER buyers:%d %d", request->item, request->user);
	redis_answer(client);
	stock = redis_answer(client);
	has_one = redis_answer(client);
	if (stock <= 0 || has_one)
		return unwatch(client, has_one ? HAS_ONE : SOLD_OUT);
	redis_ask(client, "MULTI");
	redis_ask(client, "DECR stock:%d", request->item);
	redis_ask(client, "SADD buyers:%d %d", request->item, request->user);
	redis_ask(client, "EXEC");
	for (int queued = 0; queued < 3; queued++)
		redis_answer(client);
	return redis_answer(client) == NONE ? FAILED : SOLD;
}

/* ---- the script */

static char script_sha[REDIS_SHA_SIZE];

static void stock_set(struct client *client)
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

enum outcome script_answer(struct client *client, struct asked *asked)
{
	(void)asked;
	switch (redis_answer(client)) {
	case 0:
		return SOLD_OUT;
	case NONE:
		return HAS_ONE;
	default:
		return SOLD;
	}
}

enum outcome script_buy(struct client *client, const struct request *request)
{
	struct asked asked = { .request = request };

	script_ask(client, &asked);
	return script_answer(client, &asked);
}

/* ---- tokens */

static void tokens_prepare(struct client *client)
{
	const struct market *market = client->market;

	for (int item = 1; item <= market->items + 1; item++) {
		redis_run(client, "SET stock:%d 0", item);
		redis_run(client, "EVAL %s 1 tokens:%d %d",
			  "for i = 1, ARGV[1] do redis.call('RPUSH', KEYS[1], i) end return 1",
			  item, market->stock);
	}
}

static enum outcome token_buy(struct client *client, const struct request *request)
{
	if (!redis_run(client, "SADD buyers:%d %d", request->item, request->user))
		return HAS_ONE;
	if (redis_run(client, "LPOP tokens:%d", request->item) != NONE)
		return SOLD;
	redis_run(client, "SREM buyers:%d %d", request->item, request->user);
	return SOLD_OUT;
}

const struct way ways_redis[] = {
	{
		.id = "7a",
		.name = "Redis WATCH, once",
		.may = "unsold",
		.wrong = "of the clients that watch the stock only one can write: the others were "
			 "sent away while there was stock",
		.ledger = IN_REDIS,
		.prepare = stock_set,
		.buy = watch,
		.tries = 1,
	},
	{
		.id = "7b",
		.name = "Redis WATCH, retried",
		.ledger = IN_REDIS,
		.prepare = stock_set,
		.buy = watch,
	},
	{
		.id = "7c",
		.name = "WATCH in 2 round trips",
		.ledger = IN_REDIS,
		.prepare = stock_set,
		.buy = watch_pipelined,
	},
	{
		.id = "7d",
		.name = "Redis, a Lua script",
		.ledger = IN_REDIS,
		.prepare = script_prepare,
		.buy = script_buy,
	},
	{
		.id = "7e",
		.name = "Lua script, pipelined",
		.ledger = IN_REDIS,
		.prepare = script_prepare,
		.ask = script_ask,
		.answer = script_answer,
	},
	{
		.id = "13",
		.name = "tokens, a list in Redis",
		.ledger = IN_REDIS,
		.prepare = tokens_prepare,
		.buy = token_buy,
	},
	{ 0 },
};
