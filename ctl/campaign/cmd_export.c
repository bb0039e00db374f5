/*
 * couponctl export: the user coupons of a campaign at one moment. They are read through a cursor in
 * one read-only transaction, a page at a time: rows that are inserted meanwhile are not seen, no
 * row is locked, and neither program nor server holds more than a page.
 */
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "embed.h"

#include <stdio.h>
#include <unistd.h>

static const char *const columns[] = { "user",       "receive",   "slot", "received_at",
				       "valid_from", "valid_to",  "key",  "use",
				       "use_order",  "use_until", NULL };

static int export_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *path = args_text(args, "out");
	struct sheet sheet = { .format = sheet_format_read(args, NULL),
			       .columns = columns,
			       .csv_end = CSV_END };
	int64_t coupon = args_id_argument(args), total, done = 0;
	char receive[STORE_RECEIVE_SIZE];
	struct progress progress = { 0 };
	int rows_n, failed;
	struct db *db;
	PGresult *coupon_row;

	if (path && !*path)
		args_fail("--out is \"\": allowed is the path of a file");
	sheet.reader = sheet_reader_read(args, sheet.format);
	db = store_postgres_open(ctl);
	db_run(db, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
	coupon_row = store_coupon_row(db, sql_query_coupon_issued, coupon);
	total = column_number(coupon_row, 0, "issued_num");
	PQclear(coupon_row);
	sheet_begin(&sheet, path);

	db_pages_begin(db, sql_query_export_rows, postgres_number(coupon));
	do {
		PGresult *page = db_page(db);

		rows_n = PQntuples(page);
		for (int row = 0; row < rows_n; row++)
			sheet_row(&sheet,
				  (const struct cell[]){
					  cell_text(column_text(page, row, "user_id")),
					  cell_text(store_receive_text(page, row, coupon, receive)),
					  cell_json(column_text(page, row, "slot")),
					  cell_text(column_text(page, row, "received_at")),
					  cell_text(column_text(page, row, "valid_from")),
					  cell_text(column_text(page, row, "valid_to")),
					  cell_text(column_text(page, row, "key")),
					  cell_text(column_text(page, row, "use")),
					  cell_text(column_text(page, row, "use_order")),
					  cell_text(column_text(page, row, "use_until")) });
		fflush(sheet.file);
		failed = sheet_failed(&sheet); /* here: it keeps errno */
		PQclear(page);
		done += rows_n;
		if (isatty(STDERR_FILENO))
			progress_show(&progress, "exporting", done, total);
	} while (rows_n > 0 && !failed);
	db_pages_end(db);
	db_run(db, "COMMIT");
	db_close(db);
	progress_end(&progress);
	sheet_end(&sheet, FILE_REPLACE);
	return 0;
}

const struct command export_command = {
	.name = "export",
	.has_no_json = 1,
	.run = export_run,
	.argument = "ID",
	.options = OPTIONS(
		OPTION_WORDS("format", "FORMAT", sheet_format_names,
			     "csv (default) or jsonl: one JSON object a line"),
		OPTION("out", "FILE",
		       "the file to write, which appears when it is complete; default: standard "
		       "output"),
		SPREADSHEET_OPTION),
	.summary = "write the user coupons of a campaign as CSV or JSON lines",
	.detail =
		"The rows show one moment. The columns are user, receive, slot, received_at,\n"
		"valid_from, valid_to, key, and, if an order has the receive, use, use_order and\n"
		"use_until.",
};
