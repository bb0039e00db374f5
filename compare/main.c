/*
 * Runs one way of selling on the services of the environment, judges it, and prints one object of
 * JSON: compare-way WAY [--users 20000 …]. `compare-way --list` prints the ways. `make compare`
 * runs all of them.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "compare/way.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option_row {
	const char *name;
	int *value;
	int least, most;
	const char *what;
};

static struct market market = {
	.users = 20000,
	.items = 1,
	.stock = 10000,
	.clients = 1000,
	.connections = 16,
	.lease_ms = 10000,
	.pause_every = 0,
	.pause_ms = 500,
	.seed = 1,
};

static const struct option_row options[] = {
	{ "--users", &market.users, 1, 1000000, "every tenth asks three times at once" },
	{ "--items", &market.items, 1, MARKET_ITEMS_MAX, "each user wants one of them" },
	{ "--stock", &market.stock, 1, 1000000, "pieces of each item" },
	{ "--clients", &market.clients, 1, MARKET_CLIENTS_MAX, "requests at once" },
	{ "--connections", &market.connections, 1, 200, "that carry them" },
	{ "--lease-ms", &market.lease_ms, 100, 60000, "of locks" },
	{ "--pause-every", &market.pause_every, 0, 1000000,
	  "a client that has read stops, at every N-th sale" },
	{ "--pause-ms", &market.pause_ms, 1, 60000, "for so long" },
	{ "--meet", &market.is_meeting, 0, 1,
	  "clients write when all have read, each on a connection of its own; not with locks" },
};
#define OPTIONS_N (sizeof(options) / sizeof(options[0]))

static void usage(FILE *out)
{
	fprintf(out, "usage: compare-way WAY [OPTION N]...\n       compare-way --list\n");
	for (size_t i = 0; i < OPTIONS_N; i++)
		fprintf(out, "  %-14s %d, %d to %d: %s\n", options[i].name, *options[i].value,
			options[i].least, options[i].most, options[i].what);
}

_Noreturn static void refuse(const char *name, const char *value, const char *allowed)
{
	fprintf(stderr, "compare: %s is \"%s\"; allowed: %s\n", name, value, allowed);
	exit(2);
}

static const char *setting(const char *name)
{
	const char *value = getenv(name);

	if (!value) {
		fprintf(stderr, "compare: %s is not set; see scripts/stack.sh env\n", name);
		exit(2);
	}
	return value;
}

static const struct way *const tables[] = { ways_postgres, ways_locks,    ways_redis,
					    ways_queue,    ways_couponmq, NULL };

static void list(void)
{
	cJSON *all = cJSON_CreateArray(), *object, *wrong;
	char *text;

	for (int i = 0; tables[i]; i++) {
		for (const struct way *way = tables[i]; way->id; way++) {
			object = cJSON_CreateObject();
			wrong = way->wrong ? cJSON_CreateString(way->wrong) : cJSON_CreateNull();
			cJSON_AddStringToObject(object, "id", way->id);
			cJSON_AddStringToObject(object, "name", way->name);
			cJSON_AddStringToObject(object, "may", way->may ? way->may : "");
			cJSON_AddItemToObject(object, "wrong", wrong);
			cJSON_AddBoolToObject(object, "is_durable", way->ledger != IN_REDIS);
			cJSON_AddBoolToObject(object, "is_batch", way->is_batch);
			cJSON_AddItemToArray(all, object);
		}
	}
	text = cJSON_PrintUnformatted(all);
	puts(text);
	cJSON_free(text);
	cJSON_Delete(all);
}

static const struct way *way_need(const char *id)
{
	for (int i = 0; tables[i]; i++)
		for (const struct way *way = tables[i]; way->id; way++)
			if (strcmp(way->id, id) == 0)
				return way;
	refuse("the way", id, "those of compare-way --list");
}

/* ---- what the ways sell from: tables in the schema `compare`, and a database of Redis */

/* The last item is of the connections' first sales, and not judged. */
static const char *const schema =
	"DROP SCHEMA IF EXISTS compare CASCADE;"
	"CREATE SCHEMA compare;"
	"SET search_path = compare;"
	"CREATE TABLE item (id bigint PRIMARY KEY, stock bigint NOT NULL,"
	"	version bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 0);"
	"CREATE TABLE segment (item bigint, number bigint, stock bigint NOT NULL,"
	"	PRIMARY KEY (item, number));"
	"CREATE TABLE piece (item bigint, number bigint, PRIMARY KEY (item, number));"
	"CREATE TABLE sale (item bigint NOT NULL, buyer bigint NOT NULL);";

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

static void postgres_count(struct seller *seller, const char *const statements[3], long long id,
			   struct count *count)
{
	count->stock = sql(seller, statements[0], id);
	count->sold = sql(seller, statements[1], id);
	count->over_limit = sql(seller, statements[2], id);
}

static long long above_zero(long long n)
{
	return n > 0 ? n : 0;
}

