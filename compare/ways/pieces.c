/*
 * 12. A row for each piece: a user takes the first that nobody else is taking, with FOR UPDATE SKIP
 * LOCKED, so that nobody waits for another's COMMIT. The sale comes first: nothing is rolled back
 * that others skipped. All of it can be one function: one round trip.
 */
#include "compare/ways/sell.h"

static void prepare(struct client *client)
{
	sql(client, "INSERT INTO piece SELECT id, generate_series(1, stock) FROM item");
	sql(client, "UPDATE item SET stock = 0");
}

static enum outcome buy(struct client *client, const struct request *request)
{
	sql(client, "BEGIN");
	if (!sql(client, "INSERT INTO sale VALUES ($1, $2) ON CONFLICT DO NOTHING", request->item,
		 request->user))
		return roll_back(client, HAS_ONE);
	if (!sql(client,
		 "DELETE FROM piece WHERE item = $1 AND number = (SELECT number FROM piece "
		 "WHERE item = $1 ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED)",
		 request->item))
		return roll_back(client, SOLD_OUT);
	sql(client, "COMMIT");
	return SOLD;
}

static void function_make(struct client *client)
{
	prepare(client);
	sql(client, "CREATE FUNCTION sell_piece(wanted bigint, user_id bigint) RETURNS int "
		    "LANGUAGE plpgsql AS $$ BEGIN "
		    "INSERT INTO sale VALUES (wanted, user_id) ON CONFLICT DO NOTHING; "
		    "IF NOT FOUND THEN RETURN 2; END IF; "
		    "DELETE FROM piece WHERE item = wanted AND number = ("
		    "	SELECT number FROM piece WHERE item = wanted "
		    "	ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED); "
		    "IF FOUND THEN RETURN 0; END IF; "
		    "DELETE FROM sale WHERE item = wanted AND buyer = user_id; "
		    "RETURN 1; END $$");
}

/* It returns numbers of enum outcome. */
static enum outcome buy_function(struct client *client, const struct request *request)
{
	return (enum outcome)sql(client, "SELECT sell_piece($1, $2)", request->item, request->user);
}

const struct way way_pieces = {
	.id = "12a",
	.name = "pieces, SKIP LOCKED",
	.is_unique = 1,
	.prepare = prepare,
	.buy = buy,
};
const struct way way_pieces_function = {
	.id = "12b",
	.name = "pieces, one function",
	.is_unique = 1,
	.prepare = function_make,
	.buy = buy_function,
};
