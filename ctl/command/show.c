/* couponctl show: the state of one coupon in PostgreSQL and in Redis, side by side. */
#include "ctl/behind.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

struct redis_side {
	char error[256]; /* "": Redis was read */
	int loaded;
	int verified;
	struct redis_coupon coupon;
	int is_filling; /* a rebuild is under way */
	struct redis_filled filled;
	int64_t outbox;
	int64_t behind; /* transactions that PostgreSQL is behind Redis; below 0: unknown */
	int64_t dead;   /* messages that are in the dead-letter queue, or were dropped from it */
};

static int outbox_length(struct redis_client *redis, int64_t coupon, struct redis_side *side)
{
	char key[COUPON_KEY_SIZE], dead[COUPON_KEY_SIZE];
	const char *hlen[] = { "HLEN", coupon_key(coupon, COUPON_KEY_OUTBOX, key) };
	const char *scard[] = { "SCARD", coupon_key(coupon, COUPON_KEY_DEAD, dead) };

	return redis_client_integer(redis, 2, hlen, &side->outbox) ||
	       redis_client_integer(redis, 2, scard, &side->dead);
}

static void redis_read(struct redis_side *side, struct redis_client *redis, int64_t coupon)
{
	if (side->behind < 0 ||
	    (side->loaded = redis_coupon_read(redis, coupon, &side->coupon)) < 0 ||
	    outbox_length(redis, coupon, side))
		snprintf(side->error, sizeof(side->error), "%s", redis_client_error(redis));
	else
		side->verified = side->loaded && redis_coupon_is_verified(redis, &side->coupon);
	if (!*side->error)
		side->is_filling = redis_coupon_filled(redis, coupon, &side->filled);
}

/* Receives without an outcome: of this generation by the higher number of both stores. */
static int64_t in_flight(const PGresult *row, const struct redis_side *redis)
{
	int64_t seq = db_int(row, 0, "seq_seen");

	if (redis->loaded == 1 && redis->coupon.generation == db_int(row, 0, "generation") &&
	    redis->coupon.seq > seq)
		seq = redis->coupon.seq;
	return seq - db_int(row, 0, "settled_num") + db_int(row, 0, "older_unsettled_num");
}

static cJSON *postgresql_json(const PGresult *row)
{
	cJSON *object = output_object();

	output_text(object, "status", db_text(row, 0, "status"));
	output_number(object, "version", db_int(row, 0, "version"));
	output_number(object, "total", db_int(row, 0, "total_num"));
	output_number(object, "issued", db_int(row, 0, "issued_num"));
	output_number(object, "rejected", db_int(row, 0, "rejected_num"));
	output_number(object, "generation", db_int(row, 0, "generation"));
	output_number(object, "seq", db_int(row, 0, "seq_seen"));
	output_number(object, "settled", db_int(row, 0, "settled_num"));
	return object;
}

static cJSON *filled_json(const struct redis_filled *filled)
{
	cJSON *object = output_object();

	output_number(object, "filled", filled->filled);
	output_number(object, "rows", filled->rows);
	output_number(object, "seconds", filled->ms / 1000);
	output_number(object, "seconds_left", redis_filled_left_s(filled));
	return object;
}

static cJSON *redis_json(const struct redis_side *redis)
{
	const struct redis_coupon *c = &redis->coupon;
	cJSON *object = output_object();

	if (*redis->error) {
		output_text(object, "error", redis->error);
		return object;
	}
	output_bool(object, "loaded", redis->loaded);
	output_number(object, "outbox", redis->outbox);
	output_number(object, "dead", redis->dead);
	if (redis->is_filling)
		output_add(object, "rebuild", filled_json(&redis->filled));
	if (!redis->loaded)
		return object;
	output_text(object, "status", c->status);
	output_number(object, "version", c->version);
	output_number(object, "total", c->total);
	output_number(object, "stock", c->stock);
	output_number(object, "taken", c->total - c->stock - c->reserved - c->lost);
	output_number(object, "reserved", c->reserved);
	output_number(object, "lost", c->lost);
	output_number(object, "generation", c->generation);
	output_number(object, "seq", c->seq);
	output_text(object, "run_id", c->run_id);
	output_bool(object, "verified", redis->verified);
	return object;
}

