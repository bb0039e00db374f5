/* couponctl codes export: the codes of a coupon or a set that are used, or all of them. */
#include "common/log/log.h"
#include "ctl/codes/stored.h"
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
};

/* The set whose codes are written at the moment. */
struct source {
	int64_t id, coupon, first, count;
	char id_text[DB_NUMBER_SIZE], coupon_text[DB_NUMBER_SIZE];
	struct code_space *space; /* NULL: it has rows for all of its codes */
	struct code_form form;
	int is_revoked;
};

static void source_read(struct source *source, const struct exporting *e, const PGresult *sets,
			int row)
{
	*source = (struct source){
		.id = db_int(sets, row, "id"),
		.coupon = db_int(sets, row, "coupon_id"),
		.first = db_int(sets, row, "first_position"),
		.count = db_int(sets, row, "code_num"),
		.is_revoked = db_is_true(sets, row, "is_revoked"),
	};
	db_number(source->id, source->id_text);
	db_number(source->coupon, source->coupon_text);
	if (db_is_null(sets, row, "space_id"))
		return;
	source->space = stored_space(&e->stored, db_int(sets, row, "space_id"));
	stored_form(&source->form, sets, row, "pattern");
}

/* The rows of a set, one after the other. */
struct cursor {
	struct db *db;
	PGresult *page;
	int row; /* below the rows of the page, unless all were read */
};

static void cursor_begin(struct cursor *cursor, const struct exporting *e,
			 const struct source *source)
{
	db_pages_begin(e->db, sql_query_code_rows, postgres_number(source->id),
		       postgres_text(e->is_all ? "true" : "false"));
	*cursor = (struct cursor){ .db = e->db, .page = db_page(e->db) };
}

static int cursor_has(const struct cursor *cursor)
{
	return cursor->row < PQntuples(cursor->page);
}

static void cursor_next(struct cursor *cursor)
{
	if (++cursor->row < PQntuples(cursor->page))
		return;
	PQclear(cursor->page);
	cursor->page = db_page(cursor->db);
	cursor->row = 0;
}

static void cursor_end(struct cursor *cursor)
{
	PQclear(cursor->page);
	db_pages_end(cursor->db);
}

/* A code and its row in `cursor`; NULL: it has none. */
static void code_write(struct exporting *e, const struct source *source, const char *code,
		       size_t len, const struct cursor *cursor)
{
	const char *state = cursor ? db_text(cursor->page, cursor->row, "state") : "unused";
	struct cell cells[8] = { { .text = code, .len = len },
				 cell_text(source->coupon_text),
				 cell_text(source->id_text) };
	char receive[RECEIVE_SIZE];

	if (source->is_revoked && strcmp(state, "unused") == 0)
		state = "revoked";
	cells[3] = cell_text(state);
	if (cursor) {
		stored_receive(cursor->page, cursor->row, source->coupon, receive);
		cells[4] = cell_text(db_text(cursor->page, cursor->row, "user_id"));
		cells[5] = cell_text(receive);
		cells[6] = cell_text(db_text(cursor->page, cursor->row, "used_at"));
		cells[7] = cell_json(db_text(cursor->page, cursor->row, "metadata"));
	}
	sheet_row(&e->sheet, cells);
}

static void generated_all_write(struct exporting *e, const struct source *source,
				struct cursor *cursor)
{
	static char codes[CHUNK * CODE_WIDTH_MAX];
	size_t n, width = source->form.width;

	for (int64_t done = 0; done < source->count && !sheet_failed(&e->sheet);
	     done += (int64_t)n) {
		n = source->count - done < CHUNK ? (size_t)(source->count - done) : CHUNK;
		code_space_write(source->space, &source->form, source->first + done, n, codes);
		for (size_t i = 0; i < n; i++) {
			int has_row = cursor_has(cursor) && db_int(cursor->page, cursor->row,
								   "serial") == done + (int64_t)i;

			code_write(e, source, codes + i * width, width, has_row ? cursor : NULL);
			if (has_row)
				cursor_next(cursor);
		}
	}
}

/* The codes that have rows, which are all those that others made. */
static void rows_write(struct exporting *e, const struct source *source, struct cursor *cursor)
{
	char generated[CODE_WIDTH_MAX];

	for (; cursor_has(cursor) && !sheet_failed(&e->sheet); cursor_next(cursor)) {
		const char *code = db_text(cursor->page, cursor->row, "spelling");
		size_t len = strlen(code);

		if (source->space) {
			code_space_write(source->space, &source->form,
					 source->first +
						 db_int(cursor->page, cursor->row, "serial"),
					 1, generated);
			code = generated;
			len = source->form.width;
		}
		code_write(e, source, code, len, cursor);
	}
}

static void source_write(struct exporting *e, const struct source *source)
{
	struct cursor cursor;

	cursor_begin(&cursor, e, source);
	if (source->space && e->is_all)
		generated_all_write(e, source, &cursor);
	else
		rows_write(e, source, &cursor);
	cursor_end(&cursor);
}

/* Before anything is written. */
static void keys_check(const struct exporting *e, const PGresult *sets)
{
	for (int row = 0; row < PQntuples(sets); row++)
		if (!db_is_null(sets, row, "space_id"))
			stored_space(&e->stored, db_int(sets, row, "space_id"));
}

/* All of one moment. */
static void sets_write(struct exporting *e, int64_t coupon, int64_t set, const char *path)
{
	PGresult *sets;

	db_run(e->db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	sets = db_ask(e->db, sql_query_code_set_list, db_id(coupon), db_id(set));
	if (PQntuples(sets) == 0)
		log_fatal("there is no set %s%lld", set ? "" : "of coupon ",
			  (long long)(set ? set : coupon));
	keys_check(e, sets);
	sheet_begin(&e->sheet, path);
	for (int row = 0; row < PQntuples(sets); row++) {
		static struct source source;

		source_read(&source, e, sets, row);
		source_write(e, &source);
	}
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
	stored_fini(&e.stored);
	db_close(e.db);
	return 0;
}

const struct command codes_export_command = {
	.name = "codes export",
	.run = export_run,
	.argument = "[COUPON]",
	.options = OPTIONS(
		OPTION("set", "SET", "the codes of this set, instead of all sets of a coupon"),
		SWITCH("all", "also the codes that are not used; the file can then be used to "
			      "redeem them"),
		OPTION("out", "FILE",
		       "the file to make, which must not exist; default: standard output"),
		OPTION("format", "FORMAT",
		       "csv or jsonl; default: jsonl if FILE ends in .jsonl or .ndjson, else csv"),
		SPREADSHEET_OPTION),
	.summary = "write the used codes of a coupon or a set, with their users",
};
