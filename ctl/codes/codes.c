/*
 * couponctl codes: word makes one code for all, show tells of a code, stats of a coupon's sets, and
 * key makes the file of keys. Before them, what all commands of codes share.
 */
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/codes/codes.h"
#include "ctl/output.h"
#include "ctl/table.h"
#include "embed.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK "codes"
#define FORM_WRONG "PostgreSQL has codes of a form that this version cannot read: %s"
#define WORD_LEAST 3
#define KEYS_HEAD "# Keys of exchange codes: VERSION HEX. Who has them can make codes.\n"

int keyring_read(struct code_keys *keys, const struct ctl *ctl, struct db *db)
{
	char why[CODE_WHY_SIZE], fingerprint[CODE_FINGERPRINT_SIZE];
	const struct code_key *key;
	PGresult *rows;
	int newest = 0;

	if (!*ctl->config.code_keys)
		log_fatal("COUPON_CODE_KEYS is not set: this needs the file with the keys of "
			  "codes; couponctl codes key makes one");
	if (code_key_file_read(keys, ctl->config.code_keys, why))
		log_fatal("%s", why);
	rows = db_ask(db, sql_query_code_keys);
	for (int row = 0; row < PQntuples(rows); row++) {
		newest = (int)column_number(rows, row, "version");
		key = code_keys_find(keys, newest);
		if (!key || strcmp(code_key_fingerprint(key, fingerprint),
				   column_text(rows, row, "fingerprint")) == 0)
			continue;
		log_fatal("COUPON_CODE_KEYS names a file with another key as version %d: its "
			  "fingerprint is %s, and the key that has made codes has %s",
			  newest, fingerprint, column_text(rows, row, "fingerprint"));
	}
	PQclear(rows);
	return newest;
}

void stored_form(struct code_form *form, const PGresult *rows, int row, const char *column)
{
	char why[CODE_WHY_SIZE];

	if (code_form_parse(form, column_text(rows, row, column),
			    column_text(rows, row, "alphabet"), why))
		log_fatal(FORM_WRONG, why);
}

void stored_read(struct stored *stored, const struct ctl *ctl, struct db *db)
{
	PGresult *rows = db_ask(db, sql_query_code_catalogue);
	struct code_keys keys = { .n = 0 };
	char why[CODE_WHY_SIZE];

	*stored = (struct stored){ .book = code_book_new() };
	for (int row = 0; row < PQntuples(rows); row++) {
		if (db_is_null(rows, row, "space_id"))
			continue; /* not of generated codes */
		if (keys.n == 0)
			keyring_read(&keys, ctl, db);
		switch (code_book_take(stored->book, &keys, rows, row, why)) {
		case CODE_TAKEN:
			break;
		case CODE_KEY_MISSING:
			stored->unread += column_number(rows, row, "code_num");
			stored->unread_key = (int)column_number(rows, row, "key_version");
			break;
		case CODE_KEY_OTHER:
			log_fatal("%s", why);
		case CODE_FORM_WRONG:
			log_fatal(FORM_WRONG, why);
		}
	}
	code_keys_wipe(&keys);
	PQclear(rows);
}

struct code_space *stored_space(const struct stored *stored, int64_t id)
{
	struct code_space *space = code_book_space(stored->book, id);

	if (!space)
		log_fatal("the file that COUPON_CODE_KEYS names lacks the key of version %d, which "
			  "has made these codes",
			  stored->unread_key);
	return space;
}

int stored_wait(const struct ctl *ctl)
{
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);
	struct db *db = store_postgres_open(ctl);
	int status;

	(void)redis_client_open(redis); /* or every call fails */
	status = store_gateways_wait(db, redis, STORE_NEWS_CODES);
	redis_client_free(redis);
	db_close(db);
	return status;
}

struct db *stored_lock(const struct ctl *ctl)
{
	struct db *db = store_changing_open(ctl, NULL);

	db_lock_wait(db, LOCK);
	return db;
}

int64_t stored_set_add(struct db *db, int64_t coupon, const char *kind, const char *request,
		       const char *source)
{
	int64_t set = db_value(db, sql_query_code_set_add, postgres_number(coupon),
			       postgres_text(kind), postgres_text(request), postgres_text(source));

	if (!set)
		log_fatal_as(CTL_ABSENT, "there is no coupon %lld", (long long)coupon);
	return set;
}

/* The set of this coupon that has the word; 0: no code has its text. Another's ends the process. */
static int64_t present_find(struct db *db, const char *text, int64_t coupon)
{
	PGresult *row = db_ask(db, sql_query_code_row, db_id(0), db_id(0), postgres_text(text));
	int64_t set = PQntuples(row) > 0 ? column_number(row, 0, "set_id") : 0;

	if (set && (column_number(row, 0, "coupon_id") != coupon ||
		    strcmp(column_text(row, 0, "kind"), "word") != 0))
		log_fatal("\"%s\" exists: %s, of set %" PRId64 " of coupon %s", text,
			  column_text(row, 0, "kind"), set, column_text(row, 0, "coupon_id"));
	if (set && strcmp(column_text(row, 0, "state"), "revoked") == 0)
		log_fatal("\"%s\" was revoked, in set %" PRId64 ": choose another word", text, set);
	PQclear(row);
	return set;
}

