/*
 * couponctl codes revoke: codes by their text or in a file, or a set. PostgreSQL has a revocation
 * first, with a number for each of a coupon. Redis gets all those that it does not have, and then
 * the number: see docs/lifecycle.md.
 */
#include "codes/text.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "common/redis/client.h"
#include "ctl/codes/code_file.h"
#include "ctl/codes/revocations.h"
#include "ctl/codes/stored.h"
#include "ctl/output.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 20000

struct counts {
	int64_t revoked, before, refused; /* now, before, told */
};

struct revoke_code {
	struct text_buffer name;     /* for messages */
	char text[CODE_OTHERS_SIZE]; /* "": it was found, or is wrong */
	int64_t set, serial, coupon; /* set 0: not found, or not to be revoked */
	int is_word;
	int is_redeemed;          /* in Redis, when that was asked first */
	struct text_buffer wrong; /* empty: it is revoked */
};

struct revocation {
	struct db *db;
	struct redis_client *redis;
	struct stored stored;
	struct counts counts;
	struct revoke_code *codes; /* CHUNK of them, which are revoked together, then told */
	size_t n;
};

/* `where` is put in front of the code in messages. `wrong`: what is wrong with its row, or NULL. */
static void code_add(struct revocation *r, const char *where, const char *code, size_t len,
		     const char *wrong)
{
	struct revoke_code *to = &r->codes[r->n++];
	struct code_found found;

	text_buffer_clear(&to->name);
	text_buffer_clear(&to->wrong);
	text_add_string(&to->name, where);
	to->text[0] = '\0';
	to->set = 0;
	to->is_word = 0;
	to->is_redeemed = 0;
	if (wrong) {
		text_add_string(&to->wrong, wrong);
		return;
	}
	text_add_string(&to->name, "\"");
	text_add_shown(&to->name, code, len);
	text_add_string(&to->name, "\": ");
	if (code_book_find(r->stored.book, code, len, &found) == 0) {
		to->set = found.set->id;
		to->serial = found.serial;
		to->coupon = found.set->coupon;
	} else if (code_text_spell(code, len, to->text)) {
		text_add_string(&to->wrong, "there is no such code");
	}
}

/* Finds those that are no generated codes. */
static void others_find(struct revocation *r)
{
	struct postgres_array texts;
	PGresult *rows;

	postgres_array_init(&texts, POSTGRES_TEXT);
	for (size_t i = 0; i < r->n; i++)
		postgres_array_add_text(&texts, r->codes[i].text, strlen(r->codes[i].text));
	rows = db_ask(r->db, sql_query_code_redeemable, postgres_array(&texts));
	for (int row = 0; row < PQntuples(rows); row++) {
		struct revoke_code *code = &r->codes[db_int(rows, row, "ord") - 1];

		code->set = db_int(rows, row, "set_id");
		code->serial = db_int(rows, row, "serial");
		code->coupon = db_int(rows, row, "coupon_id");
		code->is_word = strcmp(db_text(rows, row, "kind"), "word") == 0;
	}
	PQclear(rows);
	postgres_array_fini(&texts);
	for (size_t i = 0; i < r->n; i++)
		if (!r->codes[i].set && r->codes[i].wrong.len == 0)
			text_add_string(&r->codes[i].wrong, "there is no such code");
}

static void used_add(struct revoke_code *code, const char *user)
{
	text_add_string(&code->wrong, "it is used, by user ");
	text_add_string(&code->wrong, user);
}

static void name_write(const struct revoke_code *code, char name[RECEIVE_CODE_MAX + 1])
{
	if (code->is_word)
		id_format(code->set, name);
	else
		receive_code_format(code->set, code->serial, name);
}

/* Those that are redeemed in Redis are named. Returns how many. */
static int64_t run_look(struct redis_client *redis, struct revoke_code *const *run, size_t n)
{
	static char names[REDIS_REVOKE_CODES_MAX][RECEIVE_CODE_MAX + 1];
	const char *argv[2 + REDIS_REVOKE_CODES_MAX] = { "HMGET" };
	char key[COUPON_KEY_SIZE], user[USER_ID_SIZE];
	redisReply *reply;
	int64_t used = 0;

	argv[1] = coupon_key(run[0]->coupon, COUPON_KEY_CODES, key);
	for (size_t i = 0; i < n; i++) {
		name_write(run[i], names[i]);
		argv[2 + i] = names[i];
	}
	reply = redis_client_call(redis, 2 + (int)n, argv);
	store_redis_check(redis, reply != NULL);
	for (size_t i = 0; i < n; i++) {
		size_t len = redis_code_user(reply->element[i]);

		if (len == 0)
			continue;
		snprintf(user, sizeof(user), "%.*s", (int)len, reply->element[i]->str);
		run[i]->is_redeemed = 1;
		used_add(run[i], user);
		used++;
	}
	freeReplyObject(reply);
	return used;
}

