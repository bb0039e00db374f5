/*
 * couponctl list, history, show, export and installation show --event-log: what there is. show
 * prints the state of one coupon in PostgreSQL and in Redis, side by side; export its user coupons,
 * at one moment.
 */
#include "common/changes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/message/json.h"
#include "common/rabbit/cluster.h"
#include "coupon/redis_coupon.h"
#include "ctl/money.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMANDS_COUNT 100 /* of history, by default */

static int length_read(struct redis_client *redis, int64_t coupon, const char *command,
		       enum coupon_key which, int64_t *n)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(coupon, which, key) };

	return redis_client_integer(redis, 2, argv, n);
}

/* Since when Redis has all that orders have done, of all coupons. 0, or -1. */
static int uses_add(struct redis_client *redis, cJSON *object)
{
	const char *hmget[] = { "HMGET", CHANGES_KEY, "uses_since", "uses_bytes" };
	redisReply *reply = redis_client_call(redis, 4, hmget);
	char text[CLOCK_RFC3339_SIZE];
	int64_t since_ms;

	if (!reply)
		return -1;
	if (reply->element[0]->str && reply->element[1]->str) {
		since_ms = strtoll(reply->element[0]->str, NULL, 10);
		output_text(object, "uses_since", since_ms ? clock_rfc3339(since_ms, text) : NULL);
		output_number(object, "uses_bytes", strtoll(reply->element[1]->str, NULL, 10));
	}
	freeReplyObject(reply);
	return 0;
}

/* Reads what Redis has, unless it is known to fail; it becomes `c` as well. */
static cJSON *redis_json(struct redis_client *redis, int64_t coupon, int fails,
			 struct redis_coupon *c)
{
	int loaded = fails ? -1 : redis_coupon_read(redis, coupon, c);
	cJSON *object = output_object(), *rebuild;
	struct redis_filled filled;
	int64_t outbox, dead; /* messages that are in the dead-letter queue, or were dropped */

	if (loaded < 0 || length_read(redis, coupon, "HLEN", COUPON_KEY_OUTBOX, &outbox) ||
	    length_read(redis, coupon, "SCARD", COUPON_KEY_DEAD, &dead) ||
	    uses_add(redis, object)) {
		output_text(object, "error", redis_client_error(redis));
		return object;
	}
	output_bool(object, "loaded", loaded);
	output_number(object, "outbox", outbox);
	output_number(object, "dead", dead);
	if (redis_coupon_filled(redis, coupon, &filled)) { /* a rebuild is under way */
		rebuild = output_object();
		output_number(rebuild, "filled", filled.filled);
		output_number(rebuild, "rows", filled.rows);
		output_number(rebuild, "seconds", filled.ms / 1000);
		output_number(rebuild, "seconds_left", filled.left_s);
		output_add(object, "rebuild", rebuild);
	}
	if (!loaded)
		return object;
	output_text(object, "status", c->status);
	output_number(object, "version", c->version);
	output_number(object, "total", c->total);
	output_number(object, "stock", c->stock);
	output_number(object, "taken", redis_coupon_taken(c));
	output_number(object, "reserved", c->reserved);
	output_number(object, "lost", c->lost);
	output_number(object, "generation", c->generation);
	output_number(object, "seq", c->seq);
	output_text(object, "run_id", c->run_id);
	output_bool(object, "verified", redis_coupon_is_verified(redis, c));
	return object;
}

