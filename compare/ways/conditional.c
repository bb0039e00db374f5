/*
 * 4. UPDATE … WHERE stock > 0: the check and the write are one statement. One for each user is a
 * check before it, or a unique index. All of it can be one function: one round trip; and a
 * connection in pipeline mode carries the calls of many clients.
 */
#include "compare/ways/sell.h"

static enum outcome buy_checked(struct client *client, const struct request *request)
{
	return sell_checked(client, request);
}

static enum outcome buy_unique(struct client *client, const struct request *request)
{
	sql(client, "BEGIN");
	if (!sql(client, "INSERT INTO sale VALUES ($1, $2) ON CONFLICT DO NOTHING", request->item,
		 request->user))
		return roll_back(client, HAS_ONE);
	if (!sql(client, "UPDATE item SET stock = stock - 1 WHERE id = $1 AND stock > 0",
		 request->item))
		return roll_back(client, SOLD_OUT);
	sql(client, "COMMIT");
	return SOLD;
}

static void function_make(struct client *client)
{
	sql(client, "CREATE FUNCTION sell_one(wanted bigint, user_id bigint) RETURNS int "
		    "LANGUAGE plpgsql AS $$ BEGIN "
		    "INSERT INTO sale VALUES (wanted, user_id) ON CONFLICT DO NOTHING; "
		    "IF NOT FOUND THEN RETURN 2; END IF; "
		    "UPDATE item SET stock = stock - 1 WHERE id = wanted AND stock > 0; "
		    "IF FOUND THEN RETURN 0; END IF; "
		    "DELETE FROM sale WHERE item = wanted AND buyer = user_id; "
		    "RETURN 1; END $$");
}

/* It returns numbers of enum outcome. */
static enum outcome buy_function(struct client *client, const struct request *request)
{
	return (enum outcome)sql(client, "SELECT sell_one($1, $2)", request->item, request->user);
}

/* Each is a transaction of its own, so that nothing is rolled back with another one. */
static void ask_function(struct client *client, const struct asked *asked)
{
	sql_ask(client, "SELECT sell_one($1, $2)", asked->request->item, asked->request->user);
}

static enum outcome answer_function(struct client *client, struct asked *asked)
{
	(void)asked;
	return (enum outcome)sql_answer(client);
}

const struct way way_conditional = {
	.id = "4a",
	.name = "UPDATE … WHERE stock > 0",
	.may = "over_limit",
	.wrong = "a user who asks several times at once is checked before any of them has "
		 "committed, and gets several",
	.buy = buy_checked,
};
const struct way way_conditional_unique = {
	.id = "4b",
	.name = "UPDATE, a unique index",
	.is_unique = 1,
	.buy = buy_unique,
};
const struct way way_conditional_function = {
	.id = "4c",
	.name = "UPDATE, one function",
	.is_unique = 1,
	.prepare = function_make,
	.buy = buy_function,
};
const struct way way_conditional_pipeline = {
	.id = "4d",
	.name = "UPDATE, pipeline mode",
	.is_unique = 1,
	.prepare = function_make,
	.ask = ask_function,
	.answer = answer_function,
};
