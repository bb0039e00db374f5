/*
 * 7. Redis alone, with WATCH: MULTI … EXEC does nothing if another client has changed a key since
 * WATCH. Who comes second has failed, and may try again. A Lua script needs no WATCH.
 */
#include "compare/ways/sell.h"

static enum outcome unwatch(struct client *client, enum outcome outcome)
{
	redis_run(client, "UNWATCH");
	return outcome;
}

static enum outcome try(struct client *client, const struct request *request)
{
	client->attempts++;
	redis_run(client, "WATCH stock:%d", request->item);
	if (redis_run(client, "GET stock:%d", request->item) <= 0)
		return unwatch(client, SOLD_OUT);
	if (redis_run(client, "SISMEMBER buyers:%d %d", request->item, request->user))
		return unwatch(client, HAS_ONE);
	redis_run(client, "MULTI");
	redis_run(client, "DECR stock:%d", request->item);
	redis_run(client, "SADD buyers:%d %d", request->item, request->user);
	if (redis_run(client, "EXEC") != NONE)
		return SOLD;
	client->attempts_failed++;
	return FAILED;
}

static enum outcome buy_once(struct client *client, const struct request *request)
{
	return try(client, request);
}

static enum outcome buy_again(struct client *client, const struct request *request)
{
	enum outcome outcome;

	do
		outcome = try(client, request);
	while (outcome == FAILED);
	return outcome;
}

/* Two round trips: what is read, and what is written. */
static enum outcome try_pipelined(struct client *client, const struct request *request)
{
	long long stock, has_one;

	client->attempts++;
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
	if (redis_answer(client) != NONE)
		return SOLD;
	client->attempts_failed++;
	return FAILED;
}

static enum outcome buy_pipelined(struct client *client, const struct request *request)
{
	enum outcome outcome;

	do
		outcome = try_pipelined(client, request);
	while (outcome == FAILED);
	return outcome;
}

static enum outcome answer_script(struct client *client, struct asked *asked)
{
	(void)asked;
	return script_answer(client);
}

const struct way way_watch_once = {
	.id = "7a",
	.name = "Redis WATCH, once",
	.may = "unsold",
	.wrong = "of the clients that watch the stock only one can write: the others were sent "
		 "away while there was stock",
	.ledger = IN_REDIS,
	.prepare = stock_set,
	.buy = buy_once,
};
const struct way way_watch_again = {
	.id = "7b",
	.name = "Redis WATCH, retried",
	.ledger = IN_REDIS,
	.prepare = stock_set,
	.buy = buy_again,
};
const struct way way_watch_pipelined = {
	.id = "7c",
	.name = "WATCH in 2 round trips",
	.ledger = IN_REDIS,
	.prepare = stock_set,
	.buy = buy_pipelined,
};
const struct way way_script = {
	.id = "7d",
	.name = "Redis, a Lua script",
	.ledger = IN_REDIS,
	.prepare = script_prepare,
	.buy = script_run,
};
const struct way way_script_pipelined = {
	.id = "7e",
	.name = "Lua script, pipelined",
	.ledger = IN_REDIS,
	.prepare = script_prepare,
	.ask = script_ask,
	.answer = answer_script,
};
