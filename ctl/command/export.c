/*
 * couponctl export: the user coupons of a coupon, at one moment. They are read through a cursor in
 * one read-only transaction, a page at a time: rows that are inserted meanwhile are not seen, no
 * row is locked, and neither program nor server holds more than a page.
 */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/ctl.h"
#include "ctl/file.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "embed.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct export
{
	int64_t coupon, total, done;
	const char *path; /* NULL: standard output */
	struct file_new file;
	struct sheet sheet;
	struct progress progress;
};

static const char *const columns[] = { "user",       "receive",  "slot", "received_at",
				       "valid_from", "valid_to", "key",  NULL };

static void options_read(struct export *export, const struct args *args)
{
	*export = (struct export){
		.coupon = args_coupon(args),
		.path = args_text(args, "out"),
		.sheet = { .file = stdout,
			   .format = sheet_format_read(args, NULL),
			   .columns = columns,
			   .csv_end = CSV_END },
	};
	if (export->path && !*export->path)
		args_fail("--out is \"\": allowed is the path of a file");
	export->sheet.reader = sheet_reader_read(args, export->sheet.format);
}

_Noreturn static void write_failed(struct export *export)
{
	int error = errno;

	progress_end(&export->progress);
	if (!export->path)
		log_fatal("standard output cannot be written: %s", strerror(error));
	if (export->file.stream)
		file_new_drop(&export->file);
	log_fatal("--out: %s cannot be written: %s", export->path, file_error(error));
}

static void time_read(const PGresult *page, int row, const char *column,
		      char out[CLOCK_RFC3339_SIZE])
{
	out[0] = '\0';
	if (!db_is_null(page, row, column))
		clock_rfc3339(db_int(page, row, column), out);
}

/* COUPON.USER.BATCH.INDEX. The user is copied as it is, even if it is no valid id. */
static void receive_write(const struct export *export, const PGresult *page, int row, char *out,
			  size_t size)
{
	char batch[ULID_SIZE] = "";
	struct ulid ulid;

	if (ulid_from_uuid(&ulid, db_text(page, row, "batch")) == 0)
		ulid_format(&ulid, batch);
	snprintf(out, size, "%lld.%s.%s.%s", (long long)export->coupon,
		 db_text(page, row, "user_id"), batch, db_text(page, row, "idx"));
}

static void row_write(struct export *export, const PGresult *page, int row)
{
	char receive[2 * RECEIVE_SIZE], received_at[CLOCK_RFC3339_SIZE];
	char valid_from[CLOCK_RFC3339_SIZE], valid_to[CLOCK_RFC3339_SIZE];
	const char *slot = db_text(page, row, "slot");
	struct cell cells[7];

	receive_write(export, page, row, receive, sizeof(receive));
	time_read(page, row, "received_ms", received_at);
	time_read(page, row, "valid_from_ms", valid_from);
	time_read(page, row, "valid_to_ms", valid_to);
	cells[0] = cell_text(db_text(page, row, "user_id"));
	cells[1] = cell_text(receive);
	cells[2] = (struct cell){ .text = slot, .len = strlen(slot), .is_json = 1 };
	cells[3] = cell_text(received_at);
	cells[4] = cell_text(valid_from);
	cells[5] = cell_text(valid_to);
	cells[6] = cell_text(db_text(page, row, "key"));
	sheet_row(&export->sheet, cells);
}

static int page_write(struct export *export, struct db *db)
{
	PGresult *page = db_page(db);
	int n = PQntuples(page);

	errno = 0;
	for (int row = 0; row < n; row++)
		row_write(export, page, row);
	if (ferror(export->sheet.file) || fflush(export->sheet.file))
		write_failed(export);
	PQclear(page);
	export->done += n;
	if (isatty(STDERR_FILENO))
		progress_show(&export->progress, "exporting", export->done, export->total);
	return n;
}

static void rows_write(struct export *export, struct db *db)
{
	char id[DB_NUMBER_SIZE];
	PGresult *row;

	db_run(db, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
	row = store_coupon_row(db, sql_query_coupon_issued, export->coupon);
	export->total = db_int(row, 0, "issued_num");
	PQclear(row);
	if (export->path && file_new_begin(&export->file, export->path))
		write_failed(export);
	if (export->path)
		export->sheet.file = export->file.stream;
	sheet_head(&export->sheet);
	db_pages_begin(db, sql_query_export_rows, 1,
		       (const char *[]){ db_number(export->coupon, id) });
	while (page_write(export, db) > 0)
		;
	db_pages_end(db);
	db_run(db, "COMMIT");
}

static int export_run(struct ctl *ctl)
{
	struct export export;
	struct db *db;

	options_read(&export, &ctl->args);
	db = store_postgres_open(ctl);
	rows_write(&export, db);
	db_close(db);
	if (export.path ? file_new_end(&export.file, FILE_REPLACE) : file_sync(stdout))
		write_failed(&export);
	sheet_fini(&export.sheet);
	progress_end(&export.progress);
	return 0;
}

static const struct option export_options[] = {
	OPTION("format", "FORMAT", "csv (default) or jsonl: a line of JSON for each"),
	OPTION("out", "FILE",
	       "the file, which appears when it is complete; default: standard output"),
	SPREADSHEET_OPTION,
	OPTIONS_END,
};

const struct command export_command = {
	.name = "export",
	.run = export_run,
	.argument = "ID",
	.options = export_options,
	.summary = "write the user coupons of a coupon as CSV or JSON lines",
	.detail = "All are of one moment. Columns: user, receive, slot, received_at, valid_from, "
		  "valid_to, key.",
};
