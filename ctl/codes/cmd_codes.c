/*
 * couponctl codes: generate --word makes one code for all, show tells of a code, list of a coupon's
 * sets, edit changes the end of one, export writes codes to a file, and key makes the file of keys.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/codes/stored_codes.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "ctl/table.h"
#include "embed.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORD_LEAST 3
#define CHUNK 4096 /* generated codes that are written at once */
#define KEYS_HEAD "# Keys of exchange codes: VERSION HEX. Who has them can make codes.\n"

static int word_run(struct ctl *ctl)
{
	int64_t coupon = args_id_argument(&ctl->args), set = 0;
	const char *word = args_required(&ctl->args, "word"), *spelling;
	cJSON *object = output_object();
	char text[CODE_OTHERS_SIZE];
	struct code_terms terms;
	struct code_found found;
	struct stored stored;
	struct db *db;
	PGresult *row;
	int status;

	code_terms_check(&ctl->args);
	if (code_text_spell(word, strlen(word), text) || strlen(text) < WORD_LEAST)
		args_fail("--word is \"%s\": allowed are 3 to 64 bytes of printable ASCII, not "
			  "counting spaces and dashes",
			  word);
	db = stored_lock(ctl);
	stored_read(&stored, ctl, db);
	if (code_book_find(stored.book, word, strlen(word), &found) == 0)
		log_fatal("\"%s\" exists: a generated code, of set %" PRId64, word, found.set->id);
	code_book_free(stored.book);
	db_run(db, "BEGIN");
	store_key_bind(db, ctl, NULL);

	/* The set of this coupon that has the word already. */
	row = db_ask(db, sql_query_code_row, db_id(0), db_id(0), postgres_text(text));
	if (PQntuples(row) > 0)
		set = column_number(row, 0, "set_id");
	if (set && (column_number(row, 0, "coupon_id") != coupon ||
		    strcmp(column_text(row, 0, "kind"), "word") != 0))
		log_fatal("\"%s\" exists: %s, of set %" PRId64 " of coupon %s", text,
			  column_text(row, 0, "kind"), set, column_text(row, 0, "coupon_id"));
	if (set && strcmp(column_text(row, 0, "state"), "revoked") == 0)
		log_fatal("\"%s\" was revoked, in set %" PRId64 ": choose another word", text, set);
	PQclear(row);

	if (!set) {
		terms = code_terms_read(&ctl->args, db, coupon);
		set = stored_set_add(db, coupon, "word", NULL, NULL, &terms);
		spelling = code_text_is_plain(word, strlen(word)) ? word : text;
		if (!db_value(db, sql_query_code_word, postgres_number(set),
			      postgres_number(coupon), postgres_text(text),
			      postgres_text(spelling)))
			log_fatal("\"%s\" was stored by another command at this moment", text);
		db_do(db, sql_query_code_set_complete, postgres_number(set));
	}
	db_run(db, "COMMIT");
	db_close(db);
	status = stored_wait(ctl);
	output_made("set %" PRId64 " is the word %s of coupon %" PRId64, set, text, coupon);
	output_id(object, "set", set);
	output_id(object, "coupon", coupon);
	output_text(object, "form", text);
	output_say(object, "set {set}: the word {form} of coupon {coupon}\n",
		   args_has(&ctl->args, "json"));
	return status;
}

/* Returns the row of the code, or NULL, and adds its spelling to `code`. */
static PGresult *code_find(struct db *db, const struct stored *stored, const char *text,
			   struct text_buffer *code)
{
	char spelled[CODE_OTHERS_SIZE];
	struct code_found found;
	PGresult *row = NULL;

	if (code_book_find(stored->book, text, strlen(text), &found) == 0) {
		struct ff1_string string;
		struct code_form form;
		char generated[CODE_WIDTH_MAX];

		row = db_ask(db, sql_query_code_row, postgres_number(found.set->id),
			     postgres_number(found.serial), postgres_text(NULL));
		stored_form(&form, row, 0, "pattern");
		check(code_form_read(&form, text, strlen(text), &string) == 0);
		code_form_write(&form, &string, generated);
		text_add(code, generated, form.width);
	} else if (code_text_spell(text, strlen(text), spelled) == 0) {
		row = db_ask(db, sql_query_code_row, db_id(0), db_id(0), postgres_text(spelled));
		if (PQntuples(row) > 0)
			text_add_string(code, column_text(row, 0, "spelling"));
	}
	if (code->len > 0)
		return row;
	PQclear(row);
	return NULL;
}

