/*
 * couponctl show: the state of one coupon in PostgreSQL and in Redis, side by side; with --curve
 * how the sale of the coupon went, in the rows that keepers have written; with --recent its latest
 * receives. couponctl list: all campaigns. couponctl history: the commands that were run, or the
 * changes of one campaign.
 */
#include "common/changes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/message/json.h"
#include "common/rabbit/topology.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "ctl/times.h"
#include "embed.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_N 8 /* of sql_query_curve_rows */
#define RECENT_COUNT 20
#define RECENT_MAX 1000
#define COMMANDS_COUNT 100 /* of the history, by default */
#define TEXT_BYTES_MAX 200 /* of what is searched for */

static int curve_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int as_json = args_has(args, "json");
	int64_t coupon = args_id_argument(args),
		after = args_number(args, "after", 0, INT32_MAX, 0),
		count = args_count(args, PAGE_COUNT_MAX);
	const char *columns[COLUMNS_N + 1] = { NULL };
	struct sheet sheet = { .format = SHEET_CSV, .columns = columns, .csv_end = CSV_END };
	struct cell cells[COLUMNS_N];
	struct db *db;
	PGresult *rows;

	if (as_json && args_has(args, "csv"))
		args_fail("show --curve takes --json or --csv, not both");
	db = store_postgres_open(ctl);
	PQclear(store_coupon_row(db, sql_query_coupon_issued, coupon));
	rows = db_ask(db, sql_query_curve_rows, postgres_number(coupon), postgres_number(after),
		      postgres_number(count));
	db_close(db);
	if (!args_has(args, "csv")) {
		output_rows(
			rows,
			"   num  at                              total        stock        taken"
			"       issued     rejected      refused\n",
			"{num:6}  {at:-24} {total:12} {stock:12} {taken:12} {issued:12} "
			"{rejected:12} {refused:12}\n",
			as_json);
		return 0;
	}

	for (int column = 0; column < COLUMNS_N; column++)
		columns[column] = PQfname(rows, column);
	sheet_begin(&sheet, NULL);
	for (int row = 0; row < PQntuples(rows); row++) {
		for (int column = 0; column < COLUMNS_N; column++)
			cells[column] = cell_text(PQgetvalue(rows, row, column));
		sheet_row(&sheet, cells);
	}
	sheet_end(&sheet, FILE_REPLACE);
	PQclear(rows);
	return 0;
}

static const struct command show_curve_command = {
	.name = "show --curve",
	.run = curve_run,
	.argument = "ID",
	.options = OPTIONS(SWITCH("curve", "print how the sale went instead"),
			   PAGE_OPTIONS("ROW", "row", "all"), SWITCH("csv", "print CSV")),
	.summary = "print how the sale of a coupon went: stock, taken, issued, rejected, refused",
	.detail =
		"A keeper writes a row every second for the first 600 rows, then every minute, "
		"and\n"
		"every hour after 10,000 rows, but only if something has changed since the last\n"
		"row. Rows are kept for 400 days. While no keeper is elected, no rows are written.",
};

static int recent_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t coupon = args_id_argument(args),
		count = args_number(args, "count", 1, RECENT_MAX, RECENT_COUNT);
	struct db *db = store_postgres_open(ctl);
	char receive[STORE_RECEIVE_SIZE];
	PGresult *rows;

	PQclear(store_coupon_row(db, sql_query_coupon_issued, coupon));
	rows = db_ask(db, sql_query_coupon_recent, postgres_number(coupon), postgres_number(count));
	db_close(db);
	for (int row = 0; row < PQntuples(rows); row++) {
		cJSON *object = output_object();

		output_text(object, "receive", store_receive_text(rows, row, coupon, receive));
		output_text(object, "user", column_text(rows, row, "user_id"));
		output_number(object, "slot", column_number(rows, row, "slot"));
		output_text(object, "received_at", column_text(rows, row, "received_at"));
		output_text(object, "state", column_text(rows, row, "state"));
		output_text(object, "reason", column_text(rows, row, "reason"));
		output_say(object, "{received_at}  {state:-8}[reason  ({reason})]  {receive}\n",
			   args_has(args, "json"));
	}
	PQclear(rows);
	return 0;
}

static const struct command show_recent_command = {
	.name = "show --recent",
	.run = recent_run,
	.argument = "ID",
	.options = OPTIONS(SWITCH("recent", "print the latest receives instead"),
			   OPTION("count", "N", "at most N, 1 to 1000; default: 20")),
	.summary = "print the latest receives of a coupon that have an outcome, newest first",
};

static int length_read(struct redis_client *redis, int64_t coupon, const char *command,
		       enum coupon_key which, int64_t *n)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(coupon, which, key) };

	return redis_client_integer(redis, 2, argv, n);
}

