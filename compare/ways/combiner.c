/*
 * 11. A combiner in front of PostgreSQL alone: it collects requests while a transaction commits,
 * and the next one settles all of them. Here its clients are in the same process: no network is
 * between them, as there is with couponmq.
 */
#include "common/check.h"
#include "compare/way.h"

#include <stdlib.h>

/* The outcome of each buyer, in their order: the numbers of enum outcome. */
static const char *const sell_many =
	"CREATE FUNCTION sell_many(wanted bigint, buyers bigint[]) RETURNS SETOF int "
	"LANGUAGE plpgsql AS $$ "
	"DECLARE left_n bigint; got bigint[]; "
	"BEGIN "
	"SELECT stock INTO left_n FROM item WHERE id = wanted FOR UPDATE; "
	"WITH asked AS (SELECT b.buyer, min(b.ord) AS ord "
	"	FROM unnest(buyers) WITH ORDINALITY AS b (buyer, ord) GROUP BY b.buyer), "
	"sold AS (INSERT INTO sale SELECT wanted, a.buyer FROM asked AS a "
	"	WHERE NOT EXISTS (SELECT FROM sale AS s "
	"		WHERE s.item = wanted AND s.buyer = a.buyer) "
	"	ORDER BY a.ord LIMIT left_n RETURNING sale.buyer) "
	"SELECT coalesce(array_agg(buyer), '{}') INTO got FROM sold; "
	"UPDATE item SET stock = stock - cardinality(got) WHERE id = wanted; "
	"RETURN QUERY SELECT CASE WHEN g.buyer IS NULL THEN 1 "
	"	WHEN row_number() OVER (PARTITION BY b.buyer ORDER BY b.ord) = 1 THEN 0 "
	"	ELSE 2 END "
	"	FROM unnest(buyers) WITH ORDINALITY AS b (buyer, ord) "
	"		LEFT JOIN unnest(got) AS g (buyer) ON g.buyer = b.buyer "
	"	ORDER BY b.ord; "
	"END $$";

struct combiner {
	/* the next batch */
	struct request waiting[MARKET_CLIENTS_MAX];
	int waiting_n;
	/* of the last one */
	enum outcome outcomes[MARKET_CLIENTS_MAX];
	int outcomes_n, answered_n;
	/* of one item in it */
	long long buyers[MARKET_CLIENTS_MAX], results[MARKET_CLIENTS_MAX];
};

static void prepare(struct client *client)
{
	sql(client, sell_many);
}

static void item_sell(struct client *client, struct combiner *combiner, int item)
{
	int n = 0;

	for (int i = 0; i < combiner->waiting_n; i++)
		if (combiner->waiting[i].item == item)
			combiner->buyers[n++] = combiner->waiting[i].user;
	if (n == 0)
		return;
	sql_many(client, "SELECT sell_many($1, $2)", item, combiner->buyers, n, combiner->results);
	n = 0;
	for (int i = 0; i < combiner->waiting_n; i++)
		if (combiner->waiting[i].item == item)
			combiner->outcomes[i] = (enum outcome)combiner->results[n++];
}

static void batch_commit(struct client *client, struct combiner *combiner)
{
	sql(client, "BEGIN");
	for (int item = 1; item <= client->market->items + 1; item++)
		item_sell(client, combiner, item);
	sql(client, "COMMIT");
	combiner->outcomes_n = combiner->waiting_n;
	combiner->waiting_n = combiner->answered_n = 0;
}

static void ask(struct client *client, const struct asked *asked)
{
	struct combiner *combiner = client->own;

	if (!combiner)
		combiner = client->own = calloc(1, sizeof(*combiner));
	check(combiner && combiner->waiting_n < MARKET_CLIENTS_MAX);
	combiner->waiting[combiner->waiting_n++] = *asked->request;
}

static enum outcome answer(struct client *client, struct asked *asked)
{
	struct combiner *combiner = client->own;

	(void)asked;
	if (combiner->answered_n == combiner->outcomes_n)
		batch_commit(client, combiner);
	return combiner->outcomes[combiner->answered_n++];
}

const struct way way_combiner = {
	.id = "11",
	.name = "a combiner, PostgreSQL",
	.is_unique = 1,
	.is_batch = 1,
	.prepare = prepare,
	.ask = ask,
	.answer = answer,
};
