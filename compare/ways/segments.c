/*
 * 8. The stock in ten rows instead of one, so that ten can commit at once. A user is sent to one of
 * them, and where it is sold out perhaps to the next.
 */
#include "compare/ways/sell.h"

#include <stdlib.h>

static void prepare(struct client *client)
{
	sql(client,
	    "INSERT INTO segment SELECT id, n, stock / $1 + (n < stock % $1)::int "
	    "FROM item, generate_series(0, $1::int - 1) AS n",
	    MARKET_SEGMENTS);
	sql(client, "UPDATE item SET stock = 0");
}

static int segment_take(struct client *client, int item, int segment)
{
	return sql(client,
		   "UPDATE segment SET stock = stock - 1 "
		   "WHERE item = $1 AND number = $2 AND stock > 0",
		   item, segment % MARKET_SEGMENTS) > 0;
}

static enum outcome buy_from(struct client *client, const struct request *request, int segments)
{
	int first = rand_r(&client->random);

	sql(client, "BEGIN");
	if (!sql(client, "INSERT INTO sale VALUES ($1, $2) ON CONFLICT DO NOTHING", request->item,
		 request->user))
		return roll_back(client, HAS_ONE);
	for (int i = 0; i < segments; i++) {
		if (!segment_take(client, request->item, first % MARKET_SEGMENTS + i))
			continue;
		sql(client, "COMMIT");
		return SOLD;
	}
	return roll_back(client, SOLD_OUT);
}

static enum outcome buy_one(struct client *client, const struct request *request)
{
	return buy_from(client, request, 1);
}

static enum outcome buy_any(struct client *client, const struct request *request)
{
	return buy_from(client, request, MARKET_SEGMENTS);
}

const struct way way_segment = {
	.id = "8a",
	.name = "stock in 10 segments",
	.may = "unsold",
	.wrong = "a user whose segment was sold out was sent away while others had stock",
	.is_unique = 1,
	.prepare = prepare,
	.buy = buy_one,
};
const struct way way_segments = {
	.id = "8b",
	.name = "the same, moving on",
	.is_unique = 1,
	.prepare = prepare,
	.buy = buy_any,
};