/* Reads the state in Redis, unless it is known that Redis fails; `c` gets the coupon as well. */
static cJSON *redis_json(struct redis_client *redis, int64_t coupon, int fails,
			 struct redis_coupon *c)
{
	int loaded = fails ? -1 : redis_coupon_read(redis, coupon, c);
	cJSON *object = output_object(), *rebuild;
	const char *hmget[] = { "HMGET", CHANGES_KEY, "uses_since", "uses_bytes" };
	char text[CLOCK_RFC3339_SIZE];
	struct redis_filled filled;
	redisReply *uses = NULL;
	int64_t outbox, dead; /* messages that are in the dead-letter queue, or were dropped */

	if (loaded < 0 || length_read(redis, coupon, "HLEN", COUPON_KEY_OUTBOX, &outbox) ||
	    length_read(redis, coupon, "SCARD", COUPON_KEY_DEAD, &dead) ||
	    (uses = redis_client_call(redis, 4, hmget)) == NULL) {
		output_text(object, "error", redis_client_error(redis));
		return object;
	}

	/* Since when Redis has what orders have done with receives of all coupons. */
	if (uses->element[0]->str && uses->element[1]->str) {
		int64_t since_ms = strtoll(uses->element[0]->str, NULL, 10);

		output_text(object, "uses_since", since_ms ? clock_rfc3339(since_ms, text) : NULL);
		output_number(object, "uses_bytes", strtoll(uses->element[1]->str, NULL, 10));
	}
	freeReplyObject(uses);

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
	"  from         {local.begin|at once}\n"
	"  until        {local.end|no end}\n"
	"  time zone    {zone}\n"
	"[valid_days   valid        {valid_days} days from the receive\n]"
	"[valid_from   valid        {local.valid_from} to {local.valid_to}\n]"
	"[!valid_days [!valid_from   valid        from the receive, without an end\n]]"
	"[discount.amount_off   discount     {discount.amount_off} {discount.currency}\n]"
	"[discount.percent_off   discount     {discount.percent_off} %\n]"
	"[discount.cap   at most      {discount.cap} {discount.currency}\n]"
	"[discount.threshold   for          purchases of {discount.threshold} "
	"{discount.currency} and more\n]"
	"[budget.name   budget       {budget.name}: {budget.left} of {budget.amount} "
	"{discount.currency} are left\n]"
	"[metadata   metadata     {metadata}\n]"
	"[events   events       on[tell_before , also {local.tell_before} before the end]\n]"
	"[local.tags   tags         {local.tags}\n]"
	"[hidden   offers       leave it out\n]"
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
	"since {redis.uses_since|seven days ago}\n]"
	"[redis.error   Redis        {redis.error}\n]"
	"[redis.run_id   run id       {redis.run_id}, [!redis.verified not ]verified on this Redis "
	"process[!redis.verified  yet]\n]";

static int show_run(struct ctl *ctl)
{
	static const char *const amounts[] = { "discount.amount_off", "discount.cap",
					       "discount.threshold", "budget.left",
					       "budget.amount" };
	int64_t coupon = args_id_argument(&ctl->args), behind = -1, unseen;
	int as_json = args_has(&ctl->args, "json"), failed;
	struct db *db = store_postgres_open(ctl);
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);
	cJSON *object = output_object(), *side, *gateways = NULL, *rabbitmq = NULL;
	char error[RABBIT_ERROR_SIZE];
	struct redis_coupon in_redis = { 0 };
	char text[STORE_GATEWAYS_SIZE];
	const cJSON *item;
	PGresult *row;

	/* The queues as the management API of RabbitMQ reports them. */
	if (*ctl->config.rabbitmq_api) {
		rabbitmq = rabbit_cluster_read(ctl->config.rabbitmq_api, ctl->config.amqp_url, NULL,
					       error);
		if (!rabbitmq) {
			rabbitmq = output_object();
			output_text(rabbitmq, "error", error);
		} else {
			rabbit_cluster_warnings(rabbitmq,
						cJSON_AddArrayToObject(rabbitmq, "warnings"));
		}
	}

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
	if (as_json)
		cJSON_DeleteItemFromObject(object, "local");
	if (rabbitmq && as_json)
		output_add(object, "rabbitmq", rabbitmq);
	output_say(object, show_template, as_json);

