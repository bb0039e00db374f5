/*
 * couponctl codes generate: a set of new codes, written to a file. Without a file only PostgreSQL
 * has the set, and couponctl codes export writes its codes.
 *
 * The request of a file that is being made is FILE.request beside it: the line REQUEST_HEAD, the
 * lines that say what is wanted, and `request ID`, by which PostgreSQL knows the set. It is on the
 * disk before PostgreSQL commits the set, and removed when the file is complete: so the same
 * command, run again after any interruption, finishes that set and makes no second one. Without a
 * complete last line nothing was made yet. While the process runs it has a lock on it.
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/codes/stored_codes.h"
#include "ctl/output.h"
#include "ctl/table.h"
#include "embed.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define COUNT_MAX 1000000000
#define CHUNK 4096
#define REQUEST_HEAD "couponctl codes generate\n"
#define REQUEST_ID "request "
#define REQUEST_SIZE 4096
#define WANTED_SIZE 1024
#define POSITIONS_MAX (INT64_C(1) << 62)
#define TRIES 32

struct request_file {
	char *path;
	int fd;
	int is_new; /* no command before has written it */
	char id[ULID_SIZE];
};

static const char *unwritten; /* the path of a new request, to be removed at exit */

static void unwritten_remove(void)
{
	if (unwritten)
		unlink(unwritten);
}

static _Noreturn void request_failed(const struct request_file *request, const char *what)
{
	log_fatal("the file \"%s\" cannot be %s: %s", request->path, what, strerror(errno));
}

/* Writes a new request to the disk. */
static void request_write(struct request_file *request, const char *wanted)
{
	char text[REQUEST_SIZE];
	int n;

	n = snprintf(text, sizeof(text), REQUEST_HEAD "%s" REQUEST_ID "%s\n", wanted, request->id);
	check(n > 0 && (size_t)n < sizeof(text) - 1);
	if (ftruncate(request->fd, 0) || pwrite(request->fd, text, (size_t)n, 0) != n ||
	    fsync(request->fd) || file_folder_sync(request->path))
		request_failed(request, "written");
	unwritten = NULL;
}

/*
 * Takes up the request that is there, or begins one with a new id. `wanted` is one or more whole
 * lines. Ends the process with a sentence when another process has the request, or when something
 * else was wanted. A new request that is never written leaves no file when the process exits. Only
 * one may be open.
 */
