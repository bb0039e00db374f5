/*
 * 7. Redis alone, with WATCH: MULTI … EXEC does nothing if another client has changed a key since
 * WATCH. Who comes second has failed, and may try again.
 */
#include "compare/way.h"

static void prepare(struct client *client)
{
	for (int item = 1; item <= client->market->items + 1; item++)
		redis_run(client, "SET stock:%d %d", item, client->market->stock);
}

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

const struct way way_watch_once = {
	.id = "7a",
	.name = "Redis WATCH, once",
	.may = "unsold",
	.wrong = "of the clients that watch the stock only one can write: the others were sent "
		 "away while there was stock",
	.ledger = IN_REDIS,
	.prepare = prepare,
	.buy = buy_once,
};
const struct way way_watch_again = {
	.id = "7b",
	.name = "Redis WATCH, retried",
	.ledger = IN_REDIS,
	.prepare = prepare,
	.buy = buy_again,
};
