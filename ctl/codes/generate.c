/* couponctl codes generate: a set of new codes, written to a file. */
#include "codes/chance.h"
#include "codes/space.h"
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/codes/request.h"
#include "ctl/codes/stored.h"
#include "ctl/file.h"
#include "ctl/output.h"
#include "ctl/table.h"
#include "embed.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define COUNT_MAX 1000000000
#define CHUNK 4096
#define WANTED_SIZE 1024
#define POSITIONS_MAX (INT64_C(1) << 62)
#define TRIES 32

struct generation {
	int64_t coupon, count;
	const char *file;
	enum sheet_format format;
	struct code_form form;
};

/* The range of positions that PostgreSQL gives to a new set of generated codes. */
struct allocation {
	struct db *db; /* with a transaction */
	int64_t set;
	int64_t first;
	struct code_space *space; /* of the caller, to be freed */
	int is_new;               /* no command before has made it */
	int is_revoked;
};

/* The codes in its own space, and in those whose codes may have the same text. */
struct present {
	int64_t own, others;
};

static struct present present_read(struct db *db, const struct code_form *form, int version)
{
	PGresult *rows = db_ask(db, sql_query_code_spaces);
	struct present present = { 0 };

	for (int row = 0; row < PQntuples(rows); row++) {
		struct code_form other;

		stored_form(&other, rows, row, "form");
		if (code_forms_same(&other, form) && db_int(rows, row, "key_version") == version)
			present.own = db_int(rows, row, "code_num");
		else if (code_forms_overlap(&other, form))
			present.others += db_int(rows, row, "code_num");
	}
	PQclear(rows);
	return present;
}

static void chance_check(struct db *db, const struct generation *g, int version)
{
	struct present present = present_read(db, &g->form, version);
	char why[CODE_WHY_SIZE];

	if (code_chance_check(&g->form, present.own, present.others, g->count, why))
		log_fatal("%s", why);
}

/* The id of the space, which is recorded with its key if it is not yet. */
static int64_t space_id(struct db *db, const struct code_form *form, const struct code_key *key)
{
	char fingerprint[CODE_FINGERPRINT_SIZE];
	const struct postgres_argument plain = postgres_text(form->plain),
				       alphabet = postgres_text(form->alphabet),
				       version = postgres_number(key->version);
	PGresult *row;
	int64_t id;

	db_do(db, sql_query_code_key_add, version,
	      postgres_text(code_key_fingerprint(key, fingerprint)));
	db_do(db, sql_query_code_space_add, plain, alphabet, version);
	row = db_ask(db, sql_query_code_space_id, plain, alphabet, version);
	check(PQntuples(row) == 1);
	id = db_int(row, 0, "id");
	PQclear(row);
	return id;
}

/*
 * Somewhere among all positions. When PostgreSQL was put back to an earlier moment it has forgotten
 * sets whose codes are in somebody's hands; next to the last one it knows, a new set would have the
 * same codes. Here that is as unlikely as a good guess.
 */
static int64_t position_choose(const struct code_form *form, int64_t count)
{
	unsigned __int128 size = form->size < POSITIONS_MAX ? form->size : POSITIONS_MAX;
	uint64_t random;

	check(getrandom(&random, sizeof(random), 0) == sizeof(random));
	return (int64_t)((unsigned __int128)random * (size - (uint64_t)count + 1) >> 64);
}

/* 0, or -1: a part of the range is in use. */
static int set_insert(struct allocation *allocation, const struct generation *g,
		      const struct request *request, int64_t space)
{
	int64_t first = position_choose(&g->form, g->count);
	PGresult *row = db_ask(allocation->db, sql_query_code_set_generate,
			       postgres_number(g->coupon), postgres_number(space),
			       postgres_number(first), postgres_number(g->count),
			       postgres_text(g->form.pattern), postgres_text(request->id),
			       postgres_text(g->file));
	int failed = PQntuples(row) == 0;

	if (!failed) {
		allocation->set = db_int(row, 0, "id");
		allocation->first = first;
	}
	PQclear(row);
	return failed ? -1 : 0;
}

static void set_make(struct allocation *allocation, const struct code_keys *keys,
		     const struct generation *g, const struct request *request)
{
	struct db *db = allocation->db;
	const struct code_key *key = code_keys_newest(keys);
	int64_t space;
	int tries = 0;

	if (key->version < keyring_check(keys, db))
		log_fatal("the file that COUPON_CODE_KEYS names has keys up to version %d, and a "
			  "later one has made codes: it is not the newest file",
			  key->version);
	PQclear(store_coupon_row(db, sql_query_coupon_show, g->coupon));
	chance_check(db, g, key->version);
	space = space_id(db, &g->form, key);
	allocation->is_new = 1;
	while (set_insert(allocation, g, request, space))
		check(++tries < TRIES); /* at most a billionth of the positions is in use */
	allocation->space = code_space_new(&g->form, key);
}

