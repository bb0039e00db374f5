/*
 * couponctl show --curve and --recent: how the sale of a coupon went, in the rows that keepers have
 * written; and its latest receives.
 */
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "embed.h"

#include <stdint.h>

#define COLUMNS_N 8
#define RECENT_COUNT 20
#define RECENT_MAX 1000

static void csv_print(const PGresult *rows)
{
	const char *columns[COLUMNS_N + 1] = { NULL };
	struct sheet sheet = { .format = SHEET_CSV, .columns = columns, .csv_end = CSV_END };

	for (int column = 0; column < COLUMNS_N; column++)
		columns[column] = PQfname(rows, column);
	sheet_begin(&sheet, NULL);
	for (int row = 0; row < PQntuples(rows); row++) {
		struct cell cells[COLUMNS_N];

		for (int column = 0; column < COLUMNS_N; column++)
			cells[column] = cell_text(PQgetvalue(rows, row, column));
		sheet_row(&sheet, cells);
	}
	sheet_end(&sheet, FILE_REPLACE);
}

static int curve_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int as_json = args_has(args, "json");
	int64_t coupon = args_coupon(args), after = args_number(args, "after", 0, INT32_MAX, 0),
		count = args_count(args, PAGE_COUNT_MAX);
	struct db *db;
	PGresult *rows;

	if (as_json && args_has(args, "csv"))
		args_fail("show --curve takes --json or --csv, not both");
	db = store_postgres_open(ctl);
	PQclear(store_coupon_row(db, sql_query_coupon_issued, coupon));
	rows = db_ask(db, sql_query_curve_rows, postgres_number(coupon), postgres_number(after),
		      postgres_number(count));
	db_close(db);
	if (args_has(args, "csv")) {
		csv_print(rows);
		PQclear(rows);
		return 0;
	}
	output_rows(rows,
		    "   num  at                              total        stock        taken"
		    "       issued     rejected      refused\n",
		    "{num:6}  {at:-24} {total:12} {stock:12} {taken:12} {issued:12} {rejected:12} "
		    "{refused:12}\n",
		    as_json);
	return 0;
}

const struct command show_curve_command = {
	.name = "show --curve",
	.run = curve_run,
	.argument = "ID",
	.options = OPTIONS(SWITCH("curve", "how the sale went instead"),
			   PAGE_OPTIONS("ROW", "row", "all"), SWITCH("csv", "print CSV")),
	.summary = "print how the sale of a coupon went: stock, taken, issued, rejected, refused",
	.detail = "A keeper adds a row every second for 600 rows, then every minute, after 10,000\n"
		  "rows every hour, only when something has changed. Rows are kept for 400 days.\n"
		  "While there is no keeper, rows are missing.",
};

static int recent_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t coupon = args_coupon(args),
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

const struct command show_recent_command = {
	.name = "show --recent",
	.run = recent_run,
	.argument = "ID",
	.options = OPTIONS(SWITCH("recent", "the latest receives instead"),
			   OPTION("count", "N", "at most N, 1 to 1000; default: 20")),
	.summary = "print the latest receives of a coupon that have an outcome, newest first",
	.detail = "Only the last pages of the tables are read, which have about the latest 30,000\n"
		  "issued receives of all coupons: none is printed of a sale that is longer ago.",
};
