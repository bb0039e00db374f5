/*
 * 11. A combiner in front of PostgreSQL alone: it collects requests while a transaction commits,
 * and the next one settles all of them. Here its clients are in the same process: no network is
 * between them, as there is with couponmq.
 */
#include "common/check.h"
#include "compare/way.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 1000
#define BUYERS_SIZE (BATCH_MAX * 12 + 2)

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

struct batch {
	const struct request *requests[BATCH_MAX];
	int numbers[BATCH_MAX];
	enum outcome outcomes[BATCH_MAX];
	int n;
};

static void prepare(struct client *client)
{
	sql(client, sell_many);
}

static void open_connection(struct client *client)
{
	sql(client, "SELECT 1");
}

/* The buyers of the item as an array of PostgreSQL. Returns how many. */
static int buyers_write(const struct batch *batch, int item, char text[BUYERS_SIZE])
{
	char *at = text;
	int n = 0;

	for (int i = 0; i < batch->n; i++)
		if (batch->requests[i]->item == item)
			at += sprintf(at, "%c%d", n++ ? ',' : '{', batch->requests[i]->user);
	strcpy(at, "}");
	return n;
}

static void item_sell(struct client *client, struct batch *batch, int item)
{
	char number[16], buyers[BUYERS_SIZE];
	const char *values[] = { number, buyers };
	PGresult *result;
	int row = 0;

	if (buyers_write(batch, item, buyers) == 0)
		return;
	snprintf(number, sizeof(number), "%d", item);
	result = PQexecParams(client->postgres, "SELECT sell_many($1, $2)", 2, NULL, values, NULL,
			      NULL, 0);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		client_fail("PostgreSQL", "sell_many", PQerrorMessage(client->postgres));
	for (int i = 0; i < batch->n; i++)
		if (batch->requests[i]->item == item)
			batch->outcomes[i] = (enum outcome)atoi(PQgetvalue(result, row++, 0));
	PQclear(result);
}

static void batch_commit(struct client *client, struct batch *batch)
{
	sql(client, "BEGIN");
	for (int item = 1; item <= client->market->items; item++)
		item_sell(client, batch, item);
	sql(client, "COMMIT");
}

static void serve(struct client *client, struct load *load)
{
	struct batch *batch = calloc(1, sizeof(*batch));
	int window = load_window(load) < BATCH_MAX ? load_window(load) : BATCH_MAX;

	check(batch != NULL);
	do {
		batch->n = 0;
		while (batch->n < window &&
		       (batch->requests[batch->n] = load_next(load, &batch->numbers[batch->n])))
			batch->n++;
		if (batch->n == 0)
			break;
		batch_commit(client, batch);
		load_committed(load);
		for (int i = 0; i < batch->n; i++)
			load_answer(load, batch->numbers[i], batch->outcomes[i]);
	} while (batch->n == window);
	free(batch);
}

const struct way way_combiner = {
	.id = "11",
	.name = "a combiner, PostgreSQL",
	.is_unique = 1,
	.is_batch = 1,
	.prepare = prepare,
	.open = open_connection,
	.serve = serve,
};