/* The same of all codes but those found before, each run of one coupon in a call. */
static int64_t owners_look(struct revocation *r)
{
	struct revoke_code *run[REDIS_REVOKE_CODES_MAX];
	int64_t used = 0;
	size_t n = 0;

	for (size_t i = 0; i <= r->n; i++) {
		struct revoke_code *code = i < r->n ? &r->codes[i] : NULL;

		if (code && (!code->set || code->is_redeemed))
			continue;
		if (n > 0 &&
		    (!code || n == REDIS_REVOKE_CODES_MAX || code->coupon != run[0]->coupon)) {
			used += run_look(r->redis, run, n);
			n = 0;
		}
		if (code)
			run[n++] = code;
	}
	return used;
}

struct columns {
	struct postgres_array sets, serials, coupons;
	size_t at[CHUNK]; /* of each element: its place in the chunk */
};

static void columns_fill(struct columns *columns, const struct revocation *r, int redeemed)
{
	postgres_array_init(&columns->sets, POSTGRES_INT8);
	postgres_array_init(&columns->serials, POSTGRES_INT8);
	postgres_array_init(&columns->coupons, POSTGRES_INT8);
	for (size_t i = 0; i < r->n; i++) {
		const struct revoke_code *code = &r->codes[i];

		if (!code->set || code->is_redeemed != redeemed)
			continue;
		columns->at[columns->sets.n] = i;
		postgres_array_add_number(&columns->sets, code->set);
		postgres_array_add_number(&columns->serials, code->serial);
		postgres_array_add_number(&columns->coupons, code->coupon);
	}
}

static void columns_fini(struct columns *columns)
{
	postgres_array_fini(&columns->sets);
	postgres_array_fini(&columns->serials);
	postgres_array_fini(&columns->coupons);
}

static void used_note(struct revocation *r, const struct columns *columns)
{
	PGresult *rows = db_ask(r->db, sql_query_code_used, postgres_array(&columns->sets),
				postgres_array(&columns->serials));

	for (int row = 0; row < PQntuples(rows); row++) {
		struct revoke_code *code = &r->codes[columns->at[db_int(rows, row, "ord") - 1]];

		code->set = 0;
		used_add(code, db_text(rows, row, "user_id"));
	}
	PQclear(rows);
}

/*
 * Revokes those that are redeemed in Redis, or the others, in a transaction. Returns how many were
 * not revoked before. What is redeemed, but not settled yet, is revoked once its receive loses it.
 */
static int64_t part_revoke(struct revocation *r, int redeemed)
{
	static struct columns columns;
	int64_t revoked = 0;
	PGresult *result;

	columns_fill(&columns, r, redeemed);
	if (columns.sets.n > 0) {
		db_run(r->db, "BEGIN");
		result = db_ask(r->db, sql_query_code_revoke, postgres_array(&columns.sets),
				postgres_array(&columns.serials), postgres_array(&columns.coupons));
		revoked = db_int(result, 0, "revoked");
		PQclear(result);
		if (!redeemed)
			used_note(r, &columns);
		if (revoked > 0)
			db_do(r->db, sql_query_code_changed);
		db_run(r->db, "COMMIT");
	}
	columns_fini(&columns);
	return revoked;
}

static int numbers_compare(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

/* Tells Redis of the revocations of each coupon once. */
static void coupons_apply(const struct revocation *r)
{
	int64_t *coupons = calloc(r->n + 1, sizeof(*coupons));
	size_t n = 0;

	check(coupons != NULL);
	for (size_t i = 0; i < r->n; i++)
		if (r->codes[i].set)
			coupons[n++] = r->codes[i].coupon;
	qsort(coupons, n, sizeof(*coupons), numbers_compare);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || coupons[i] != coupons[i - 1])
			revocations_apply(r->db, r->redis, coupons[i]);
	free(coupons);
}

static int64_t refused_tell(const struct revocation *r)
{
	int64_t refused = 0;

	for (size_t i = 0; i < r->n; i++) {
		const struct revoke_code *code = &r->codes[i];

		if (code->wrong.len == 0)
			continue;
		fprintf(stderr, "couponctl: %s%s\n", code->name.data, code->wrong.data);
		refused++;
	}
	return refused;
}

/*
 * Revokes the codes, in Redis and PostgreSQL, tells on standard error which are used or do not
 * exist, and counts them. Then there is room for others.
 */
static void chunk_revoke(struct revocation *r)
{
	int64_t revoked, refused;

	others_find(r);
	owners_look(r);
	revoked = part_revoke(r, 0);
	part_revoke(r, 1);
	coupons_apply(r);
	revoked -= owners_look(r); /* redeemed since the first look */
	refused = refused_tell(r);
	r->counts.revoked += revoked;
	r->counts.refused += refused;
	r->counts.before += (int64_t)r->n - revoked - refused;
	r->n = 0;
}

