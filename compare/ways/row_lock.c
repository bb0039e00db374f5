/*
 * 2. SELECT … FOR UPDATE: the item's row is locked until COMMIT, and others wait for it. All of it
 * can be one function: one round trip.
 */
#include "compare/ways/sell.h"

static enum outcome buy(struct client *client, const struct request *request)
{
	long long stock;

	sql(client, "BEGIN");
	stock = sql(client, "SELECT stock FROM item WHERE id = $1 FOR UPDATE", request->item);
	if (stock <= 0)
		return roll_back(client, SOLD_OUT);
	if (user_has_one(client, request))
		return roll_back(client, HAS_ONE);
	sql(client, "UPDATE item SET stock = $2 WHERE id = $1", request->item, stock - 1);
	sql(client, "INSERT INTO sale VALUES ($1, $2)", request->item, request->user);
	sql(client, "COMMIT");
	return SOLD;
}

static void function_make(struct client *client)
{
	sql(client, "CREATE FUNCTION sell_locked(wanted bigint, user_id bigint) RETURNS int "
		    "LANGUAGE plpgsql AS $$ DECLARE left_n bigint; BEGIN "
		    "SELECT stock INTO left_n FROM item WHERE id = wanted FOR UPDATE; "
		    "IF left_n = 0 THEN RETURN 1; END IF; "
		    "IF EXISTS (SELECT FROM sale WHERE item = wanted AND buyer = user_id) THEN "
		    "	RETURN 2; END IF; "
		    "UPDATE item SET stock = left_n - 1 WHERE id = wanted; "
		    "INSERT INTO sale VALUES (wanted, user_id); "
		    "RETURN 0; END $$");
}

/* It returns numbers of enum outcome. */
static enum outcome buy_function(struct client *client, const struct request *request)
{
	return (enum outcome)sql(client, "SELECT sell_locked($1, $2)", request->item,
				 request->user);
}

const struct way way_row_lock = {
	.id = "2a",
	.name = "SELECT … FOR UPDATE",
	.buy = buy,
};
const struct way way_row_lock_function = {
	.id = "2b",
	.name = "FOR UPDATE, one function",
	.prepare = function_make,
	.buy = buy_function,
};
