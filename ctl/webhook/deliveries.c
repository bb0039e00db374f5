/* couponctl webhook deliveries: the requests that have not arrived yet. */
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/webhook/hook.h"
#include "embed.h"

#include <stdio.h>

#define COUNT_DEFAULT 20
#define COUNT_MAX 10000

static void row_json(const PGresult *rows, int row)
{
	cJSON *object = output_object();

	output_id(object, "delivery", db_int(rows, row, "id"));
	output_text(object, "message", db_text(rows, row, "message"));
	output_id(object, "coupon", db_int(rows, row, "coupon_id"));
	output_text(object, "type", db_text(rows, row, "type"));
	output_number(object, "events", db_int(rows, row, "events_num"));
	output_number(object, "bytes", db_int(rows, row, "bytes_num"));
	output_text(object, "state", db_text(rows, row, "state"));
	output_number(object, "attempts", db_int(rows, row, "attempts"));
	output_text(object, "created_at", db_text(rows, row, "created_at"));
	output_text(object, "next_at", db_text(rows, row, "next_at"));
	output_text(object, "last_at", db_text(rows, row, "last_at"));
	if (db_int(rows, row, "last_status"))
		output_number(object, "last_status", db_int(rows, row, "last_status"));
	else
		output_null(object, "last_status");
	output_text(object, "last_error", db_text(rows, row, "last_why"));
	output_print(object);
}

static void row_print(const PGresult *rows, int row)
{
	const char *next = db_text(rows, row, "next_at"), *why = db_text(rows, row, "last_why");
	int is_answered = db_int(rows, row, "last_status") != 0;

	printf("%-10s %-8s %-20s %-17s %6s %8s  %-24s  %s%s%s\n", db_text(rows, row, "id"),
	       db_text(rows, row, "state"), db_text(rows, row, "coupon_id"),
	       db_text(rows, row, "type"), db_text(rows, row, "events_num"),
	       db_text(rows, row, "attempts"), *next ? next : "-",
	       is_answered ? db_text(rows, row, "last_status") : "", is_answered && *why ? " " : "",
	       why);
}

static const char *state_wanted(const struct args *args)
{
	if (args_has(args, "waiting") && args_has(args, "failed"))
		args_fail("--waiting and --failed are given: allowed is one of them");
	if (args_has(args, "waiting"))
		return "waiting";
	return args_has(args, "failed") ? "failed" : NULL;
}

static int deliveries_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *state = state_wanted(args);
	int64_t webhook = args_argument_id(args), after = args_id(args, "after"),
		count = args_number(args, "count", 1, COUNT_MAX, COUNT_DEFAULT);
	char id[DB_NUMBER_SIZE], from[DB_NUMBER_SIZE], limit[DB_NUMBER_SIZE];
	struct db *db = store_postgres_open(ctl);
	PGresult *rows;

	PQclear(hook_row(db, webhook));
	rows = db_query(db, sql_query_webhook_deliveries, 4,
			(const char *[]){ db_number(webhook, id), state, db_number(after, from),
					  db_number(count, limit) });
	db_close(db);
	if (!args_has(args, "json"))
		printf("%-10s %-8s %-20s %-17s %6s %8s  %-24s  %s\n", "delivery", "state", "coupon",
		       "type", "events", "attempts", "next", "last answer");
	for (int row = 0; row < PQntuples(rows); row++)
		if (args_has(args, "json"))
			row_json(rows, row);
		else
			row_print(rows, row);
	PQclear(rows);
	return 0;
}

static const struct option deliveries_options[] = {
	SWITCH("waiting", "only those that are sent or tried again"),
	SWITCH("failed", "only those that were given up"),
	OPTION("after", "DELIVERY", "only those with a higher id"),
	OPTION("count", "N", "at most N, 1 to 10000; default 20"),
	SWITCH("json", "print one JSON object a line"),
	OPTIONS_END,
};

const struct command webhook_deliveries_command = {
	.name = "webhook deliveries",
	.run = deliveries_run,
	.argument = "ID",
	.options = deliveries_options,
	.summary = "list the requests of a webhook that have not arrived, the oldest first",
	.detail = "A request that has arrived is not kept.",
};