static const char show_template[] =
	"coupon {coupon} \"{name}\", {state}[pause_reason  by its {pause_reason}], {limit} for "
	"each user\n"
	"  from         {begin|at once}\n"
	"  until        {end|no end}\n"
	"[valid_days   valid        {valid_days} days from the receive\n]"
	"[valid_from   valid        {valid_from} to {valid_to}\n]"
	"[!valid_days [!valid_from   valid        from the receive, without an end\n]]"
	"[discount.amount_off   discount     {discount.amount_off} {discount.currency}\n]"
	"[discount.percent_off   discount     {discount.percent_off} %\n]"
	"[discount.cap   at most      {discount.cap} {discount.currency}\n]"
	"[discount.threshold   for          purchases of {discount.threshold} "
	"{discount.currency} and more\n]"
	"[budget.name   budget       {budget.name}: {budget.left} of {budget.amount} "
	"{discount.currency} are left\n]"
	"[metadata   metadata     {metadata}\n]"
	"[events   events       on\n]"
	"\n"
	"  {:-12} {:4}PostgreSQL {:9}Redis\n"
	"  status       {postgresql.status:14} [redis.error    unreachable]"
	"[!redis.error {redis.status:14|not loaded}]\n"
	"  version      {postgresql.version:14} {redis.version:14}\n"
	"  total        {postgresql.total:14} {redis.total:14}\n"
	"  stock        {:14} {redis.stock:14}\n"
	"  taken        {:14} {redis.taken:14}\n"
	"  reserved     {:14} {redis.reserved:14}\n"
	"[redis.lost   lost         {:14} {redis.lost:14}\n]"
	"  issued       {postgresql.issued:14} {:14}\n"
	"  rejected     {postgresql.rejected:14} {:14}\n"
	"  generation   {postgresql.generation:14} {redis.generation:14}\n"
	"  seq          {postgresql.seq:14} {redis.seq:14}\n"
	"  settled      {postgresql.settled:14} {:14}\n"
	"  outbox       {:14} {redis.outbox:14}\n"
	"  dead letters {:14} {redis.dead:14}\n"
	"\n"
	"  in flight    {in_flight}\n"
	"[uncopied   gateways     {uncopied} may have receives that neither RabbitMQ nor Redis "
	"has\n]"
	"[refused   refused      {refused}\n]"
	"[outcome_at   last outcome {outcome_at}\n]"
	"[redis.rebuild   rebuild      {redis.rebuild.filled} of {redis.rebuild.rows} user coupons "
	"in {redis.rebuild.seconds} s, about {redis.rebuild.seconds_left} s left\n]"
	"[redis.uses_bytes   uses         {redis.uses_bytes:,} bytes of all coupons in Redis, "
	"since {redis.uses_since|COUPON_KEEP_USES_S ago}\n]"
	"[redis.error   Redis        {redis.error}\n]"
	"[redis.run_id   run id       {redis.run_id}, [!redis.verified not ]verified on this Redis "
	"process[!redis.verified  yet]\n]";

/* What the management API tells of the queues; NULL: it is not to be asked. */
static cJSON *rabbitmq_json(const struct config *config)
{
	char error[RABBIT_ERROR_SIZE];
	cJSON *object;

	if (!*config->rabbitmq_api)
		return NULL;
	object = rabbit_cluster_read(config->rabbitmq_api, config->amqp_url, NULL, error);
	if (!object) {
		object = output_object();
		output_text(object, "error", error);
	} else {
		rabbit_cluster_warnings(object, cJSON_AddArrayToObject(object, "warnings"));
	}
	return object;
}

static void rabbitmq_print(const cJSON *rabbitmq)
{
	const cJSON *item;

	output_template("\n[error   RabbitMQ     {error}\n]", rabbitmq);
	cJSON_ArrayForEach(item, cJSON_GetObjectItem(rabbitmq, "queues"))
	{
		output_template("  {name:-21}  {messages|?} messages, led by {leader|no node}; ",
				item);
		printf("%d of %d members online\n",
		       cJSON_GetArraySize(cJSON_GetObjectItem(item, "online")),
		       cJSON_GetArraySize(cJSON_GetObjectItem(item, "members")));
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItem(rabbitmq, "warnings"))
		printf("  %s\n", cJSON_GetStringValue(item));
}