static int show_run(struct ctl *ctl)
{
	const char *text = ctl->args.argument;
	struct db *db = store_postgres_open(ctl);
	struct text_buffer code = { 0 }, shown = { 0 };
	char receive[STORE_RECEIVE_SIZE];
	struct stored stored;
	cJSON *object;
	PGresult *row;
	int status = CTL_DONE;

	stored_read(&stored, ctl, db);
	row = code_find(db, &stored, text, &code);
	if (!row) {
		text_add_shown(&shown, text, strlen(text));
		if (stored.unread > 0)
			say("there is no code \"%s\", unless it is one of %lld codes of key %d, "
			    "which the file of keys lacks",
			    shown.data ? shown.data : "", (long long)stored.unread,
			    stored.unread_key);
		else
			say("there is no code \"%s\"", shown.data ? shown.data : "");
		status = CTL_ABSENT;
		goto out;
	}
	object = output_object();
	store_receive_text(row, 0, column_number(row, 0, "coupon_id"), receive);
	output_text(object, "code", code.data);
	output_text(object, "kind", column_text(row, 0, "kind"));
	output_id(object, "set", column_number(row, 0, "set_id"));
	output_id(object, "coupon", column_number(row, 0, "coupon_id"));
	output_text(object, "state", column_text(row, 0, "state"));
	if (db_is_null(row, 0, "claimed"))
		output_null(object, "claimed");
	else
		output_number(object, "claimed", column_number(row, 0, "claimed"));
	output_text(object, "for_user", column_text(row, 0, "for_user"));
	output_text(object, "valid_to", column_text(row, 0, "valid_to"));
	output_text(object, "user", column_text(row, 0, "user_id"));
	output_text(object, "receive", receive);
	output_text(object, "used_at", column_text(row, 0, "used_at"));
	if (strcmp(column_text(row, 0, "state"), "revoked") == 0) {
		output_text(object, "revoked_at", column_text(row, 0, "revoked_at"));
		output_text(object, "revoked_by", column_text(row, 0, "revoked_by"));
	} else {
		output_null(object, "revoked_at");
		output_null(object, "revoked_by");
	}
	output_raw(object, "metadata", column_text(row, 0, "metadata"));
	output_say(object,
		   "code {code}, {kind}, of set {set} of coupon {coupon}\n"
		   "  state    {state}[claimed , redemptions: {claimed}][user  by user {user}]"
		   "[used_at  at {used_at}]"
		   "[receive \n  receive  {receive}]"
		   "[revoked_at  by {revoked_by} at {revoked_at}]\n"
		   "[for_user   for      {for_user} alone\n][valid_to   until    {valid_to}\n]"
		   "[metadata   metadata {metadata}\n]",
		   args_has(&ctl->args, "json"));
out:
	PQclear(row);
	text_buffer_fini(&shown);
	text_buffer_fini(&code);
	code_book_free(stored.book);
	db_close(db);
	return status;
}

static int edit_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	char zone[ZONE_SIZE], text[CLOCK_RFC3339_SIZE];
	int64_t set, coupon, end_ms;
	cJSON *object;
	struct db *db;
	PGresult *row;
	int status;

	args_required(args, "set");
	args_required(args, "valid-to");
	time_check(args, "valid-to");
	set = args_id(args, "set");
	db = stored_lock(ctl);
	object = store_key_begin(db, ctl);
	if (!object) {
		row = db_ask(db, sql_query_code_set_list, db_id(0), postgres_number(set),
			     postgres_text(NULL));
		if (PQntuples(row) == 0)
			log_fatal_as(CTL_ABSENT, "there is no set %" PRId64, set);
		coupon = column_number(row, 0, "coupon_id");
		PQclear(row);
		row = store_coupon_row(db, sql_query_coupon_show, coupon);
		snprintf(zone, sizeof(zone), "%s", column_text(row, 0, "zone"));
		PQclear(row);
		end_ms = time_read(args, "valid-to", TIME_END, db, zone, 0);
		if (!db_value(db, sql_query_code_set_edit, postgres_number(set),
			      postgres_number(end_ms)))
			log_fatal("set %" PRId64 " is revoked: its end cannot be changed", set);
		object = output_object();
		output_id(object, "set", set);
		output_id(object, "coupon", coupon);
		output_text(object, "valid_to", end_ms ? clock_rfc3339(end_ms, text) : NULL);
		store_key_answer(db, ctl, object);
		db_run(db, "COMMIT");
	}
	db_close(db);
	status = stored_wait(ctl);
	output_say(object,
		   "set {set} of coupon {coupon} can be claimed "
		   "[valid_to until {valid_to}][!valid_to as long as the campaign]\n",
		   args_has(args, "json"));
	return status;
}

