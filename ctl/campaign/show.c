/*
 * couponctl list, history, events, show: what there is. show has the state of one coupon in
 * PostgreSQL and in Redis, side by side.
 */
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

static const struct column coupon_columns[] = {
	{ "coupon", "id", COLUMN_TEXT },
	{ "state", "state", COLUMN_TEXT },
	{ "limit", "user_limit", COLUMN_NUMBER },
	{ "name", "name", COLUMN_TEXT },
	{ "begin", "begin_at", COLUMN_TEXT },
	{ "end", "end_at", COLUMN_TEXT },
	{ "valid_from", "valid_from", COLUMN_TEXT },
	{ "valid_to", "valid_to", COLUMN_TEXT },
	{ "created_at", "created_at", COLUMN_TEXT },
	{ "updated_at", "updated_at", COLUMN_TEXT },
	{ "outcome_at", "outcome_at", COLUMN_TEXT },
	{ "settled_at", "settled_at", COLUMN_TEXT },
	{ "expires_at", "expires_at", COLUMN_TEXT },
	{ "valid_days", "valid_days", COLUMN_RAW },
	{ .name = NULL },
};

static const struct column discount_columns[] = {
	{ "amount_off", "amount_off", COLUMN_RAW },
	{ "percent_off", "percent_off", COLUMN_RAW },
	{ "cap", "cap", COLUMN_RAW },
	{ "threshold", "threshold", COLUMN_RAW },
	{ "currency", "currency", COLUMN_TEXT },
	{ .name = NULL },
};

static const struct column choice_columns[] = {
	{ "metadata", "metadata", COLUMN_RAW },
	{ "void_returns", "void_returns", COLUMN_BOOL },
	{ "events", "events_on", COLUMN_BOOL },
	{ .name = NULL },
};

static const struct column postgresql_columns[] = {
	{ "status", "status", COLUMN_TEXT },
	{ "version", "version", COLUMN_NUMBER },
	{ "total", "total_num", COLUMN_NUMBER },
	{ "issued", "issued_num", COLUMN_NUMBER },
	{ "rejected", "rejected_num", COLUMN_NUMBER },
	{ "generation", "generation", COLUMN_NUMBER },
	{ "seq", "seq_seen", COLUMN_NUMBER },
	{ "settled", "settled_num", COLUMN_NUMBER },
	{ .name = NULL },
};

static void part_json(cJSON *object, const char *name, const struct column *columns,
		      const PGresult *row)
{
	cJSON *part = output_object();

	output_columns(part, columns, row, 0);
	output_add(object, name, part);
}