/* Takes up the set of a command before, whose key is not always the newest one. */
static void set_resume(struct allocation *allocation, const struct code_keys *keys,
		       const struct generation *g, const PGresult *row)
{
	int version = (int)db_int(row, 0, "key_version");
	const struct code_key *key = code_keys_find(keys, version);

	keyring_check(keys, allocation->db);
	if (!key)
		log_fatal("the file that COUPON_CODE_KEYS names lacks the key of version %d, with "
			  "which these codes were begun",
			  version);
	check(db_int(row, 0, "code_num") == g->count);
	allocation->set = db_int(row, 0, "id");
	allocation->first = db_int(row, 0, "first_position");
	allocation->is_revoked = db_is_true(row, 0, "is_revoked");
	allocation->space = code_space_new(&g->form, key);
}

/*
 * Makes the set of this request, or finds the one that was made for it before. Ends the process
 * with a sentence if it cannot be: no such coupon, too many codes for the form, other keys.
 */
static void allocation_begin(struct allocation *allocation, const struct ctl *ctl,
			     const struct generation *g, const struct request *request)
{
	struct code_keys keys;
	PGresult *row;

	keyring_read(&keys, ctl);
	*allocation = (struct allocation){ .db = stored_lock(ctl) };
	db_run(allocation->db, "BEGIN");
	row = db_ask(allocation->db, sql_query_code_set_request, postgres_text(request->id));
	if (PQntuples(row) > 0)
		set_resume(allocation, &keys, g, row);
	else
		set_make(allocation, &keys, g, request);
	PQclear(row);
	code_keys_wipe(&keys);
}

static const char *prefix_read(const struct args *args)
{
	const char *prefix = args_text(args, "prefix");

	for (const char *p = prefix; p && *p; p++)
		if (!isascii((unsigned char)*p) || !isalnum((unsigned char)*p))
			args_fail("--prefix is \"%s\": allowed are letters and digits of ASCII",
				  prefix);
	return prefix ? prefix : "";
}

/* The form that the options choose; a wrong one ends the process. */
static void form_read(const struct args *args, struct code_form *form)
{
	const char *pattern = args_text(args, "pattern"), *prefix = prefix_read(args);
	const char *alphabet = args_text(args, "alphabet");
	unsigned length = (unsigned)args_number(args, "length", 2, CODE_TEXT_MAX, CODE_LENGTH);
	char made[CODE_WIDTH_MAX + 1], why[CODE_WHY_SIZE];

	if (pattern && (args_has(args, "prefix") || args_has(args, "length")))
		args_fail("--pattern is \"%s\": not allowed together with --prefix or --length",
			  pattern);
	if (strlen(prefix) + length > CODE_TEXT_MAX || code_pattern_make(prefix, length, made))
		args_fail("--prefix and --length are %zu characters: allowed are %d",
			  strlen(prefix) + length, CODE_TEXT_MAX);
	if (code_form_parse(form, pattern ? pattern : made, alphabet ? alphabet : CODE_ALPHABET,
			    why))
		args_fail("%s", why);
}

static void generation_read(const struct args *args, struct generation *g)
{
	char why[CODE_WHY_SIZE];

	args_required(args, "count");
	*g = (struct generation){
		.coupon = args_coupon(args),
		.count = args_number(args, "count", 1, COUNT_MAX, 0),
		.file = args_required(args, "out"),
		.format = sheet_format_read(args, NULL),
	};
	if (!*g->file)
		args_fail("--out is \"\": needed is the name of a file");
	form_read(args, &g->form);
	if (code_chance_check(&g->form, 0, 0, g->count, why))
		args_fail("%s", why);
}

/* All that decides what is in the file. */
static void wanted_write(const struct generation *g, char wanted[WANTED_SIZE])
{
	check(snprintf(wanted, WANTED_SIZE,
		       "coupon %" PRId64 "\ncount %" PRId64
		       "\npattern %s\nalphabet %s\nformat %s\n",
		       g->coupon, g->count, g->form.pattern, g->form.alphabet,
		       sheet_format_names[g->format]) < WANTED_SIZE);
}

static void codes_write(struct sheet *sheet, const struct generation *g,
			const struct allocation *allocation)
{
	static char codes[CHUNK * CODE_WIDTH_MAX];
	char coupon[DB_NUMBER_SIZE], set[DB_NUMBER_SIZE];
	struct cell cells[] = { { .len = g->form.width },
				cell_text(db_number(g->coupon, coupon)),
				cell_text(db_number(allocation->set, set)) };
	struct progress progress = { 0 };
	size_t n;

	for (int64_t done = 0; done < g->count; done += (int64_t)n) {
		n = g->count - done < CHUNK ? (size_t)(g->count - done) : CHUNK;
		code_space_write(allocation->space, &g->form, allocation->first + done, n, codes);
		for (size_t i = 0; i < n; i++) {
			cells[0].text = codes + i * g->form.width;
			sheet_row(sheet, cells);
		}
		if (ferror(sheet->file)) /* a full disk: file_new_place() tells */
			break;
		progress_show(&progress, "codes", done + (int64_t)n, g->count);
	}
	progress_end(&progress);
}