static int show_run(struct ctl *ctl)
{
	static const char *const amounts[] = { "discount.amount_off", "discount.cap",
					       "discount.threshold", "budget.left",
					       "budget.amount" };
	int64_t coupon = args_coupon(&ctl->args), behind = -1, unseen;
	int as_json = args_has(&ctl->args, "json"), failed;
	struct db *db = store_postgres_open(ctl);
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);
	cJSON *object = output_object(), *side, *gateways = NULL,
	      *rabbitmq = rabbitmq_json(&ctl->config);
	struct redis_coupon in_redis = { 0 };
	char text[STORE_GATEWAYS_SIZE];
	PGresult *row;

	if (redis_client_open(redis) == 0)
		behind = behind_read(db, redis);
	/* PostgreSQL is read first: then every settled receive is in the state of Redis. */
	row = store_coupon_row(db, sql_query_coupon_show, coupon);
	side = redis_json(redis, coupon, behind < 0, &in_redis);
	if (!cJSON_HasObjectItem(side, "error"))
		gateways = store_gateways_lacking(db, redis);
	failed = cJSON_HasObjectItem(side, "error") || cJSON_HasObjectItem(rabbitmq, "error");
	redis_client_free(redis);
	/* What Redis has given out in this generation and PostgreSQL has not seen is in flight. */
	unseen = in_redis.seq - column_number(row, 0, "postgresql.seq");
	if (unseen < 0 || in_redis.generation != column_number(row, 0, "postgresql.generation"))
		unseen = 0;
	output_row(object, row, 0);
	cJSON_DeleteItemFromObject(object, "in_flight");
	output_add(object, "redis", side);
	if (cJSON_GetArraySize(gateways) > 0)
		output_text(object, "uncopied", store_gateways_text(gateways, text));
	cJSON_Delete(gateways);
	output_number(object, "in_flight", column_number(row, 0, "in_flight") + unseen);
	if (behind < 0)
		output_null(object, "behind");
	else
		output_number(object, "behind", behind);
	for (size_t i = 0; !as_json && i < sizeof(amounts) / sizeof(amounts[0]); i++)
		output_money(object, amounts[i], column_text(row, 0, "discount.currency"));
	if (rabbitmq && as_json)
		output_add(object, "rabbitmq", rabbitmq);
	output_say(object, show_template, as_json);
	if (rabbitmq && !as_json) {
		rabbitmq_print(rabbitmq);
		cJSON_Delete(rabbitmq);
	}
	if (!as_json && behind > 0)
		printf("\n" BEHIND_TEXT "\n", (long long)behind);
	PQclear(row);
	db_close(db);
	return failed ? CTL_AWAY : CTL_DONE;
}

static void list_row_print(void *context, const PGresult *page, int row)
{
	cJSON *object = output_object();

	output_row(object, page, row);
	output_say(object,
		   "{coupon:-20} {state:-10} {total:12} {issued:12} {limit:5}  {begin:-24|-}  "
		   "{end:-24|-}  {name}\n",
		   *(const int *)context);
}

static int list_run(struct ctl *ctl)
{
	int64_t after = args_id(&ctl->args, "after"), count = args_count(&ctl->args, INT64_MAX);
	int as_json = args_has(&ctl->args, "json");
	struct db *db = store_postgres_open(ctl);

	if (!as_json)
		printf("%-20s %-10s %12s %12s %5s  %-24s  %-24s  %s\n", "coupon", "state", "total",
		       "issued", "limit", "begin", "end", "name");
	store_coupons_read(db, sql_query_coupon_list, after, count, list_row_print, &as_json);
	db_close(db);
	return 0;
}

/* What a term is, or was, with this currency; to be freed. */
static char *term_text(const char *term, const cJSON *value, const char *currency)
{
	static const char *const amounts[] = { "amount_off", "cap", "threshold" };
	char money[MONEY_SIZE], *text;

	for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++)
		if (currency && cJSON_IsNumber(value) && strcmp(term, amounts[i]) == 0) {
			money_text((int64_t)value->valuedouble, currency, money);
			check(asprintf(&text, "%s %s", money, currency) > 0);
			return text;
		}
	text = json_write(value);
	return text ? text : checked(strdup(""));
}

/* "total_num: 10 -> 20"; `currency` is that of the coupon after the changes. */
static void changes_print(const char *text, const char *currency)
{
	cJSON *changes = cJSON_Parse(text);
	const cJSON *change, *moved = cJSON_GetObjectItemCaseSensitive(changes, "currency");
	const char *currency_before = moved ? cJSON_GetStringValue(cJSON_GetArrayItem(moved, 0))
					    : currency;

	cJSON_ArrayForEach(change, changes)
	{
		char *before = term_text(change->string, cJSON_GetArrayItem(change, 0),
					 currency_before),
		     *after = term_text(change->string, cJSON_GetArrayItem(change, 1), currency);

		printf("    %s: %s -> %s\n", change->string, before, after);
		free(before);
		free(after);
	}
	cJSON_Delete(changes);
}