static int list_run(struct ctl *ctl)
{
	static const char *const numbers[] = { "codes", "unused", "used", "revoked" };
	static const char line[] =
		"{set:-20|all} {kind:-9} {codes:12} {unused:12} {used:12} {revoked:12}  "
		"[form {form}][!form {file|-}]";
	int64_t coupon = args_id_argument(&ctl->args);
	struct db *db = store_postgres_open(ctl);
	cJSON *object = output_object(), *list = cJSON_CreateArray(), *set;
	PGresult *sets;

	PQclear(store_coupon_row(db, sql_query_coupon_show, coupon));
	sets = db_ask(db, sql_query_code_stats, postgres_number(coupon),
		      postgres_number(args_id(&ctl->args, "after")),
		      postgres_number(args_count(&ctl->args, PAGE_COUNT_MAX)));
	output_id(object, "coupon", coupon);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		int64_t sum = 0;

		for (int row = 0; row < PQntuples(sets); row++)
			sum += column_number(sets, row, numbers[i]);
		output_number(object, numbers[i], sum);
	}
	for (int row = 0; row < PQntuples(sets); row++) {
		output_row(set = output_object(), sets, row);
		if (db_is_null(sets, row, "claimed"))
			cJSON_DeleteItemFromObject(set, "claimed");
		if (args_has(&ctl->args, "without-words") &&
		    strcmp(column_text(sets, row, "kind"), "word") == 0)
			check(cJSON_ReplaceItemInObject(set, "form", cJSON_CreateNull()));
		check(cJSON_AddItemToArray(list, set));
	}
	PQclear(sets);
	db_close(db);
	output_add(object, "sets", list);
	if (args_has(&ctl->args, "json")) {
		output_print(object);
		return 0;
	}
	puts("set                  kind             codes       unused         used      revoked  "
	     "form or file");
	cJSON_ArrayForEach(set, list)
	{
		output_template(line, set);
		output_template(cJSON_HasObjectItem(set, "claimed") ? ", redemptions: {claimed}"
								    : "[!complete , not complete]",
				set);
		output_template("[for_user , for {for_user}][valid_to , until {valid_to}]\n", set);
	}
	output_say(object, line, 0);
	putchar('\n');
	return 0;
}

static const char *const export_columns[] = { "code",    "coupon",  "set",      "state",    "user",
					      "receive", "used_at", "valid_to", "metadata", NULL };

struct exporting {
	struct db *db;
	struct stored stored;
	struct sheet sheet;
	int is_all;

	/* The set whose codes are written at the moment. */
	const char *set_text, *coupon_text, *for_user, *valid_to;
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

/* Writes one code. `is_row`: the present row is that of the code. */
static void code_write(struct exporting *e, const char *code, size_t len, int is_row)
{
	const char *state = is_row ? column_text(e->page, e->row, "state") : "unused";
	struct cell cells[9] = { { .text = code, .len = len },
				 cell_text(e->coupon_text),
				 cell_text(e->set_text) };
	char receive[STORE_RECEIVE_SIZE];

	if (strcmp(state, "unused") == 0)
		state = e->is_revoked ? "revoked" : e->is_word ? "open" : state;
	cells[3] = cell_text(state);
	cells[4] = cell_text(e->for_user);
	cells[7] = cell_text(e->valid_to);
	if (is_row) {
		const char *user = column_text(e->page, e->row, "user_id"),
			   *for_user = column_text(e->page, e->row, "for_user"),
			   *valid_to = column_text(e->page, e->row, "valid_to");

		if (*user || *for_user)
			cells[4] = cell_text(*user ? user : for_user);
		cells[5] = cell_text(store_receive_text(e->page, e->row, e->coupon, receive));
		cells[6] = cell_text(column_text(e->page, e->row, "used_at"));
		if (*valid_to)
			cells[7] = cell_text(valid_to);
		cells[8] = cell_json(column_text(e->page, e->row, "metadata"));
	}
	sheet_row(&e->sheet, cells);
}

/* Returns the space of the set; NULL if others made its codes. */
static struct code_space *space_of(const struct exporting *e, const PGresult *sets, int set)
{
	return db_is_null(sets, set, "space_id")
		       ? NULL
		       : stored_space(&e->stored, column_number(sets, set, "space_id"));
}

static void set_write(struct exporting *e, const PGresult *sets, int set)
{
	static char codes[CHUNK * CODE_WIDTH_MAX];
	size_t width = 0;

	e->set_text = column_text(sets, set, "id");
	e->coupon_text = column_text(sets, set, "coupon_id");
	e->for_user = column_text(sets, set, "for_user");
	e->valid_to = column_text(sets, set, "valid_to");
	e->coupon = column_number(sets, set, "coupon_id");
	e->first = column_number(sets, set, "first_position");
	e->count = column_number(sets, set, "code_num");
	e->is_revoked = db_is_true(sets, set, "is_revoked");
	e->is_word = strcmp(column_text(sets, set, "kind"), "word") == 0;
	e->space = space_of(e, sets, set);
	if (e->space) {
		stored_form(&e->form, sets, set, "pattern");
		width = e->form.width;
	}
	db_pages_begin(e->db, sql_query_code_rows, postgres_text(e->set_text),
		       postgres_text(e->is_all ? "true" : "false"));
	e->page = NULL;
	row_next(e);

	if (e->space && e->is_all) {
		for (int64_t serial = 0; serial < e->count && !sheet_failed(&e->sheet); serial++) {
			int64_t left = e->count - serial;
			int is_row = has_row(e) &&
				     column_number(e->page, e->row, "serial") == serial;

			if (serial % CHUNK == 0)
				code_space_write(e->space, &e->form, e->first + serial,
						 left < CHUNK ? (size_t)left : CHUNK, codes);
			code_write(e, codes + (size_t)(serial % CHUNK) * width, width, is_row);
			if (is_row)
				row_next(e);
		}
	} else {
		/* The codes that have rows, which are all those that others made. */
		for (; has_row(e) && !sheet_failed(&e->sheet); row_next(e)) {
			const char *code = column_text(e->page, e->row, "spelling");

			if (e->space)
				code_space_write(e->space, &e->form,
						 e->first +
							 column_number(e->page, e->row, "serial"),
						 1, codes);
			code_write(e, e->space ? codes : code, e->space ? width : strlen(code), 1);
		}
	}
	PQclear(e->page);
	db_pages_end(e->db);
}

static int export_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t coupon = args_id_argument(args), set = args_id(args, "set");
	const char *path = args_text(args, "out");
	struct exporting e = { .is_all = args_has(args, "all"),
			       .sheet = { .format = sheet_format_read(args, path),
					  .columns = export_columns,
					  .csv_end = "\n" } };
	PGresult *sets;

