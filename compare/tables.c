#include "compare/tables.h"

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