static void entry_print(const PGresult *entries, int row)
{
	const char *from = column_text(entries, row, "from"), *to = column_text(entries, row, "to");
	cJSON *entry = output_object();

	output_row(entry, entries, row);
	output_template("{at}  version {version:-3}  {action:-8} ", entry);
	if (*from && strcmp(from, to) != 0)
		printf("%s -> ", from);
	output_say(entry, "{to}, by {by}\n", 0);
	changes_print(column_text(entries, row, "changes"), column_text(entries, row, "currency"));
}

/* What was asked for, of any kind, the latest first; or what happened to one campaign, in order. */
static int history_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t coupon = args_coupon(args), after = args_id(args, "after"),
		count = args_count(args, coupon ? PAGE_COUNT_MAX : COMMANDS_COUNT);
	struct db *db = store_postgres_open(ctl);
	PGresult *entries;

	if (coupon) {
		PQclear(store_coupon_row(db, sql_query_coupon_issued, coupon));
		entries = db_ask(db, sql_query_coupon_history, postgres_number(coupon),
				 postgres_number(after), postgres_number(count));
	} else {
		entries = db_ask(db, sql_query_command_list, db_id(after), postgres_number(count));
	}
	db_close(db);
	if (!coupon || args_has(args, "json")) {
		output_rows(entries, NULL, "{id:-6} {at}  {status|-}  {by}: {command}{words}\n",
			    args_has(args, "json"));
		return CTL_DONE;
	}
	for (int row = 0; row < PQntuples(entries); row++)
		entry_print(entries, row);
	PQclear(entries);
	return CTL_DONE;
}

static int events_run(struct ctl *ctl)
{
	struct db *db = store_postgres_open(ctl);
	PGresult *lag = db_ask(db, sql_query_event_log_lag);
	int64_t allowed = ctl->config.event_log_max, waiting = column_number(lag, 0, "events_num");
	cJSON *object = output_object();

	output_number(object, "waiting", waiting);
	output_number(object, "allowed", allowed);
	output_number(object, "transactions", column_number(lag, 0, "rows_num"));
	output_number(object, "oldest_ms", column_number(lag, 0, "age_ms"));
	output_number(object, "bytes", column_number(lag, 0, "size_bytes"));
	output_number(object, "relays", column_number(lag, 0, "relays_num"));
	output_say(object,
		   "events that wait    {waiting:,} of {transactions} transactions; {allowed:,} "
		   "are allowed\n"
		   "the oldest          {oldest_ms} ms\n"
		   "log on disk         {bytes:,} bytes\n"
		   "workers' relays     {relays}\n",
		   args_has(&ctl->args, "json"));
	if (waiting > allowed)
		fputs("couponctl: more events wait than COUPON_EVENT_LOG_MAX allows\n", stderr);
	PQclear(lag);
	db_close(db);
	return waiting > allowed ? CTL_FAILED : CTL_DONE;
}

const struct command list_command = {
	.name = "list",
	.run = list_run,
	.options = OPTIONS(PAGE_OPTIONS("ID", "coupon", "all")),
	.summary = "list the coupons by id",
};

const struct command history_command = {
	.name = "history",
	.run = history_run,
	.argument = "[ID]",
	.options = OPTIONS(PAGE_OPTIONS("N", "entry", "100; of a campaign all")),
	.summary = "print who has asked for what change; of a campaign, each change of it",
	.detail =
		"Without an ID, each command that changes something, the latest first: recorded\n"
		"before it does, with its exit status when it has ended. The last 100,000 are\n"
		"kept, without exchange codes.\n"
		"With an ID every change of that campaign, in order: when, by whom, from what to\n"
		"what. PostgreSQL records it, whoever makes it. When a campaign opened within its\n"
		"window the clock decided; that is an entry as well.",
};