	if (!coupon == !set)
		args_fail("codes export takes either a coupon or --set%s",
			  say_help("codes export"));
	e.sheet.reader = sheet_reader_read(args, e.sheet.format);
	e.db = store_postgres_open(ctl);
	stored_read(&e.stored, ctl, e.db);

	/* All of one moment. */
	db_run(e.db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	sets = db_ask(e.db, sql_query_code_set_list, db_id(coupon), db_id(set),
		      postgres_text(NULL));
	if (PQntuples(sets) == 0)
		log_fatal_as(CTL_ABSENT, "there is no set %s%lld", set ? "" : "of coupon ",
			     (long long)(set ? set : coupon));
	for (int row = 0; row < PQntuples(sets); row++)
		space_of(
			&e, sets,
			row); /* ends the process if a key is missing, before anything is written */
	sheet_begin(&e.sheet, path);
	for (int row = 0; row < PQntuples(sets); row++)
		set_write(&e, sets, row);
	PQclear(sets);
	db_run(e.db, "COMMIT");
	sheet_end(&e.sheet, FILE_KEEP);
	code_book_free(e.stored.book);
	db_close(e.db);
	return 0;
}

/*
 * Copies what the file has now, or writes a head if there is no file. Returns the version to add.
 */
static int old_copy(const char *path, FILE *out)
{
	char text[4096], why[CODE_WHY_SIZE];
	struct code_keys keys;
	const struct code_key *newest;
	int version, last = '\n';
	struct stat stat;
	FILE *in;
	size_t n;

	if (access(path, F_OK) != 0 && errno == ENOENT) {
		fputs(KEYS_HEAD, out);
		return 1;
	}
	if (code_key_file_read(&keys, path, why))
		log_fatal("%s", why);
	newest = code_keys_newest(&keys);
	version = newest->version + 1;
	if (version > CODE_KEY_VERSION_MAX || keys.n == CODE_KEYS_MAX)
		log_fatal("the file of keys \"%s\" has %zu keys up to version %d: allowed are %d "
			  "keys and versions up to %d",
			  path, keys.n, newest->version, CODE_KEYS_MAX, CODE_KEY_VERSION_MAX);
	code_keys_wipe(&keys);
	in = fopen(path, "re");
	if (!in || fstat(fileno(in), &stat))
		log_fatal("the file of keys \"%s\" cannot be read: %s", path, strerror(errno));
	for (; (n = fread(text, 1, sizeof(text), in)) > 0; last = text[n - 1])
		fwrite(text, 1, n, out);
	OPENSSL_cleanse(text, sizeof(text));
	/* The new file keeps the owner, the group and the mode. */
	if (ferror(in) || fchown(fileno(out), stat.st_uid, stat.st_gid) ||
	    fchmod(fileno(out), stat.st_mode & 0777))
		log_fatal("the file of keys \"%s\" cannot be copied: %s", path, strerror(errno));
	fclose(in);
	if (last != '\n')
		putc('\n', out);
	return version;
}

static int key_run(struct ctl *ctl)
{
	const char *path = ctl->config.code_keys;
	cJSON *object = output_object();
	struct code_key key;
	char fingerprint[CODE_FINGERPRINT_SIZE];
	struct file_new file;

	if (!*path)
		args_fail("COUPON_CODE_KEYS is \"\": needed is the path of the file of keys");
	file_new_open(&file, path);
	key.version = old_copy(path, file.stream);
	check(getrandom(key.bytes, sizeof(key.bytes), 0) == sizeof(key.bytes));
	fprintf(file.stream, "%d ", key.version);
	for (size_t i = 0; i < sizeof(key.bytes); i++)
		fprintf(file.stream, "%02x", key.bytes[i]);
	putc('\n', file.stream);
	file_new_place(&file, FILE_REPLACE);
	output_number(object, "key_version", key.version);
	output_text(object, "fingerprint", code_key_fingerprint(&key, fingerprint));
	output_text(object, "file", path);
	output_say(object, "key {key_version} with the fingerprint {fingerprint} is in {file}\n",
		   args_has(&ctl->args, "json"));
	OPENSSL_cleanse(&key, sizeof(key));
	return 0;
}

const struct command codes_word_command = {
	.name = "codes generate --word",
	.run = word_run,
	.argument = "COUPON",
	.options = OPTIONS(OPTION("word", "WORD",
				  "one code for all users: 3 to 64 bytes of printable ASCII"),
			   CODE_TERMS_OPTIONS, KEY_OPTION, BY_OPTION),
	.summary = "make a word one code for all users, up to the limit of each",
	.detail = "Case, spaces and dashes do not matter. Repeated, it changes nothing.",
};

static const struct command codes_show_command = {
	.name = "codes show",
	.run = show_run,
	.argument = "CODE",
	.summary = "show the set, the coupon and the state of a code",
	.detail =
		"Case, spaces and dashes do not matter, also as they come in pasted texts. A word\n"
		"is open until it is revoked; how often it was claimed is beside it.",
};

static const struct command codes_list_command = {
	.name = "codes list",
	.run = list_run,
	.argument = "COUPON",
	.options = OPTIONS(PAGE_OPTIONS("SET", "set", "all"),
			   SWITCH("without-words", "without words, which are codes for everybody")),
	.summary = "list the sets of codes of a coupon, with their codes by state",
	.detail = "A word counts as one code, however often it is claimed.",
};

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
		OPTION_WORDS(
			"format", "FORMAT", sheet_format_names,
			"csv or jsonl; default: jsonl if FILE ends in .jsonl or .ndjson, else csv"),
		SPREADSHEET_OPTION),
	.summary = "write the used codes of a coupon or a set, with their users",
};