static const char *const plain_columns[][2] = {
	{ "name", "name" },
	{ "begin", "begin_at" },
	{ "end", "end_at" },
	{ "valid_from", "valid_from" },
	{ "valid_to", "valid_to" },
	{ "created_at", "created_at" },
	{ "updated_at", "updated_at" },
	{ "outcome_at", "outcome_at" },
	{ "settled_at", "settled_at" },
	{ "expires_at", "expires_at" },
};

#define PLAIN_COLUMNS_N (sizeof(plain_columns) / sizeof(plain_columns[0]))

/* A number, or a JSON text, as PostgreSQL writes it; null without one. */
static void raw_json(cJSON *object, const char *name, const PGresult *row, const char *column)
{
	if (db_is_null(row, 0, column))
		output_null(object, name);
	else
		output_add(object, name, cJSON_CreateRaw(db_text(row, 0, column)));
}

static cJSON *discount_json(const PGresult *row)
{
	cJSON *object = output_object();

	raw_json(object, "amount_off", row, "amount_off");
	raw_json(object, "percent_off", row, "percent_off");
	raw_json(object, "cap", row, "cap");
	raw_json(object, "threshold", row, "threshold");
	output_text(object, "currency", db_text(row, 0, "currency"));
	return object;
}

static void show_json(const PGresult *row, const struct redis_side *redis)
{
	cJSON *object = output_object();

	output_text(object, "coupon", db_text(row, 0, "id"));
	output_text(object, "state", db_text(row, 0, "state"));
	output_number(object, "limit", db_int(row, 0, "user_limit"));
	for (size_t i = 0; i < PLAIN_COLUMNS_N; i++)
		output_text(object, plain_columns[i][0], db_text(row, 0, plain_columns[i][1]));
	raw_json(object, "valid_days", row, "valid_days");
	output_add(object, "discount", discount_json(row));
	raw_json(object, "metadata", row, "metadata");
	output_bool(object, "void_returns", *db_text(row, 0, "void_returns") == 't');
	output_bool(object, "events", *db_text(row, 0, "events_on") == 't');
	output_add(object, "postgresql", postgresql_json(row));
	output_add(object, "redis", redis_json(redis));
	output_number(object, "in_flight", in_flight(row, redis));
	if (redis->behind < 0)
		output_null(object, "behind");
	else
		output_number(object, "behind", redis->behind);
	output_print(object);
}

#define ABSENT INT64_MIN

static void pair_print(const char *label, int64_t left, int64_t right)
{
	char a[24] = "", b[24] = "";

	if (left != ABSENT)
		snprintf(a, sizeof(a), "%lld", (long long)left);
	if (right != ABSENT)
		snprintf(b, sizeof(b), "%lld", (long long)right);
	printf("  %-12s %14s %14s\n", label, a, b);
}