static void judge(const struct way *way, struct sales_result *result)
{
	struct seller *seller = seller_new(&market, way);

	for (int item = 1; item <= market.items; item++) {
		struct count count = { 0 };
		/* How many of the users who want the item can get a piece. */
		long long wanted = (market.users - item + market.items) / market.items;

		if (wanted > market.stock)
			wanted = market.stock;
		switch (way->ledger) {
		case IN_POSTGRES:
			postgres_count(seller, of_tables, item, &count);
			break;
		case IN_REDIS: /* a set has each user once: nobody can have two */
			count.stock = redis_run(seller, "GET stock:%d", item) +
				      redis_run(seller, "LLEN tokens:%d", item);
			count.sold = redis_run(seller, "SCARD buyers:%d", item);
			break;
		case IN_COUPONMQ:
			postgres_count(seller, of_couponmq, market.coupons[item], &count);
			break;
		}
		result->stock += count.stock;
		result->sold += count.sold;
		result->oversold += above_zero(count.sold - market.stock);
		result->miscounted += llabs(count.sold + count.stock - market.stock);
		result->over_limit += count.over_limit;
		result->unsold += above_zero(wanted - count.sold);
	}
	seller_free(seller);
}

static void print(const struct sales_result *result)
{
	const struct {
		const char *name;
		long long value;
	} figures[] = {
		{ "requests", result->requests },
		{ "told_sold", result->told_sold },
		{ "told_failed", result->told_failed },
		{ "attempts", result->attempts ? result->attempts : result->requests },
		{ "attempts_failed", result->attempts_failed },
		{ "answered_us", result->answered_us },
		{ "committed_us", result->committed_us },
		{ "latency_p50_us", result->latency_p50_us },
		{ "latency_p99_us", result->latency_p99_us },
		{ "stock", result->stock },
		{ "sold", result->sold },
		{ "oversold", result->oversold },
		{ "miscounted", result->miscounted },
		{ "over_limit", result->over_limit },
		{ "unsold", result->unsold },
	};

	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		printf("%s\"%s\":%lld", i ? "," : "{", figures[i].name, figures[i].value);
	printf("}\n");
}

int main(int argc, char **argv)
{
	const struct way *way;
	struct sales_result result;
	struct seller *seller;
	const char *redis, *slash;
	char allowed[64], redis_own[256];

	log_init("compare", LOG_LEVEL_WARN, 0);
	if (argc < 2 || strcmp(argv[1], "--help") == 0) {
		usage(argc < 2 ? stderr : stdout);
		return argc < 2 ? 2 : 0;
	}
	if (strcmp(argv[1], "--list") == 0) {
		list();
		return 0;
	}
	way = way_need(argv[1]);
	for (int i = 2; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		size_t at = 0;
		int64_t number;

		while (at < OPTIONS_N && strcmp(options[at].name, argv[i]) != 0)
			at++;
		if (at == OPTIONS_N)
			refuse("the option", argv[i], "those of compare-way --help");
		snprintf(allowed, sizeof(allowed), "%d to %d", options[at].least, options[at].most);
		if (number_parse(value, options[at].most, &number) || number < options[at].least)
			refuse(argv[i], value, allowed);
		*options[at].value = (int)number;
	}
	if (market.is_meeting || market.connections > market.clients)
		market.connections = market.clients;

	/* The ways have a database of Redis for themselves: it is emptied. */
	redis = setting("REDIS_URL");
	slash = strrchr(redis, '/');
	if (!slash || strcmp(slash, "/0") != 0)
		refuse("REDIS_URL", redis, "a URL that ends in /0");
	snprintf(redis_own, sizeof(redis_own), "%.*s/9", (int)(slash - redis), redis);
	market.redis = redis_own;
	market.postgres = setting("DATABASE_ADMIN_URL");
	market.postgres_locks = setting("DATABASE_URL");
	market.rabbit = setting("AMQP_URL");
	market.gateway = setting("COUPON_LISTEN");
	market.zookeeper = getenv("ZOOKEEPER_HOSTS");

	/* Fresh tables and an empty Redis for this way. Needs the role that may create them. */
	seller = seller_new(&market, way);
	if (way->ledger == IN_POSTGRES) {
		sql_script(seller, schema);
		sql_script(seller, way->is_unique ? "CREATE UNIQUE INDEX ON sale (item, buyer)"
						  : "CREATE INDEX ON sale (item, buyer)");
		sql(seller, "INSERT INTO item SELECT generate_series(1, $1::int), $2",
		    market.items + 1, market.stock);
	}
	redis_run(seller, "FLUSHDB");
	if (way->script)
		sql_script(seller, way->script);
	if (way->prepare)
		way->prepare(seller);
	seller_free(seller);

	sales_run(&market, way, &result);
	judge(way, &result);
	seller = seller_new(&market, NULL);
	sql_script(seller, "DROP SCHEMA IF EXISTS compare CASCADE");
	redis_run(seller, "FLUSHDB");
	seller_free(seller);
	print(&result);
	return 0;
}
