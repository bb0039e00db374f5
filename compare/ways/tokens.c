/*
 * 13. A list in Redis with a token for each piece: who takes one has a piece. Who dies between the
 * commands has a place among the buyers and no token, or the reverse.
 */
#include "compare/way.h"

static void prepare(struct client *client)
{
	const struct market *market = client->market;

	for (int item = 1; item <= market->items + 1; item++) {
		redis_run(client, "SET stock:%d 0", item);
		redis_run(client, "EVAL %s 1 tokens:%d %d",
			  "for i = 1, ARGV[1] do redis.call('RPUSH', KEYS[1], i) end return 1",
			  item, market->stock);
	}
}

static enum outcome buy(struct client *client, const struct request *request)
{
	if (!redis_run(client, "SADD buyers:%d %d", request->item, request->user))
		return HAS_ONE;
	if (redis_run(client, "LPOP tokens:%d", request->item) != NONE)
		return SOLD;
	redis_run(client, "SREM buyers:%d %d", request->item, request->user);
	return SOLD_OUT;
}

const struct way way_tokens = {
	.id = "13",
	.name = "tokens, a list in Redis",
	.ledger = IN_REDIS,
	.prepare = prepare,
	.buy = buy,
};
