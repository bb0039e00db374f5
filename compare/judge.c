#include "compare/judge.h"

#include <stdlib.h>

/* The last item is of the connections' first sales, and not judged. */
static const char *const tables =
	"DROP SCHEMA IF EXISTS compare CASCADE;"
	"CREATE SCHEMA compare;"
	"SET search_path = compare;"
	"CREATE TABLE item (id bigint PRIMARY KEY, stock bigint NOT NULL,"
	"	version bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 0);"
	"CREATE TABLE segment (item bigint, number bigint, stock bigint NOT NULL,"
	"	PRIMARY KEY (item, number));"
	"CREATE TABLE piece (item bigint, number bigint, PRIMARY KEY (item, number));"
	"CREATE TABLE sale (item bigint NOT NULL, buyer bigint NOT NULL);";

static void script_run(struct client *client, const char *script)
{
	PGresult *result;

	sql(client, "SELECT 1"); /* connects */
	result = PQexec(client->postgres, script);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		client_fail("PostgreSQL", "tables", PQerrorMessage(client->postgres));
	PQclear(result);
}

void tables_make(struct market *market, const struct way *way)
{
	struct client *client = client_new(market);

	if (way->ledger == IN_POSTGRES) {
		script_run(client, tables);
		script_run(client, way->is_unique ? "CREATE UNIQUE INDEX ON sale (item, buyer)"
						  : "CREATE INDEX ON sale (item, buyer)");
		sql(client, "INSERT INTO item SELECT generate_series(1, $1::int), $2",
		    market->items + 1, market->stock);
	}
	redis_run(client, "FLUSHDB");
	if (way->prepare)
		way->prepare(client);
	client_free(client);
}

void tables_drop(struct market *market)
{
	struct client *client = client_new(market);

	script_run(client, "DROP SCHEMA IF EXISTS compare CASCADE");
	redis_run(client, "FLUSHDB");
	client_free(client);
}

struct count {
	long long stock, sold, over_limit;
};

/* In the order of struct count; $1 is the item, or its coupon. */
static const char *const of_tables[] = {
	("SELECT (SELECT stock FROM item WHERE id = $1) + "
	 "(SELECT coalesce(sum(stock), 0) FROM segment WHERE item = $1) + "
	 "(SELECT count(*) FROM piece WHERE item = $1)"),
	"SELECT count(*) FROM sale WHERE item = $1",
	("SELECT count(*) FROM (SELECT FROM sale WHERE item = $1 "
	 "GROUP BY buyer HAVING count(*) > 1) AS twice"),
};
static const char *const of_couponmq[] = {
	"SELECT total_num - issued_num FROM public.coupon WHERE id = $1",
	"SELECT count(*) FROM public.user_coupon WHERE coupon_id = $1",
	("SELECT count(*) FROM (SELECT FROM public.user_coupon WHERE coupon_id = $1 "
	 "GROUP BY user_id HAVING count(*) > 1) AS twice"),
};

static void postgres_count(struct client *client, const char *const statements[3], long long id,
			   struct count *count)
{
	count->stock = sql(client, statements[0], id);
	count->sold = sql(client, statements[1], id);
	count->over_limit = sql(client, statements[2], id);
}

static void item_count(struct client *client, enum ledger ledger, int item, struct count *count)
{
	switch (ledger) {
	case IN_POSTGRES:
		postgres_count(client, of_tables, item, count);
		break;
	case IN_REDIS: /* a set has each user once: nobody can have two */
		count->stock = redis_run(client, "GET stock:%d", item) +
			       redis_run(client, "LLEN tokens:%d", item);
		count->sold = redis_run(client, "SCARD buyers:%d", item);
		break;
	case IN_COUPONMQ:
		postgres_count(client, of_couponmq, client->market->coupons[item], count);
		break;
	}
}

/* How many users want the item. */
static int demand(const struct market *market, int item)
{
	return (market->users - (item - 1) + market->items - 1) / market->items;
}

static long long least(long long a, long long b)
{
	return a < b ? a : b;
}

static long long above_zero(long long n)
{
	return n > 0 ? n : 0;
}

static void item_judge(const struct market *market, int item, const struct count *count,
		       struct verdict *verdict)
{
	verdict->stock += count->stock;
	verdict->sold += count->sold;
	verdict->oversold += above_zero(count->sold - market->stock);
	verdict->miscounted += llabs(count->sold + count->stock - market->stock);
	verdict->over_limit += count->over_limit;
	verdict->unsold += above_zero(least(demand(market, item), market->stock) - count->sold);
}

void judge(struct market *market, const struct way *way, struct verdict *verdict)
{
	struct client *client = client_new(market);

	*verdict = (struct verdict){ 0 };
	for (int item = 1; item <= market->items; item++) {
		struct count count = { 0 };

		item_count(client, way->ledger, item, &count);
		item_judge(market, item, &count, verdict);
	}
	client_free(client);
}
