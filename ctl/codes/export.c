/* couponctl codes export: the codes of a coupon or a set that are used, or all of them. */
#include "common/log/log.h"
#include "ctl/codes/codes.h"
#include "ctl/table.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define CHUNK 4096

static const char *const columns[] = { "code",    "coupon",  "set",      "state", "user",
				       "receive", "used_at", "metadata", NULL };

struct exporting {
	struct db *db;
	struct stored stored;
	struct sheet sheet;
	int is_all;

	/* The set whose codes are written at the moment. */
	const char *set_text, *coupon_text;
	int64_t coupon, first, count;
	int is_revoked, is_word;
	struct code_space *space; /* NULL: it has rows for all of its codes */
	struct code_form form;
	PGresult *page; /* of its rows */
	int row;        /* below the rows of the page, unless all were read */
};

static int has_row(const struct exporting *e)
{
	return e->row < PQntuples(e->page);
}

static void row_next(struct exporting *e)
{
	if (++e->row < PQntuples(e->page))
		return;
	PQclear(e->page);
	e->page = db_page(e->db);
	e->row = 0;
}

/* A code, which has the present row or none. */
static void code_write(struct exporting *e, const char *code, size_t len, int is_row)
{
	const char *state = is_row ? column_text(e->page, e->row, "state") : "unused";
	struct cell cells[8] = { { .text = code, .len = len },
				 cell_text(e->coupon_text),
				 cell_text(e->set_text) };
	char receive[STORE_RECEIVE_SIZE];

	if (strcmp(state, "unused") == 0)
		state = e->is_revoked ? "revoked" : e->is_word ? "open" : state;
	cells[3] = cell_text(state);
	if (is_row) {
		cells[4] = cell_text(column_text(e->page, e->row, "user_id"));
		cells[5] = cell_text(store_receive_text(e->page, e->row, e->coupon, receive));
		cells[6] = cell_text(column_text(e->page, e->row, "used_at"));
		cells[7] = cell_json(column_text(e->page, e->row, "metadata"));
	}
	sheet_row(&e->sheet, cells);
}

static void generated_all_write(struct exporting *e)
{
	static char codes[CHUNK * CODE_WIDTH_MAX];
	size_t width = e->form.width;

	for (int64_t serial = 0; serial < e->count && !sheet_failed(&e->sheet); serial++) {
		int64_t left = e->count - serial;
		int is_row = has_row(e) && column_number(e->page, e->row, "serial") == serial;

		if (serial % CHUNK == 0)
			code_space_write(e->space, &e->form, e->first + serial,
					 left < CHUNK ? (size_t)left : CHUNK, codes);
		code_write(e, codes + (size_t)(serial % CHUNK) * width, width, is_row);
		if (is_row)
			row_next(e);
	}
}

/* The codes that have rows, which are all those that others made. */
static void rows_write(struct exporting *e)
{
	char generated[CODE_WIDTH_MAX];

	for (; has_row(e) && !sheet_failed(&e->sheet); row_next(e)) {
		const char *code = column_text(e->page, e->row, "spelling");

		if (e->space)
			code_space_write(e->space, &e->form,
					 e->first + column_number(e->page, e->row, "serial"), 1,
					 generated);
		code_write(e, e->space ? generated : code, e->space ? e->form.width : strlen(code),
			   1);
	}
}

/* The space of the set; NULL if others made its codes. */
static struct code_space *space_of(const struct exporting *e, const PGresult *sets, int set)
{
	return db_is_null(sets, set, "space_id")
		       ? NULL
		       : stored_space(&e->stored, column_number(sets, set, "space_id"));
}

static void set_write(struct exporting *e, const PGresult *sets, int set)
{
	e->set_text = column_text(sets, set, "id");
	e->coupon_text = column_text(sets, set, "coupon_id");
	e->coupon = column_number(sets, set, "coupon_id");
	e->first = column_number(sets, set, "first_position");
	e->count = column_number(sets, set, "code_num");
	e->is_revoked = db_is_true(sets, set, "is_revoked");
	e->is_word = strcmp(column_text(sets, set, "kind"), "word") == 0;
	e->space = space_of(e, sets, set);
	if (e->space)
		stored_form(&e->form, sets, set, "pattern");
	db_pages_begin(e->db, sql_query_code_rows, postgres_text(e->set_text),
		       postgres_text(e->is_all ? "true" : "false"));
	e->page = NULL;
	row_next(e);
	if (e->space && e->is_all)
		generated_all_write(e);
	else
		rows_write(e);
	PQclear(e->page);
	db_pages_end(e->db);
}

/* All of one moment. */
static void sets_write(struct exporting *e, int64_t coupon, int64_t set, const char *path)
{
	PGresult *sets;

	db_run(e->db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	sets = db_ask(e->db, sql_query_code_set_list, db_id(coupon), db_id(set),
		      postgres_text(NULL));
	if (PQntuples(sets) == 0)
		log_fatal_as(CTL_ABSENT, "there is no set %s%lld", set ? "" : "of coupon ",
			     (long long)(set ? set : coupon));
	for (int row = 0; row < PQntuples(sets); row++)
		space_of(e, sets, row); /* has its key: before anything is written */
	sheet_begin(&e->sheet, path);
	for (int row = 0; row < PQntuples(sets); row++)
		set_write(e, sets, row);
	PQclear(sets);
	db_run(e->db, "COMMIT");
}

static int export_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t coupon = args_coupon(args), set = args_id(args, "set");
	const char *path = args_text(args, "out");
	struct exporting e = { .is_all = args_has(args, "all"),
			       .sheet = { .format = sheet_format_read(args, path),
					  .columns = columns,
					  .csv_end = "\n" } };

	if (!coupon == !set)
		args_fail("codes export takes either a coupon or --set; see couponctl codes export "
			  "--help");
	e.sheet.reader = sheet_reader_read(args, e.sheet.format);
	e.db = store_postgres_open(ctl);
	stored_read(&e.stored, ctl, e.db);
	sets_write(&e, coupon, set, path);
	sheet_end(&e.sheet, FILE_KEEP);
	code_book_free(e.stored.book);
	db_close(e.db);
	return 0;
}

const struct command codes_export_command = {
	.name = "codes export",
	.has_no_json = 1,
	.run = export_run,
	.argument = "[COUPON]",
	.options = OPTIONS(
		OPTION("set", "SET", "the codes of this set, instead of all sets of a coupon"),
		SWITCH("all", "also the codes that are not used; the file can then be used to "
			      "claim them"),
		OPTION("out", "FILE",
		       "the file to make, which must not exist; default: standard output"),
		OPTION("format", "FORMAT",
		       "csv or jsonl; default: jsonl if FILE ends in .jsonl or .ndjson, else csv"),
		SPREADSHEET_OPTION),
	.summary = "write the used codes of a coupon or a set, with their users",
};