const struct command installation_events_command = {
	.name = "installation show --event-log",
	.run = events_run,
	.options = OPTIONS(SWITCH("event-log", "how far the events are behind instead")),
	.summary = "print how many events wait to be published, and for how long",
	.detail =
		"The exit status is 1 when more wait than COUPON_EVENT_LOG_MAX. Whether a coupon\n"
		"has events: couponctl create and edit, --events on|off.",
};

const struct command show_command = {
	.name = "show",
	.run = show_run,
	.argument = "ID",
	.modes = COMMANDS(&show_curve_command, &show_recent_command),
	.summary = "print the state of a coupon in PostgreSQL and in Redis",
	.detail =
		"With COUPON_RABBITMQ_API also the queues of RabbitMQ: on how many nodes each has\n"
		"members, which of them leads, and how many messages it has.",
};

/*
 * The user coupons of a coupon, through a cursor in one read-only transaction, a page at a time:
 * rows that are inserted meanwhile are not seen, no row is locked, and neither program nor server
 * holds more than a page.
 */
struct export
{
	int64_t coupon, total, done;
	struct sheet sheet;
	struct progress progress;
};

static const char *const columns[] = { "user",       "receive",   "slot", "received_at",
				       "valid_from", "valid_to",  "key",  "use",
				       "use_order",  "use_until", NULL };

static void row_write(struct export *export, const PGresult *page, int row)
{
	char receive[STORE_RECEIVE_SIZE];

	sheet_row(&export->sheet,
		  (const struct cell[]){
			  cell_text(column_text(page, row, "user_id")),
			  cell_text(store_receive_text(page, row, export->coupon, receive)),
			  cell_json(column_text(page, row, "slot")),
			  cell_text(column_text(page, row, "received_at")),
			  cell_text(column_text(page, row, "valid_from")),
			  cell_text(column_text(page, row, "valid_to")),
			  cell_text(column_text(page, row, "key")),
			  cell_text(column_text(page, row, "use")),
			  cell_text(column_text(page, row, "use_order")),
			  cell_text(column_text(page, row, "use_until")) });
}

/* 0: there are no more rows, or the file cannot be written. */
static int page_write(struct export *export, struct db *db)
{
	PGresult *page = db_page(db);
	int n = PQntuples(page), failed;

	for (int row = 0; row < n; row++)
		row_write(export, page, row);
	fflush(export->sheet.file);
	failed = sheet_failed(&export->sheet); /* here: it keeps errno */
	PQclear(page);
	export->done += n;
	if (isatty(STDERR_FILENO))
		progress_show(&export->progress, "exporting", export->done, export->total);
	return !failed && n > 0;
}

static int export_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *path = args_text(args, "out");
	struct export export = { .coupon = args_coupon(args),
				 .sheet = { .format = sheet_format_read(args, NULL),
					    .columns = columns,
					    .csv_end = CSV_END } };
	struct db *db;
	PGresult *row;

	if (path && !*path)
		args_fail("--out is \"\": allowed is the path of a file");
	export.sheet.reader = sheet_reader_read(args, export.sheet.format);
	db = store_postgres_open(ctl);
	db_run(db, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
	row = store_coupon_row(db, sql_query_coupon_issued, export.coupon);
	export.total = column_number(row, 0, "issued_num");
	PQclear(row);
	sheet_begin(&export.sheet, path);
	db_pages_begin(db, sql_query_export_rows, postgres_number(export.coupon));
	while (page_write(&export, db))
		;
	db_pages_end(db);
	db_run(db, "COMMIT");
	db_close(db);
	progress_end(&export.progress);
	sheet_end(&export.sheet, FILE_REPLACE);
	return 0;
}

const struct command export_command = {
	.name = "export",
	.has_no_json = 1,
	.run = export_run,
	.argument = "ID",
	.options = OPTIONS(
		OPTION("format", "FORMAT", "csv (default) or jsonl: a line of JSON for each"),
		OPTION("out", "FILE",
		       "the file, which appears when it is complete; default: standard output"),
		SPREADSHEET_OPTION),
	.summary = "write the user coupons of a coupon as CSV or JSON lines",
	.detail = "All are of one moment. Columns: user, receive, slot, received_at, valid_from,\n"
		  "valid_to, key, and which order has it: use, use_order, use_until.",
};
