/*
 * couponctl export: the user coupons of a campaign at one moment. They are read through a cursor in
 * one read-only transaction, a page at a time: rows that are inserted meanwhile are not seen, no
 * row is locked, and neither program nor server holds more than a page.
 */
#include "ctl/codes/stored_codes.h"
#include "ctl/output.h"
#include "ctl/store.h"
#include "ctl/table.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const columns[] = { "user",       "receive",   "slot",   "received_at",
				       "valid_from", "valid_to",  "key",    "code",
				       "use",        "use_order", "use_at", "use_until",
				       "amount_off", "currency",  NULL };

/* The text of an exchange code that was claimed. */
struct code_texts {
	struct ctl *ctl;
	struct db *db;       /* another session: the pages are read over their own */
	struct stored codes; /* of the sets that have generated codes */
	int is_read;
	/* The set of the last one. */
	int64_t set, first;
	struct code_space *space; /* NULL: its key is missing */
	struct code_form form;
	char text[CODE_WIDTH_MAX + 1];
};

static void code_set_read(struct code_texts *texts, int64_t id)
{
	PGresult *sets;

	if (!texts->is_read) {
		texts->db = store_postgres_open(texts->ctl);
		stored_read(&texts->codes, texts->ctl, texts->db);
		texts->is_read = 1;
	}
	sets = db_ask(texts->db, sql_query_code_set_list, db_id(0), db_id(id), postgres_text(NULL));
	texts->set = id;
	texts->space = NULL;
	if (PQntuples(sets) > 0 && !db_is_null(sets, 0, "space_id"))
		texts->space = code_book_space(texts->codes.book,
					       column_number(sets, 0, "space_id"));
	if (texts->space) {
		texts->first = column_number(sets, 0, "first_position");
		stored_form(&texts->form, sets, 0, "pattern");
	}
	PQclear(sets);
}

/*
 * As PostgreSQL has it; of a generated code, which only its key tells, the text if the file of keys
 * has that, else which code it is, as SET.SERIAL.
 */
static const char *code_text(struct code_texts *texts, const PGresult *page, int row)
{
	const char *code = column_text(page, row, "code"),
		   *known = column_text(page, row, "code_text");
	int64_t set = strtoll(code, NULL, 10);
	const char *dot = strchr(code, '.');

	if (*known || !dot || !*texts->ctl->config.code_keys)
		return *known ? known : code;
	if (set != texts->set)
		code_set_read(texts, set);
	if (!texts->space)
		return code;
	code_space_write(texts->space, &texts->form, texts->first + strtoll(dot + 1, NULL, 10), 1,
			 texts->text);
	texts->text[texts->form.width] = '\0';
	return texts->text;
}

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
	struct code_texts texts = { .ctl = ctl };
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
					  cell_text(code_text(&texts, page, row)),
					  cell_text(column_text(page, row, "use")),
					  cell_text(column_text(page, row, "use_order")),
					  cell_text(column_text(page, row, "use_at")),
					  cell_text(column_text(page, row, "use_until")),
					  cell_json(column_text(page, row, "amount_off")),
					  cell_text(column_text(page, row, "currency")) });
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
	if (texts.is_read) {
		code_book_free(texts.codes.book);
		db_close(texts.db);
	}
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
	.detail = "The rows show one moment. The columns are user, receive, slot, received_at,\n"
		  "valid_from, valid_to, key, the exchange code (of a generated one the\n"
		  "text if COUPON_CODE_KEYS has its key, else SET.SERIAL), and, if an order\n"
		  "has the receive, use, use_order, use_at, use_until, amount_off, in the\n"
		  "smallest unit, and currency.",
};
