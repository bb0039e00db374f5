/*
 * couponctl export: the user coupons of a coupon, at one moment. They are read through a cursor in
 * one read-only transaction, a page at a time: rows that are inserted meanwhile are not seen, no
 * row is locked, and neither program nor server holds more than a page.
 */
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "embed.h"

#include <unistd.h>

struct export
{
	int64_t coupon, total, done;
	struct sheet sheet;
	struct progress progress;
};

static const char *const columns[] = { "user",       "receive",  "slot", "received_at",
				       "valid_from", "valid_to", "key",  NULL };

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
			  cell_text(column_text(page, row, "key")) });
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
	.run = export_run,
	.argument = "ID",
	.options = OPTIONS(
		OPTION("format", "FORMAT", "csv (default) or jsonl: a line of JSON for each"),
		OPTION("out", "FILE",
		       "the file, which appears when it is complete; default: standard output"),
		SPREADSHEET_OPTION),
	.summary = "write the user coupons of a coupon as CSV or JSON lines",
	.detail = "All are of one moment. Columns: user, receive, slot, received_at, valid_from, "
		  "valid_to, key.",
};