static void sides_print(const PGresult *row, const struct redis_side *redis)
{
	const struct redis_coupon *c = &redis->coupon;
	int has = redis->loaded == 1;

	printf("\n  %-12s %14s %14s\n", "", "PostgreSQL", "Redis");
	printf("  %-12s %14s %14s\n", "status", db_text(row, 0, "status"),
	       has             ? c->status
	       : *redis->error ? "unreachable"
			       : "not loaded");
	pair_print("version", db_int(row, 0, "version"), has ? c->version : ABSENT);
	pair_print("total", db_int(row, 0, "total_num"), has ? c->total : ABSENT);
	pair_print("stock", ABSENT, has ? c->stock : ABSENT);
	pair_print("taken", ABSENT, has ? c->total - c->stock - c->reserved - c->lost : ABSENT);
	pair_print("reserved", ABSENT, has ? c->reserved : ABSENT);
	if (has && c->lost)
		pair_print("lost", ABSENT, c->lost);
	pair_print("issued", db_int(row, 0, "issued_num"), ABSENT);
	pair_print("rejected", db_int(row, 0, "rejected_num"), ABSENT);
	pair_print("generation", db_int(row, 0, "generation"), has ? c->generation : ABSENT);
	pair_print("seq", db_int(row, 0, "seq_seen"), has ? c->seq : ABSENT);
	pair_print("settled", db_int(row, 0, "settled_num"), ABSENT);
	pair_print("outbox", ABSENT, *redis->error ? ABSENT : redis->outbox);
	pair_print("dead letters", ABSENT, *redis->error ? ABSENT : redis->dead);
	printf("\n  in flight    %lld\n", (long long)in_flight(row, redis));
	if (!db_is_null(row, 0, "outcome_at"))
		printf("  last outcome %s\n", db_text(row, 0, "outcome_at"));
	if (redis->is_filling)
		printf("  rebuild      %lld of %lld user coupons in %lld s, about %lld s left\n",
		       (long long)redis->filled.filled, (long long)redis->filled.rows,
		       (long long)redis->filled.ms / 1000,
		       (long long)redis_filled_left_s(&redis->filled));
	if (*redis->error)
		printf("  Redis        %s\n", redis->error);
	else if (has)
		printf("  run id       %s, %s\n", c->run_id,
		       redis->verified ? "verified on this Redis process"
				       : "not verified on this Redis process yet");
}

static void discount_print(const PGresult *row)
{
	const char *currency = db_text(row, 0, "currency");

	if (!db_is_null(row, 0, "amount_off"))
		printf("  discount     %s %s\n", db_text(row, 0, "amount_off"), currency);
	if (!db_is_null(row, 0, "percent_off"))
		printf("  discount     %s %%\n", db_text(row, 0, "percent_off"));
	if (!db_is_null(row, 0, "cap"))
		printf("  at most      %s %s\n", db_text(row, 0, "cap"), currency);
	if (!db_is_null(row, 0, "threshold"))
		printf("  for          purchases of %s %s and more\n", db_text(row, 0, "threshold"),
		       currency);
	if (!db_is_null(row, 0, "metadata"))
		printf("  metadata     %s\n", db_text(row, 0, "metadata"));
}

static void show_text(const PGresult *row, const struct redis_side *redis)
{
	const char *begin = db_text(row, 0, "begin_at"), *end = db_text(row, 0, "end_at");

	printf("coupon %s \"%s\", %s, %s for each user\n", db_text(row, 0, "id"),
	       db_text(row, 0, "name"), db_text(row, 0, "state"), db_text(row, 0, "user_limit"));
	printf("  from         %s\n  until        %s\n", *begin ? begin : "at once",
	       *end ? end : "no end");
	if (!db_is_null(row, 0, "valid_days"))
		printf("  valid        %s days from the receive\n", db_text(row, 0, "valid_days"));
	else if (!db_is_null(row, 0, "valid_from"))
		printf("  valid        %s to %s\n", db_text(row, 0, "valid_from"),
		       db_text(row, 0, "valid_to"));
	else
		puts("  valid        from the receive, without an end");
	discount_print(row);
	if (*db_text(row, 0, "events_on") == 't')
		puts("  events       on");
	sides_print(row, redis);
	if (redis->behind > 0)
		printf("\n" BEHIND_TEXT "\n", (long long)redis->behind);
}

static int show_run(struct ctl *ctl)
{
	int64_t coupon = args_coupon(&ctl->args);
	struct db *db = store_postgres_open(ctl);
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);
	struct redis_side side = { .behind = -1 };
	PGresult *row;

	if (redis_client_open(redis) == 0)
		side.behind = behind_read(db, redis);
	/* PostgreSQL is read first: then every settled receive is in the state of Redis. */
	row = store_coupon_row(db, sql_query_coupon_show, coupon);
	redis_read(&side, redis, coupon);
	redis_client_free(redis);
	if (args_has(&ctl->args, "json"))
		show_json(row, &side);
	else
		show_text(row, &side);
	PQclear(row);
	db_close(db);
	return *side.error ? 1 : 0;
}

static const struct option show_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

const struct command show_command = {
	.name = "show",
	.run = show_run,
	.argument = "ID",
	.options = show_options,
	.summary = "print the state of a coupon in PostgreSQL and in Redis",
};