static void generated_refuse(const struct ctl *ctl, struct db *db, const char *word)
{
	struct code_found found;
	struct stored stored;

	stored_read(&stored, ctl, db);
	if (code_book_find(stored.book, word, strlen(word), &found) == 0)
		log_fatal("\"%s\" exists: a generated code, of set %" PRId64, word, found.set->id);
	code_book_free(stored.book);
}

static int64_t word_store(struct db *db, const char *word, const char *text, int64_t coupon)
{
	int64_t set = stored_set_add(db, coupon, "word", NULL, NULL);

	if (!db_value(db, sql_query_code_word, postgres_number(set), postgres_number(coupon),
		      postgres_text(text), postgres_text(word)))
		log_fatal("\"%s\" was stored by another command at this moment", text);
	db_do(db, sql_query_code_set_complete, postgres_number(set));
	return set;
}

static int word_run(struct ctl *ctl)
{
	int64_t coupon = args_coupon(&ctl->args), set;
	const char *word = args_required(&ctl->args, "word");
	cJSON *object = output_object();
	char text[CODE_OTHERS_SIZE];
	struct db *db;
	int status;

	if (code_text_spell(word, strlen(word), text) || strlen(text) < WORD_LEAST)
		args_fail("--word is \"%s\": allowed are 3 to 64 bytes of printable ASCII, not "
			  "counting spaces and dashes",
			  word);
	db = stored_lock(ctl);
	generated_refuse(ctl, db, word);
	db_run(db, "BEGIN");
	store_key_bind(db, ctl, NULL);
	set = present_find(db, text, coupon);
	if (!set)
		set = word_store(db, code_text_is_plain(word, strlen(word)) ? word : text, text,
				 coupon);
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

/* The spelling of a text that is of the form of the row. */
static void generated_spell(struct text_buffer *code, const PGresult *row, const char *text)
{
	char spelled[CODE_WIDTH_MAX];
	struct ff1_string string;
	struct code_form form;

	stored_form(&form, row, 0, "pattern");
	check(code_form_read(&form, text, strlen(text), &string) == 0);
	code_form_write(&form, &string, spelled);
	text_add(code, spelled, form.width);
}

/* The row of the code, with its one spelling; NULL: there is none. */
static PGresult *code_find(struct db *db, const struct stored *stored, const char *text,
			   struct text_buffer *code)
{
	char spelled[CODE_OTHERS_SIZE];
	struct code_found found;
	PGresult *row = NULL;

	if (code_book_find(stored->book, text, strlen(text), &found) == 0) {
		row = db_ask(db, sql_query_code_row, postgres_number(found.set->id),
			     postgres_number(found.serial), postgres_text(NULL));
		generated_spell(code, row, text);
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

static void code_say(const PGresult *row, const char *code, int as_json)
{
	cJSON *object = output_object();
	char receive[STORE_RECEIVE_SIZE];

	store_receive_text(row, 0, column_number(row, 0, "coupon_id"), receive);
	output_text(object, "code", code);
	output_text(object, "kind", column_text(row, 0, "kind"));
	output_id(object, "set", column_number(row, 0, "set_id"));
	output_id(object, "coupon", column_number(row, 0, "coupon_id"));
	output_text(object, "state", column_text(row, 0, "state"));
	if (db_is_null(row, 0, "claimed"))
		output_null(object, "claimed");
	else
		output_number(object, "claimed", column_number(row, 0, "claimed"));
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
		   "[metadata   metadata {metadata}\n]",
		   as_json);
}

static void absent_tell(const struct stored *stored, const char *text)
{
	struct text_buffer shown = { 0 };

	text_add_shown(&shown, text, strlen(text));
	fprintf(stderr, "couponctl: there is no code \"%s\"", shown.data ? shown.data : "");
	if (stored->unread > 0)
		fprintf(stderr,
			", unless it is one of %lld codes of key %d, which the file of keys lacks",
			(long long)stored->unread, stored->unread_key);
	fputc('\n', stderr);
	text_buffer_fini(&shown);
}

static int show_run(struct ctl *ctl)
{
	const char *text = ctl->args.argument;
	struct db *db = store_postgres_open(ctl);
	struct text_buffer code = { 0 };
	struct stored stored;
	PGresult *row;
	int is_there;

	stored_read(&stored, ctl, db);
	row = code_find(db, &stored, text, &code);
	is_there = row != NULL;
	if (is_there)
		code_say(row, code.data, args_has(&ctl->args, "json"));
	else
		absent_tell(&stored, text);
	PQclear(row);
	text_buffer_fini(&code);
	code_book_free(stored.book);
	db_close(db);
	return is_there ? 0 : CTL_ABSENT;
}

static int list_run(struct ctl *ctl)
{
	static const char *const numbers[] = { "codes", "unused", "used", "revoked" };
	static const char line[] =
		"{set:-20|all} {kind:-9} {codes:12} {unused:12} {used:12} {revoked:12}  "
		"[form {form}][!form {file|-}]";
	int64_t coupon = args_coupon(&ctl->args);
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
		output_template(cJSON_HasObjectItem(set, "claimed")
					? ", redemptions: {claimed}\n"
					: "[!complete , not complete]\n",
				set);
	}
	output_say(object, line, 0);
	putchar('\n');
	return 0;
}

/* Writes what the file has now, or its head when there is none. Returns the version to add. */
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
	/* It keeps its group and who may read it. */
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
			   KEY_OPTION, BY_OPTION),
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
				&codes_show_command, &codes_revoke_command, &codes_export_command,
				&codes_key_command),
	.summary = "make, import, list, show, revoke and export exchange codes",
};