static void file_write(const struct generation *g, const struct allocation *allocation)
{
	static const char *const columns[] = { "code", "coupon", "set", NULL };
	struct sheet sheet = { .format = g->format, .columns = columns, .csv_end = "\n" };
	struct file_new file;

	file_new_open(&file, g->file);
	sheet.file = file.stream;
	sheet_head(&sheet);
	codes_write(&sheet, g, allocation);
	sheet_fini(&sheet);
	file_new_place(&file, FILE_KEEP);
}

static void result_print(const struct ctl *ctl, const struct generation *g, int64_t set)
{
	char count[OUTPUT_GROUPED_SIZE], chance[CODE_CHANCE_SIZE];
	cJSON *object;

	if (!args_has(&ctl->args, "json")) {
		printf("set %" PRId64 ": %s codes of coupon %" PRId64 " in %s\n"
		       "%s\n",
		       set, output_grouped(g->count, count), g->coupon, g->file,
		       code_chance_text(&g->form, g->count, chance));
		return;
	}
	object = output_object();
	output_id(object, "set", set);
	output_id(object, "coupon", g->coupon);
	output_number(object, "count", g->count);
	output_text(object, "pattern", g->form.pattern);
	output_text(object, "file", g->file);
	output_print(object);
}

/* The set of the request: a new one, or that of an interrupted command. Nothing else has it. */
static void set_take(struct allocation *allocation, struct request *request, const struct ctl *ctl,
		     const struct generation *g, const char *wanted, int is_there)
{
	allocation_begin(allocation, ctl, g, request);
	if (allocation->is_revoked)
		log_fatal("the set %" PRId64 " of this unfinished command was revoked: remove "
			  "\"%s\" to begin anew",
			  allocation->set, request->path);
	if (is_there && allocation->is_new)
		log_fatal(
			"the file \"%s\" exists, but PostgreSQL does not have its set: it was put "
			"back to an earlier moment; move the file and \"%s\" away to begin anew",
			g->file, request->path);
	if (request->is_new)
		request_write(request, wanted);
	/* Should its reply be lost, the process ends, and the same request finds the set. */
	db_run(allocation->db, "COMMIT");
	db_close(allocation->db);
}

/* Records that the file is complete. */
static void set_complete(const struct ctl *ctl, int64_t set)
{
	struct db *db = store_postgres_open(ctl);

	db_do(db, sql_query_code_set_complete, postgres_number(set));
	db_close(db);
}

static int generate_run(struct ctl *ctl)
{
	char wanted[WANTED_SIZE];
	struct allocation allocation;
	struct generation g;
	struct request request;
	int is_there;

	generation_read(&ctl->args, &g);
	wanted_write(&g, wanted);
	request_open(&request, g.file, wanted);
	/* Without a request it is of somebody else; with one it was put in place just before. */
	is_there = access(g.file, F_OK) == 0;
	if (is_there && request.is_new)
		log_fatal("the file \"%s\" exists: it is never overwritten", g.file);
	set_take(&allocation, &request, ctl, &g, wanted, is_there);
	if (!is_there)
		file_write(&g, &allocation);
	set_complete(ctl, allocation.set);
	request_end(&request);
	code_space_free(allocation.space);
	result_print(ctl, &g, allocation.set);
	return 0;
}

static const struct option generate_options[] = {
	OPTION("count", "N", "number of codes, 1 to 1000000000"),
	OPTION("out", "FILE", "the file to make, which must not exist; mode 600"),
	OPTION("format", "FORMAT", "csv (default) or jsonl; the first column is the code"),
	OPTION("prefix", "PREFIX", "letters and digits in front of each code, and a dash"),
	OPTION("length", "N", "number of symbols, without the prefix; default 13"),
	OPTION("alphabet", "SYMBOLS",
	       "the symbols, 2 to 62 letters and digits; default " CODE_ALPHABET),
	OPTION("pattern", "PATTERN",
	       "the form, for example NOON-####-####, where each # is a symbol;\n"
	       "      instead of --prefix and --length"),
	SWITCH("json", "print the set as one JSON object"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command codes_generate_command = {
	.name = "codes generate",
	.run = generate_run,
	.argument = "COUPON",
	.options = generate_options,
	.summary = "make codes of a coupon, and write them to a file",
	.detail = "Needs --count, --out, and the file of keys, COUPON_CODE_KEYS. After an\n"
		  "interruption run the same command again: it finishes the same set. Meanwhile\n"
		  "FILE.request has what was wanted. A count for which codes could be guessed is\n"
		  "refused, with the arithmetic.",
};