static const struct command codes_edit_command = {
	.name = "codes edit",
	.run = edit_run,
	.options =
		OPTIONS(OPTION("set", "SET", "the set, which couponctl codes list prints"),
			OPTION_OR_NONE("valid-to", "T",
				       "until when its codes can be claimed, now, or none: as long "
				       "as the campaign"),
			KEY_OPTION, BY_OPTION),
	.summary = "change the end of a set of codes",
	.detail =
		"Both options are required. T is a time as in couponctl codes generate; it may be\n"
		"past. Codes that were imported with an end of their own keep it. What was "
		"claimed\n"
		"before stays claimed.",
};

static const struct command codes_key_command = {
	.name = "codes key",
	.run = key_run,
	.summary = "make the file of keys, or add a key to it",
	.detail =
		"COUPON_CODE_KEYS names the file. The new key has the next version, and makes the\n"
		"codes from then on; older keys remain, so that their codes stay valid. Copy the\n"
		"file to every place that has it, and keep a copy apart from the database: codes\n"
		"cannot be read without their key.",
};

const struct command codes_command = {
	.name = "codes",
	.subcommands = COMMANDS(&codes_generate_command, &codes_import_command, &codes_list_command,
				&codes_show_command, &codes_edit_command, &codes_revoke_command,
				&codes_export_command, &codes_key_command),
	.summary = "make, import, list, show, edit, revoke and export exchange codes",
};