static void request_open(struct request_file *request, const char *file, const char *wanted)
{
	char text[REQUEST_SIZE], *line;
	size_t head = strlen(REQUEST_HEAD);
	const char *id_text, *is;
	struct ulid id;
	ssize_t n;

	check(asprintf(&request->path, "%s.request", file) >= 0);
	request->fd = file_lock(request->path, 0);
	if (request->fd < 0 && errno == EWOULDBLOCK)
		log_fatal_as(CTL_AWAY, "another couponctl is writing this file: it has \"%s\"",
			     request->path);
	if (request->fd < 0)
		request_failed(request, "opened");
	n = pread(request->fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		request_failed(request, "read");
	text[n] = '\0';
	if (memchr(text, '\0', (size_t)n) || (size_t)n == sizeof(text) - 1 ||
	    strncmp(text, REQUEST_HEAD, (size_t)n < head ? (size_t)n : head) != 0)
		log_fatal(
			"the file \"%s\" was not written by couponctl codes generate: move it away",
			request->path);

	line = strstr(text, "\n" REQUEST_ID);
	id_text = line ? line + 1 + strlen(REQUEST_ID) : "";
	request->is_new = strlen(id_text) != ULID_LEN + 1 || id_text[ULID_LEN] != '\n' ||
			  ulid_parse(&id, id_text, ULID_LEN);
	if (request->is_new) {
		ulid_new(&id, clock_wall_ms());
		ulid_format(&id, request->id);
		unwritten = request->path;
		check(atexit(unwritten_remove) == 0);
		return;
	}
	ulid_format(&id, request->id);
	/* The lines of the file against those of this command: each ends with a newline. */
	line[1] = '\0';
	for (is = text + head; *is || *wanted;) {
		size_t is_len = strcspn(is, "\n"), len = strcspn(wanted, "\n");

		if (is_len != len || memcmp(is, wanted, len) != 0)
			log_fatal("the file \"%s\" is of an unfinished command with \"%.*s\", and "
				  "this one has \"%.*s\": run that one again, or remove the file "
				  "to give its codes up",
				  request->path, (int)is_len, is, (int)len, wanted);
		is += is_len + 1;
		wanted += len + 1;
	}
}

struct code_generation {
	int64_t coupon, count;
	const char *file; /* NULL: none is written, and the request has none */
	enum sheet_format format;
	struct code_form form;
	struct request_file request;

	cJSON *before; /* what a command with the same --key has made; NULL: none has */

	/* The range of positions that PostgreSQL gives to the set. */
	int64_t set, first;
	struct code_space *space;
};

/*
 * Makes a set, somewhere among all positions. When PostgreSQL was put back to an earlier moment it
 * has forgotten sets whose codes are in somebody's hands; next to the last one it knows, a new set
 * would have the same codes. Here that is as unlikely as a good guess.
 */
static void set_make(struct code_generation *g, const struct args *args, struct db *db,
		     const struct code_key *key, int newest)
{
	unsigned __int128 size = g->form.size < POSITIONS_MAX ? g->form.size : POSITIONS_MAX;
	char fingerprint[CODE_FINGERPRINT_SIZE], why[CODE_WHY_SIZE];
	int64_t space, own = 0, others = 0;
	struct code_terms terms;
	PGresult *rows;
	int tries = 0;

	if (key->version < newest)
		log_fatal("the file that COUPON_CODE_KEYS names has keys up to version %d, and a "
			  "later one has made codes: it is not the newest file",
			  key->version);
	terms = code_terms_read(args, db, g->coupon);

	/*
	 * Counts the codes in its own space, and in the spaces whose codes may have the same text:
	 * a set that makes guessing too easy is refused.
	 */
	rows = db_ask(db, sql_query_code_catalogue);
	for (int row = 0; row < PQntuples(rows); row++) {
		struct code_form other;

		if (db_is_null(rows, row, "space_id"))
			continue; /* not of generated codes */
		stored_form(&other, rows, row, "form");
		if (code_forms_same(&other, &g->form) &&
		    column_number(rows, row, "key_version") == key->version)
			own += column_number(rows, row, "code_num");
		else if (code_forms_overlap(&other, &g->form))
			others += column_number(rows, row, "code_num");
	}
	PQclear(rows);
	if (code_chance_check(&g->form, own, others, g->count, why))
		log_fatal("%s", why);

	space = db_value(db, sql_query_code_space_id, postgres_text(g->form.plain),
			 postgres_text(g->form.alphabet), postgres_number(key->version),
			 postgres_text(code_key_fingerprint(key, fingerprint)));
	do {
		uint64_t random;

		check(tries++ < TRIES); /* at most a billionth of the positions is in use */
		check(getrandom(&random, sizeof(random), 0) == sizeof(random));
		g->first = (int64_t)((unsigned __int128)random * (size - (uint64_t)g->count + 1) >>
				     64);
		g->set = db_value(db, sql_query_code_set_generate, postgres_number(g->coupon),
				  postgres_number(space), postgres_number(g->first),
				  postgres_number(g->count), postgres_text(g->form.pattern),
				  postgres_text(g->request.id), postgres_text(g->file),
				  postgres_text(terms.user), postgres_number(terms.end_ms));
	} while (!g->set);
	g->space = code_space_new(&g->form, key);
}

/* Takes up the set that a command before has made, maybe with an older key. */
static void set_resume(struct code_generation *g, const struct code_keys *keys, const PGresult *row)
{
	int version = (int)column_number(row, 0, "key_version");
	const struct code_key *key = code_keys_find(keys, version);

	if (!key)
		log_fatal("the file that COUPON_CODE_KEYS names lacks the key of version %d, with "
			  "which these codes were begun",
			  version);
	check(column_number(row, 0, "code_num") == g->count);
	g->set = column_number(row, 0, "id");
	g->first = column_number(row, 0, "first_position");
	g->space = code_space_new(&g->form, key);
	if (db_is_true(row, 0, "is_revoked"))
		log_fatal("the set %" PRId64 " of this unfinished command was revoked: remove "
			  "\"%s\" to begin anew",
			  g->set, g->request.path);
}

static cJSON *result_object(const struct code_generation *g)
{
	cJSON *object = output_object();

	output_id(object, "set", g->set);
	output_id(object, "coupon", g->coupon);
	output_number(object, "count", g->count);
	output_text(object, "pattern", g->form.pattern);
	output_text(object, "file", g->file);
	return object;
}

/*
 * Makes the set of this request, or finds the one that was made for it before. Ends the process
 * with a sentence if it cannot be: no such coupon, too many codes for the form, other keys.
 */
static void set_take(struct code_generation *g, const struct ctl *ctl, const char *wanted,
		     int is_there)
{
	struct code_keys keys;
	struct db *db;
	PGresult *row;
	int newest, is_made; /* by a command before */

	db = stored_lock(ctl);
	newest = keyring_read(&keys, ctl, db);
	db_run(db, "BEGIN");
	g->before = store_key_take(db, ctl, NULL);
	if (g->before && !g->file) {
		code_keys_wipe(&keys);
		db_close(db);
		return;
	}
	row = db_ask(db, sql_query_code_set_list, db_id(0), db_id(0), postgres_text(g->request.id));
	is_made = PQntuples(row) > 0;
	if (g->before && !is_made)
		log_fatal(
			"--key is \"%s\": it has made set %s, and \"%s\" is gone; couponctl codes "
			"export --set SET --all writes its codes",
			args_text(&ctl->args, "key"),
			cJSON_GetStringValue(cJSON_GetObjectItem(g->before, "set")),
			g->request.path);
	if (is_made)
		set_resume(g, &keys, row);
	else
		set_make(g, &ctl->args, db, code_keys_newest(&keys), newest);
	PQclear(row);
	code_keys_wipe(&keys);
	if (is_there && !is_made)
		log_fatal(
			"the file \"%s\" exists, but PostgreSQL does not have its set: it was put "
			"back to an earlier moment; move the file and \"%s\" away to begin anew",
			g->file, g->request.path);
	if (!g->file)
		db_do(db, sql_query_code_set_complete, postgres_number(g->set));
	else if (g->request.is_new)
		request_write(&g->request, wanted);
	if (!g->before) {
		cJSON *object = result_object(g);

		store_key_answer(db, ctl, object);
		cJSON_Delete(object);
	}
	/* If the reply is lost, the process ends, and the same request finds the set. */
	db_run(db, "COMMIT");
	db_close(db);
}

/*
 * Whether a command with the same --key has made the set, and its file to the end. Otherwise its
 * request is beside the file, and is taken up.
 */
static int file_is_complete(struct code_generation *g, const struct ctl *ctl)
{
	struct db *db;
	char *request;
	int is_gone;

	if (!args_has(&ctl->args, "key") || access(g->file, F_OK))
		return 0;
	db = store_changing_open(ctl, NULL);
	db_run(db, "BEGIN");
	g->before = store_key_take(db, ctl, NULL);
	db_close(db);
	check(asprintf(&request, "%s.request", g->file) >= 0);
	is_gone = access(request, F_OK) != 0;
	free(request);
	return g->before && is_gone;
}

static void set_and_file(struct code_generation *g, const struct ctl *ctl)
{
	static const char *const if_given[] = { "user", "valid-to" };
	char wanted[WANTED_SIZE];
	struct db *db;
	int is_there, len;

	if (file_is_complete(g, ctl))
		return;
	/* All that decides what is in the file. */
	len = snprintf(wanted, sizeof(wanted),
		       "coupon %" PRId64 "\ncount %" PRId64
		       "\npattern %s\nalphabet %s\nformat %s\n",
		       g->coupon, g->count, g->form.pattern, g->form.alphabet,
		       sheet_format_names[g->format]);
	for (size_t i = 0; i < sizeof(if_given) / sizeof(if_given[0]); i++)
		if (args_has(&ctl->args, if_given[i]))
			len += snprintf(wanted + len, sizeof(wanted) - (size_t)len, "%s %s\n",
					if_given[i], args_text(&ctl->args, if_given[i]));
	check(len < WANTED_SIZE);
	request_open(&g->request, g->file, wanted);
	/* A file without a request belongs to somebody else; with one it is complete. */
	is_there = access(g->file, F_OK) == 0;
	if (is_there && g->request.is_new)
		log_fatal("the file \"%s\" exists: it is never overwritten", g->file);
	set_take(g, ctl, wanted, is_there);
	if (!is_there) {
		static const char *const columns[] = { "code", "coupon", "set", NULL };
		static char codes[CHUNK * CODE_WIDTH_MAX];
		struct sheet sheet = { .format = g->format, .columns = columns, .csv_end = "\n" };
		char coupon[NUMBER_SIZE], set[NUMBER_SIZE];
		struct cell cells[] = { { .len = g->form.width },
					cell_text(number_text(g->coupon, coupon)),
					cell_text(number_text(g->set, set)) };
		struct progress progress = { 0 };
		size_t n;

		sheet_begin(&sheet, g->file);
		for (int64_t done = 0; done < g->count; done += (int64_t)n) {
			n = g->count - done < CHUNK ? (size_t)(g->count - done) : CHUNK;
			code_space_write(g->space, &g->form, g->first + done, n, codes);
			for (size_t i = 0; i < n; i++) {
				cells[0].text = codes + i * g->form.width;
				sheet_row(&sheet, cells);
			}
			if (sheet_failed(&sheet))
				break;
			progress_show(&progress, "codes", done + (int64_t)n, g->count);
		}
		progress_end(&progress);
		sheet_end(&sheet, FILE_KEEP);
	}
	db = store_postgres_open(ctl);
	db_do(db, sql_query_code_set_complete, postgres_number(g->set));
	db_close(db);

	/* The file is complete. */
	if (unlink(g->request.path) || file_folder_sync(g->request.path))
		request_failed(&g->request, "removed");
	close(g->request.fd);
	free(g->request.path);
}

static int generate_run(struct ctl *ctl)
{
	int as_json = args_has(&ctl->args, "json"), status;
	char chance[CODE_CHANCE_SIZE];
	struct code_generation g;
	struct ulid id;
	cJSON *object;
	char usual[CODE_WIDTH_MAX + 1], why[CODE_WHY_SIZE];
	unsigned length;
	const char *pattern = args_text(&ctl->args, "pattern"),
		   *prefix = args_text(&ctl->args, "prefix"),
		   *alphabet = args_text(&ctl->args, "alphabet");

	/* What is wanted. */
	args_required(&ctl->args, "count");
	g = (struct code_generation){
		.coupon = args_id_argument(&ctl->args),
		.count = args_number(&ctl->args, "count", 1, COUNT_MAX, 0),
		.file = args_text(&ctl->args, "out"),
		.format = sheet_format_read(&ctl->args, NULL),
	};
	if (g.file && !*g.file)
		args_fail("--out is \"\": needed is the name of a file");

	if (!prefix)
		prefix = "";
	for (const char *p = prefix; *p; p++)
		if (!isascii((unsigned char)*p) || !isalnum((unsigned char)*p))
			args_fail("--prefix is \"%s\": allowed are letters and digits of ASCII",
				  prefix);
	length = (unsigned)args_number(&ctl->args, "length", 2, CODE_TEXT_MAX, CODE_LENGTH);
	if (pattern && (args_has(&ctl->args, "prefix") || args_has(&ctl->args, "length")))
		args_fail("--pattern is \"%s\": not allowed together with --prefix or --length",
			  pattern);
	if (strlen(prefix) + length > CODE_TEXT_MAX || code_pattern_make(prefix, length, usual))
		args_fail("--prefix and --length are %zu characters: allowed are %d",
			  strlen(prefix) + length, CODE_TEXT_MAX);
	if (code_form_parse(&g.form, pattern ? pattern : usual, alphabet ? alphabet : CODE_ALPHABET,
			    why))
		args_fail("%s", why);
	if (code_chance_check(&g.form, 0, 0, g.count, why))
		args_fail("%s", why);
	code_terms_check(&ctl->args);

	if (g.file) {
		set_and_file(&g, ctl);
	} else {
		/* The set is in PostgreSQL, and complete, or not: nothing is to be taken up. */
		ulid_new(&id, clock_wall_ms());
		ulid_format(&id, g.request.id);
		set_take(&g, ctl, NULL, 0);
	}
	if (g.space)
		code_space_free(g.space);
	status = stored_wait(ctl);
	object = g.before ? cJSON_Duplicate(g.before, 1) : result_object(&g);
	output_made("set %s was made", cJSON_GetStringValue(cJSON_GetObjectItem(object, "set")));
	output_say(object, "set {set}: {count:,} codes of coupon {coupon}[file  in {file}]\n",
		   as_json);
	if (!as_json)
		puts(code_chance_text(&g.form, g.count, chance));
	return status;
}

const struct command codes_generate_command = {
	.name = "codes generate",
	.run = generate_run,
	.argument = "COUPON",
	.modes = COMMANDS(&codes_word_command),
	.options =
		OPTIONS(OPTION("count", "N", "number of codes, 1 to 1000000000"),
			OPTION("out", "FILE",
			       "the file to make, which must not exist; mode 600; default: none"),
			OPTION_WORDS("format", "FORMAT", sheet_format_names,
				     "csv (default) or jsonl; the first column is the code"),
			OPTION("prefix", "PREFIX",
			       "letters and digits in front of each code, and a dash"),
			OPTION("length", "N", "number of symbols, without the prefix; default 13"),
			OPTION("alphabet", "SYMBOLS",
			       "the symbols, 2 to 62 letters and digits; default " CODE_ALPHABET),
			OPTION("pattern", "PATTERN",
			       "the form, for example NOON-####-####, where each # is a symbol; "
			       "instead of --prefix and --length"),
			CODE_TERMS_OPTIONS, KEY_OPTION, BY_OPTION),
	.summary = "make codes of a coupon",
	.detail =
		"Needs --count, and the file of keys, COUPON_CODE_KEYS. After an interruption\n"
		"run the same command with --out again: it finishes the same set. Meanwhile\n"
		"FILE.request has what was wanted. Without --out couponctl codes export --set\n"
		"SET --all writes the codes. A count for which codes could be guessed is refused,\n"
		"with the arithmetic.",
};
