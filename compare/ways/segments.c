/*
 * 8. The stock in ten rows instead of one, so that ten can commit at once. A user is sent to one of
 * them, and where it is sold out perhaps to the next. All of it can be one function: one round
 * trip.
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

static void function_make(struct client *client)
{
	prepare(client);
	sql(client, "CREATE FUNCTION sell_segment(wanted bigint, user_id bigint, first bigint, "
		    "segments bigint) RETURNS int LANGUAGE plpgsql AS $$ BEGIN "
		    "INSERT INTO sale VALUES (wanted, user_id) ON CONFLICT DO NOTHING; "
		    "IF NOT FOUND THEN RETURN 2; END IF; "
		    "FOR i IN 1 .. segments LOOP "
		    "	UPDATE segment SET stock = stock - 1 WHERE item = wanted "
		    "		AND number = (first + i) % segments AND stock > 0; "
		    "	IF FOUND THEN RETURN 0; END IF; "
		    "END LOOP; "
		    "DELETE FROM sale WHERE item = wanted AND buyer = user_id; "
		    "RETURN 1; END $$");
}

/* It returns numbers of enum outcome. */
static enum outcome buy_function(struct client *client, const struct request *request)
{
	return (enum outcome)sql(client, "SELECT sell_segment($1, $2, $3, $4)", request->item,
				 request->user, rand_r(&client->random) % MARKET_SEGMENTS,
				 MARKET_SEGMENTS);
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
	.name = "segments, moving on",
	.is_unique = 1,
	.prepare = prepare,
	.buy = buy_any,
};
const struct way way_segments_function = {
	.id = "8c",
	.name = "segments, one function",
	.is_unique = 1,
	.prepare = function_make,
	.buy = buy_function,
};