static void show_json(const PGresult *row, const struct redis_side *redis)
{
	cJSON *object = output_object();

	output_columns(object, coupon_columns, row, 0);
	part_json(object, "discount", discount_columns, row);
	output_columns(object, choice_columns, row, 0);
	part_json(object, "postgresql", postgresql_columns, row);
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
	output_template("[outcome_at   last outcome {outcome_at}\n]", row, 0);
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

static const char terms_template[] =
	"coupon {id} \"{name}\", {state}, {user_limit} for each user\n"
	"  from         {begin_at|at once}\n"
	"  until        {end_at|no end}\n"
	"[valid_days   valid        {valid_days} days from the receive\n]"
	"[valid_from   valid        {valid_from} to {valid_to}\n]";

static const char discount_template[] =
	"[amount_off   discount     {amount_off} {currency}\n]"
	"[percent_off   discount     {percent_off} %\n]"
	"[cap   at most      {cap} {currency}\n]"
	"[threshold   for          purchases of {threshold} {currency} and more\n]"
	"[metadata   metadata     {metadata}\n]";

static void show_text(const PGresult *row, const struct redis_side *redis)
{
	output_template(terms_template, row, 0);
	if (db_is_null(row, 0, "valid_days") && db_is_null(row, 0, "valid_from"))
		puts("  valid        from the receive, without an end");
	output_template(discount_template, row, 0);
	if (db_is_true(row, 0, "events_on"))
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

static const struct column list_columns[] = {
	{ "coupon", "id", COLUMN_TEXT },          { "name", "name", COLUMN_TEXT },
	{ "status", "status", COLUMN_TEXT },      { "state", "state", COLUMN_TEXT },
	{ "total", "total_num", COLUMN_NUMBER },  { "issued", "issued_num", COLUMN_NUMBER },
	{ "limit", "user_limit", COLUMN_NUMBER }, { "begin", "begin_at", COLUMN_TEXT },
	{ "end", "end_at", COLUMN_TEXT },         { .name = NULL },
};

static void list_row_print(void *context, const PGresult *page, int row)
{
	output_row(page, row, list_columns,
		   "{id:-20} {state:-10} {total_num:12} {issued_num:12} {user_limit:5}  "
		   "{begin_at:-24|-}  {end_at:-24|-}  {name}\n",
		   *(const int *)context);
}

static int list_run(struct ctl *ctl)
{
	int64_t after = args_id(&ctl->args, "after"),
		count = args_number(&ctl->args, "count", 1, INT64_MAX, INT64_MAX);
	int as_json = args_has(&ctl->args, "json");
	struct db *db = store_postgres_open(ctl);

	if (!as_json)
		printf("%-20s %-10s %12s %12s %5s  %-24s  %-24s  %s\n", "coupon", "state", "total",
		       "issued", "limit", "begin", "end", "name");
	store_coupons_read(db, sql_query_coupon_list, after, count, list_row_print, &as_json);
	db_close(db);
	return 0;
}

static const struct column history_columns[] = {
	{ "at", "at", COLUMN_TEXT },          { "by", "made_by", COLUMN_TEXT },
	{ "action", "action", COLUMN_TEXT },  { "from", "from_state", COLUMN_TEXT },
	{ "to", "to_state", COLUMN_TEXT },    { "version", "version", COLUMN_NUMBER },
	{ "changes", "changes", COLUMN_RAW }, { .name = NULL },
};

/* "total_num: 10 -> 20" */
static void changes_print(const char *text)
{
	cJSON *changes = cJSON_Parse(text);
	const cJSON *change;

	cJSON_ArrayForEach(change, changes)
	{
		char *before = cJSON_PrintUnformatted(cJSON_GetArrayItem(change, 0)),
		     *after = cJSON_PrintUnformatted(cJSON_GetArrayItem(change, 1));

		printf("    %s: %s -> %s\n", change->string, before ? before : "",
		       after ? after : "");
		cJSON_free(before);
		cJSON_free(after);
	}
	cJSON_Delete(changes);
}

static void entry_print(const PGresult *entries, int row)
{
	const char *from = db_text(entries, row, "from_state"),
		   *to = db_text(entries, row, "to_state");

	output_template("{at}  version {version:-3}  {action:-8} ", entries, row);
	if (*from && strcmp(from, to) != 0)
		printf("%s -> ", from);
	output_template("{to_state}, by {made_by}\n", entries, row);
	changes_print(db_text(entries, row, "changes"));
}

static int history_run(struct ctl *ctl)
{
	int as_json = args_has(&ctl->args, "json");
	struct db *db = store_postgres_open(ctl);
	PGresult *entries;

	/* At least one. */
	entries = store_coupon_row(db, sql_query_coupon_history, args_coupon(&ctl->args));
	if (as_json)
		output_rows(entries, history_columns, NULL, 1);
	for (int row = 0; row < PQntuples(entries) && !as_json; row++)
		entry_print(entries, row);
	PQclear(entries);
	db_close(db);
	return 0;
}

static void lag_json(const PGresult *lag, int64_t allowed)
{
	cJSON *object = output_object();

	output_number(object, "waiting", db_int(lag, 0, "events_num"));
	output_number(object, "allowed", allowed);
	output_number(object, "transactions", db_int(lag, 0, "rows_num"));
	output_number(object, "oldest_ms", db_int(lag, 0, "age_ms"));
	output_number(object, "bytes", db_int(lag, 0, "size_bytes"));
	output_number(object, "relays", db_int(lag, 0, "relays_num"));
	output_print(object);
}

static void lag_text(const PGresult *lag, int64_t allowed)
{
	char waiting[OUTPUT_GROUPED_SIZE], most[OUTPUT_GROUPED_SIZE], bytes[OUTPUT_GROUPED_SIZE];

	printf("events that wait    %s of %s transactions; %s are allowed\n",
	       output_grouped(db_int(lag, 0, "events_num"), waiting), db_text(lag, 0, "rows_num"),
	       output_grouped(allowed, most));
	printf("the oldest          %s ms\n", db_text(lag, 0, "age_ms"));
	printf("log on disk         %s bytes\n",
	       output_grouped(db_int(lag, 0, "size_bytes"), bytes));
	printf("workers' relays     %s\n", db_text(lag, 0, "relays_num"));
}

static int events_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);
	PGresult *lag = db_ask(db, sql_query_event_log_lag);
	int64_t allowed = ctl->config.event_log_max;
	int is_full = db_int(lag, 0, "events_num") > allowed;

	if (args_has(&ctl->args, "json"))
		lag_json(lag, allowed);
	else
		lag_text(lag, allowed);
	if (is_full)
		fputs("couponctl: more events wait than COUPON_EVENT_LOG_MAX allows\n", stderr);
	PQclear(lag);
	db_close(db);
	return is_full ? 1 : 0;
}

static const struct option show_options[] = {
	SWITCH("json", "print one JSON object"),
	OPTIONS_END,
};

static const struct option list_options[] = {
	OPTION("after", "ID", "only coupons with a higher id"),
	OPTION("count", "N", "at most N coupons"),
	SWITCH("json", "print one JSON object a line"),
	OPTIONS_END,
};

const struct command list_command = {
	.name = "list",
	.run = list_run,
	.options = list_options,
	.summary = "list the coupons by id",
};

static const struct option history_options[] = {
	SWITCH("json", "print one JSON object for each entry"),
	OPTIONS_END,
};

const struct command history_command = {
	.name = "history",
	.run = history_run,
	.argument = "ID",
	.options = history_options,
	.summary = "print every change of a campaign: when, by whom, from what to what",
	.detail = "Changes are recorded by PostgreSQL, whoever makes them. When a campaign opened\n"
		  "within its window the clock decided; that is an entry as well.",
};

const struct command events_command = {
	.name = "events",
	.run = events_run,
	.options = show_options,
	.summary = "print how many events wait to be published, and for how long",
	.detail =
		"The exit status is 1 when more wait than COUPON_EVENT_LOG_MAX. Whether a coupon\n"
		"has events: couponctl create and edit, --events on|off.",
};

const struct command show_command = {
	.name = "show",
	.run = show_run,
	.argument = "ID",
	.options = show_options,
	.summary = "print the state of a coupon in PostgreSQL and in Redis",
};