	if (rabbitmq && !as_json) {
		output_template("\n[error   RabbitMQ     {error}\n]", rabbitmq);
		cJSON_ArrayForEach(item, cJSON_GetObjectItem(rabbitmq, "queues"))
		{
			output_template(
				"  {name:-21}  {messages|?} messages, led by {leader|no node}; ",
				item);
			printf("%d of %d members online\n",
			       cJSON_GetArraySize(cJSON_GetObjectItem(item, "online")),
			       cJSON_GetArraySize(cJSON_GetObjectItem(item, "members")));
		}
		cJSON_ArrayForEach(item, cJSON_GetObjectItem(rabbitmq, "warnings"))
			printf("  %s\n", cJSON_GetStringValue(item));
		cJSON_Delete(rabbitmq);
	}
	if (!as_json && behind > 0)
		printf("\n" BEHIND_TEXT "\n", (long long)behind);
	PQclear(row);
	db_close(db);
	return failed ? CTL_AWAY : CTL_DONE;
}

const struct command show_command = {
	.name = "show",
	.run = show_run,
	.argument = "ID",
	.modes = COMMANDS(&show_curve_command, &show_recent_command),
	.summary = "print the state of a coupon in PostgreSQL and in Redis",
	.detail = "If COUPON_RABBITMQ_API is set, the command also prints the queues of RabbitMQ: "
		  "the\n"
		  "number of messages, the node that leads the queue, and how many members it has.",
};

/* ---- list */

static void list_row_print(void *context, const PGresult *page, int row)
{
	cJSON *object = output_object();

	output_row(object, page, row);
	output_say(object,
		   "{coupon:-20} {state:-10} {total:12} {issued:12} {limit:5}  {begin:-24|-}  "
		   "{end:-24|-}  {name}\n",
		   *(const int *)context);
}

static const char *const states[] = { "draft",  "scheduled", "issuing", "sold_out",
				      "paused", "ended",     NULL };
static const char *const sorts[] = { "id", "name", "begin", "end", "total", "issued", NULL };

static void span_check(const struct args *args)
{
	time_check(args, "from");
	time_check(args, "to");
}

/* --from and --to, of which a day is included, as arguments of a statement. */
static void span_read(struct ctl *ctl, struct db *db, struct postgres_argument *from,
		      struct postgres_argument *to)
{
	static const char *const options[] = { "from", "to", NULL };
	char zone[ZONE_SIZE];

	zone_find(ctl, NULL, db, zone);
	zone_warn(ctl, options);
	*from = time_argument(&ctl->args, "from", TIME_BEGIN, db, zone);
	*to = time_argument(&ctl->args, "to", TIME_END, db, zone);
}

static int list_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t after = args_id(args, "after"), count = args_count(args, INT64_MAX),
		skip = args_number(args, "skip", 0, INT32_MAX, 0);
	int as_json = args_has(args, "json"), state = args_choice(args, "state", -1),
	    sort = args_choice(args, "sort", 0), downwards = args_has(args, "descending");
	const char *name = args_bytes(args, "name", TEXT_BYTES_MAX),
		   *tag = args_bytes(args, "tag", TEXT_BYTES_MAX);
	struct postgres_argument from, to;
	struct db *db;
	PGresult *found;

	span_check(args);
	db = store_postgres_open(ctl);
	span_read(ctl, db, &from, &to);
	if (!as_json)
		printf("%-20s %-10s %12s %12s %5s  %-24s  %-24s  %s\n", "coupon", "state", "total",
		       "issued", "limit", "begin", "end", "name");
	if (!name && !tag && state < 0 && sort == 0 && !downwards && skip == 0 &&
	    !args_has(args, "from") && !args_has(args, "to")) {
		store_coupons_read(db, sql_query_coupon_list, after, count, list_row_print,
				   &as_json);
		db_close(db);
		return 0;
	}

	found = db_ask(db, sql_query_coupon_find, postgres_number(after), postgres_number(count),
		       postgres_number(skip), postgres_text(name),
		       postgres_text(state < 0 ? NULL : states[state]), from, to,
		       postgres_text(sorts[sort]), postgres_text(downwards ? "true" : "false"),
		       postgres_text(tag));
	db_close(db);
	for (int row = 0; row < PQntuples(found); row++)
		list_row_print(&as_json, found, row);
	PQclear(found);
	return 0;
}

const struct command list_command = {
	.name = "list",
	.run = list_run,
	.options = OPTIONS(
		PAGE_OPTIONS("ID", "coupon", "all"),
		OPTION("skip", "N", "leave out the first N that match; default: 0"),
		OPTION("name", "TEXT", "those with this text in the name, in any case, or this id"),
		OPTION("tag", "TAG", "those with this tag"),
		OPTION_WORDS("state", "STATE", states,
			     "those in this state: draft, scheduled, issuing, sold_out,\n"
			     "paused or ended"),
		OPTION("from", "T", "those whose window does not end before this time or day"),
		OPTION("to", "T", "those whose window does not begin after this time or day"),
		OPTION_WORDS("sort", "BY", sorts,
			     "in the order of id, name, begin, end, total or issued;\ndefault: id"),
		SWITCH("descending", "the other way round")),
	.summary = "list campaigns: all, or those that match",
};