static void one_add(struct revocation *r, const char *where, const char *code, size_t len,
		    const char *wrong)
{
	code_add(r, where, code, len, wrong);
	if (r->n == CHUNK)
		chunk_revoke(r);
}

static void file_revoke(struct revocation *r, const char *path, enum sheet_format format)
{
	struct code_file *file = code_file_open(path, format);
	struct text_buffer where = { 0 };
	struct code_row row;

	while (code_file_next(file, &row)) {
		char line[32];

		snprintf(line, sizeof(line), ":%" PRId64 ": ", row.line);
		text_buffer_clear(&where);
		text_add_string(&where, path);
		text_add_string(&where, line);
		one_add(r, where.data, row.code, row.code_len, row.wrong);
	}
	text_buffer_fini(&where);
	code_file_close(file);
}

static void revocation_begin(struct revocation *r, const struct ctl *ctl)
{
	*r = (struct revocation){ .codes = calloc(CHUNK, sizeof(*r->codes)) };
	check(r->codes != NULL);
	r->db = store_changing_open(ctl, &r->redis);
	stored_read(&r->stored, ctl, r->db);
}

static void revocation_end(struct revocation *r)
{
	for (size_t i = 0; i < CHUNK; i++) {
		text_buffer_fini(&r->codes[i].name);
		text_buffer_fini(&r->codes[i].wrong);
	}
	free(r->codes);
	stored_fini(&r->stored);
	redis_client_free(r->redis);
	db_close(r->db);
}

static int codes_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *path = args_text(args, "file");
	struct revocation r;
	cJSON *object;

	revocation_begin(&r, ctl);
	for (int i = 0; i < args->arguments_n; i++)
		one_add(&r, "", args->arguments[i], strlen(args->arguments[i]), NULL);
	if (path)
		file_revoke(&r, path, sheet_format_read(args, path));
	chunk_revoke(&r);
	revocation_end(&r);
	if (args_has(&ctl->args, "json")) {
		object = output_object();
		output_number(object, "revoked", r.counts.revoked);
		output_number(object, "revoked_before", r.counts.before);
		output_number(object, "refused", r.counts.refused);
		output_print(object);
	} else {
		printf("%" PRId64 " revoked, %" PRId64 " revoked before, %" PRId64 " refused\n",
		       r.counts.revoked, r.counts.before, r.counts.refused);
	}
	return r.counts.refused > 0;
}

static PGresult *set_revoke(const struct ctl *ctl, struct db *db, int64_t set)
{
	PGresult *row = db_ask(db, sql_query_code_set_coupon, postgres_number(set));
	struct redis_client *redis = store_redis_open(ctl);

	if (PQntuples(row) == 0)
		log_fatal("there is no set %" PRId64, set);
	db_do(db, sql_query_code_set_revoke, postgres_number(set));
	revocations_apply(db, redis, db_int(row, 0, "coupon_id"));
	PQclear(row);
	redis_client_free(redis);
	return db_ask(db, sql_query_code_set_revoked, postgres_number(set));
}

static const struct column set_columns[] = {
	{ "coupon", "coupon_id", COLUMN_ID },
	{ "revoked_by", "revoked_by", COLUMN_TEXT },
	{ "revoked_at", "revoked_at", COLUMN_TEXT },
	{ .name = NULL },
};

static int set_run(struct ctl *ctl, int64_t set)
{
	struct db *db = stored_lock(ctl);
	PGresult *row = set_revoke(ctl, db, set);
	cJSON *object;

	if (args_has(&ctl->args, "json")) {
		object = output_object();
		output_id(object, "set", set);
		output_columns(object, set_columns, row, 0);
		output_print(object);
	} else {
		printf("set %" PRId64, set);
		output_template(" of coupon {coupon_id} is revoked, by {revoked_by} at "
				"{revoked_at}\n",
				row, 0);
	}
	PQclear(row);
	db_close(db);
	return 0;
}

static int revoke_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t set = args_id(args, "set");
	int ways = (set != 0) + args_has(args, "file") + (args->arguments_n > 0);

	if (ways != 1)
		args_fail("codes revoke takes codes, or --file, or --set; see couponctl codes "
			  "revoke --help");
	return set ? set_run(ctl, set) : codes_run(ctl);
}

static const struct option revoke_options[] = {
	OPTION("file", "FILE", "the codes of this file, CSV with a column code, or JSON lines"),
	OPTION("format", "FORMAT",
	       "of the file: csv or jsonl; default: jsonl if the name ends in .jsonl or .ndjson"),
	OPTION("set", "SET", "all codes of this set that are not used"),
	SWITCH("json", "print what was done as one JSON object"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command codes_revoke_command = {
	.name = "codes revoke",
	.run = revoke_run,
	.argument = "[CODE…]",
	.options = revoke_options,
	.summary = "revoke codes, the codes of a file, or a set",
	.detail =
		"What is used stays used. Codes that are used or do not exist are named, and the\n"
		"others revoked; then the exit status is 1. Repeated, it changes nothing.",
};
