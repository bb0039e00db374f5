/* 2. SELECT … FOR UPDATE: the item's row is locked until COMMIT, and others wait for it. */
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

const struct way way_row_lock = {
	.id = "2",
	.name = "SELECT … FOR UPDATE",
	.buy = buy,
};