/* ---- history */

/* The value of a term as a text, to be freed. Amounts are in `currency`. */
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

static const char *const results[] = { "done", "failed", NULL };

static int history_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	static const char *const filters[] = { "who", "what", "from", "to", "result" };
	int64_t coupon = args_id_argument(args), after = args_id(args, "after"),
		count = args_count(args, coupon ? PAGE_COUNT_MAX : COMMANDS_COUNT);
	int result = args_choice(args, "result", -1);
	struct postgres_argument since, until;
	struct db *db;
	PGresult *entries;

	for (size_t i = 0; coupon && i < sizeof(filters) / sizeof(filters[0]); i++)
		if (args_has(args, filters[i]))
			args_fail("%s is for the history of all commands, without an ID",
				  say_option(filters[i]));
	span_check(args);
	db = store_postgres_open(ctl);

	if (coupon) {
		PQclear(store_coupon_row(db, sql_query_coupon_issued, coupon));
		entries = db_ask(db, sql_query_coupon_history, postgres_number(coupon),
				 postgres_number(after), postgres_number(count));
	} else {
		span_read(ctl, db, &since, &until);
		entries = db_ask(db, sql_query_command_list, db_id(after), postgres_number(count),
				 postgres_text(args_bytes(args, "who", TEXT_BYTES_MAX)),
				 postgres_text(args_bytes(args, "what", TEXT_BYTES_MAX)), since,
				 until,
				 postgres_text(result < 0    ? NULL
					       : result == 0 ? "false"
							     : "true"));
	}
	db_close(db);
	if (!coupon || args_has(args, "json")) {
		output_rows(entries, NULL,
			    "{id:-6} {at}  {status|-}  {by}: {command}{words}[why : {why}]\n",
			    args_has(args, "json"));
		return CTL_DONE;
	}
	for (int row = 0; row < PQntuples(entries); row++) {
		const char *from = column_text(entries, row, "from"),
			   *to = column_text(entries, row, "to");
		cJSON *entry = output_object();
		cJSON *changes;
		const cJSON *change, *moved;
		const char *currency, *currency_before;

		output_row(entry, entries, row);
		output_template("{at}  version {version:-3}  {action:-8} ", entry);
		if (*from && strcmp(from, to) != 0)
			printf("%s -> ", from);
		output_say(entry, "{to}, by {by}\n", 0);

		/* "total_num: 10 -> 20" */
		changes = cJSON_Parse(column_text(entries, row, "changes"));
		moved = cJSON_GetObjectItemCaseSensitive(changes, "currency");
		currency = column_text(entries, row, "currency"); /* after the changes */
		currency_before = moved ? cJSON_GetStringValue(cJSON_GetArrayItem(moved, 0))
					: currency;
		cJSON_ArrayForEach(change, changes)
		{
			char *was = term_text(change->string, cJSON_GetArrayItem(change, 0),
					      currency_before),
			     *is = term_text(change->string, cJSON_GetArrayItem(change, 1),
					     currency);

			printf("    %s: %s -> %s\n", change->string, was, is);
			free(was);
			free(is);
		}
		cJSON_Delete(changes);
	}
	PQclear(entries);
	return CTL_DONE;
}

const struct command history_command = {
	.name = "history",
	.run = history_run,
	.argument = "[ID]",
	.options = OPTIONS(PAGE_OPTIONS("N", "entry", "100; of a campaign all"),
			   OPTION("who", "TEXT",
				  "commands of those who have this text in their name"),
			   OPTION("what", "TEXT",
				  "commands with this text in their name or their words"),
			   OPTION("from", "T", "commands since this time or day"),
			   OPTION("to", "T", "commands up to this time or day"),
			   OPTION_WORDS("result", "RESULT", results,
					"commands that are done, or have failed")),
	.summary = "print what was changed: by all commands, or of one campaign",
	.detail =
		"Without an ID, the command prints each command that changes something, the "
		"latest\n"
		"first. A command is recorded before it changes anything, and its exit status, and "
		"why\n"
		"it failed, when it ends. The last 100,000 commands are kept, without exchange "
		"codes.\n"
		"With an ID, it prints every change of that campaign, in order: the time, who "
		"made\n"
		"it, and each term before and after. PostgreSQL records a change whoever makes "
		"it.\n"
		"That a campaign opened by the clock, at its begin, is an entry as well.",
};
