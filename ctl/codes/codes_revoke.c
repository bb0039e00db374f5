/*
 * couponctl codes revoke: codes by their text or in a file, or a set. PostgreSQL has a revocation
 * first, with a number for each of a coupon. Redis gets all those that it does not have, and then
 * the number: see docs/about/lifecycle.md.
 */
#include "common/array.h"
#include "common/check.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/receive.h"
#include "ctl/codes/code_file.h"
#include "ctl/codes/stored_codes.h"
#include "ctl/output.h"
#include "coupon/redis_coupon.h"
#include "ctl/say.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 20000
#define APPLY_TRIES 10

static _Noreturn void redis_fail(const struct redis_client *redis)
{
	log_fatal_as(
		CTL_NOT_IN_REDIS,
		"PostgreSQL has revoked it, Redis not yet: %s; the keeper completes it, or run the "
		"command again",
		redis_client_error(redis));
}

/* Marks all codes of these revocations. */
static enum redis_revoked all_mark(struct db *db, struct redis_client *redis,
				   const struct redis_revocation *revocation, int64_t *seq)
{
	const char *codes[REDIS_REVOKE_CODES_MAX];
	enum redis_revoked done;
	int rows;

	db_run(db, "BEGIN");
	db_do(db, sql_query_rebuild_revoked, postgres_number(revocation->coupon),
	      postgres_number(revocation->from));
	do {
		PGresult *page = db_ask(db, sql_query_rebuild_fetch_revoked);

		rows = PQntuples(page);
		check(rows <= REDIS_REVOKE_CODES_MAX);
		for (int i = 0; i < rows; i++)
			codes[i] = column_text(page, i, "code");
		done = redis_revoke(redis, revocation, rows == 0, (size_t)rows, codes, seq);
		PQclear(page);
	} while (rows > 0 && done == REDIS_REVOKED_DONE);
	db_run(db, "COMMIT");
	return done;
}

/*
 * Brings the revocations of the coupon to Redis. After the return nothing that PostgreSQL had
 * revoked at the call is accepted any more. A store that fails ends the process; then the keeper
 * completes it.
 */
static void revocations_apply(struct db *db, struct redis_client *redis, int64_t coupon)
{
	char run_id[REDIS_RUN_ID_SIZE];
	struct redis_revocation revocation = { .coupon = coupon, .run_id = run_id };
	struct redis_coupon loaded;
	int64_t seq = -1;

	fault_point(FAULT_REVOKE_COMMITTED);
	if (redis_client_process(redis, run_id, &(int64_t){ 0 }))
		redis_fail(redis);
	for (int i = 0; i < APPLY_TRIES; i++) {
		revocation.to = db_value(db, sql_query_code_revocation, postgres_number(coupon));
		if (redis_coupon_read(redis, coupon, &loaded) < 0)
			redis_fail(redis);
		revocation.generation = loaded.generation;
		revocation.from = loaded.revocation;
		/* A coupon that is loaded later is filled from a later state of PostgreSQL. */
		if (loaded.generation == 0 || loaded.revocation >= revocation.to)
			return;
		switch (all_mark(db, redis, &revocation, &seq)) {
		case REDIS_REVOKED_FAILED:
			redis_fail(redis);
		case REDIS_REVOKED_DONE:
			/* What was accepted before the revocation is settled. */
			if (seq >= 0)
				db_do(db, sql_query_code_revocation_cut, postgres_number(coupon),
				      postgres_number(revocation.from),
				      postgres_number(revocation.to),
				      postgres_number(revocation.generation), postgres_number(seq));
			return;
		case REDIS_REVOKED_MISSING:
			return;
		case REDIS_REVOKED_BEHIND:
			break;
		}
	}
	log_fatal_as(CTL_NOT_IN_REDIS, "keepers replaced the coupon in Redis several times in the "
				       "meantime: run the command again");
}

struct code {
	char *name;                  /* for messages */
	char *why;                   /* it is not revoked; NULL: it is */
	char text[CODE_OTHERS_SIZE]; /* "": it was found, or is wrong */
	int64_t set, serial, coupon; /* set 0: not found, or not to be revoked */
	int is_word;
	int is_claimed; /* in Redis, when that was asked first */
};

struct revocation {
	struct db *db;
	struct redis_client *redis;
	struct stored stored;
	int64_t revoked, before, refused; /* codes: revoked now, revoked before, not revoked */
	struct code *codes;               /* room for CHUNK codes, which are revoked together */
	size_t n;
};

/*
 * Notes which codes are claimed in Redis, except those that an earlier look has found. Returns how
 * many.
 */
static int64_t owners_look(struct revocation *r)
{
	char key[COUPON_KEY_SIZE], name[RECEIVE_CODE_MAX + 1];
	const char *argv[] = { "HGET", key, name };
	int64_t used = 0;

	for (size_t i = 0; i < r->n; i++) {
		const struct code *code = &r->codes[i];

		if (!code->set || code->is_claimed)
			continue;
		coupon_key(code->coupon, COUPON_KEY_CODES, key);
		if (code->is_word)
			id_format(code->set, name);
		else
			receive_code_format(code->set, code->serial, name);
		redis_client_append(r->redis, 3, argv);
	}
	for (size_t i = 0; i < r->n; i++) {
		struct code *code = &r->codes[i];
		redisReply *reply;

		if (!code->set || code->is_claimed)
			continue;
		reply = store_reply(r->redis, redis_client_next(r->redis));
		code->is_claimed = redis_code_user(reply) > 0;
		if (code->is_claimed)
			check(asprintf(&code->why, "it is used, by user %.*s",
				       (int)redis_code_user(reply), reply->str) > 0);
		used += code->is_claimed;
		freeReplyObject(reply);
	}
	return used;
}

/*
 * Revokes those that are claimed in Redis, or the others, in a transaction. Returns how many were
 * not revoked before. What is claimed, but not settled yet, is revoked once its receive loses it.
 * Others may be used: those are not revoked.
 */
static int64_t part_revoke(struct revocation *r, int claimed)
{
	static size_t at[CHUNK]; /* the place in the chunk of each element of the arrays */
	struct postgres_array sets = { .type = POSTGRES_INT8 }, serials = sets, coupons = sets;
	int64_t revoked = 0;
	struct code *code;
	PGresult *rows;

	for (size_t i = 0; i < r->n; i++) {
		code = &r->codes[i];
		if (!code->set || code->is_claimed != claimed)
			continue;
		at[sets.n] = i;
		postgres_array_add_number(&sets, code->set);
		postgres_array_add_number(&serials, code->serial);
		postgres_array_add_number(&coupons, code->coupon);
	}
	if (sets.n > 0) {
		db_run(r->db, "BEGIN");
		revoked = db_value(r->db, sql_query_code_revoke, postgres_array(&sets),
				   postgres_array(&serials), postgres_array(&coupons));
		if (!claimed) {
			rows = db_ask(r->db, sql_query_code_used, postgres_array(&sets),
				      postgres_array(&serials));
			for (int row = 0; row < PQntuples(rows); row++) {
				code = &r->codes[at[column_number(rows, row, "ord") - 1]];
				code->set = 0;
				if (db_is_null(rows, row, "user_id"))
					code->why = checked(
						strdup("it was used when it was imported"));
				else
					check(asprintf(&code->why, "it is used, by user %s",
						       column_text(rows, row, "user_id")) > 0);
			}
			PQclear(rows);
		}
		db_run(r->db, "COMMIT");
	}
	postgres_array_fini(&sets);
	postgres_array_fini(&serials);
	postgres_array_fini(&coupons);
	return revoked;
}

/*
 * Revokes the codes, in Redis and PostgreSQL, tells on standard error which are used or do not
 * exist, and counts them. Then there is room for others.
 */
static void chunk_revoke(struct revocation *r)
{
	int64_t *coupons = checked(calloc(r->n + 1, sizeof(*coupons)));
	struct postgres_array texts = { .type = POSTGRES_TEXT };
	int64_t revoked, refused = 0;
	size_t coupons_n = 0;
	PGresult *rows;

	/* Finds the codes that are not generated. */
	for (size_t i = 0; i < r->n; i++)
		postgres_array_add_text(&texts, r->codes[i].text, strlen(r->codes[i].text));
	rows = db_ask(r->db, sql_query_code_claimable, postgres_array(&texts));
	for (int row = 0; row < PQntuples(rows); row++) {
		struct code *code = &r->codes[column_number(rows, row, "ord") - 1];

		code->set = column_number(rows, row, "set_id");
		code->serial = column_number(rows, row, "serial");
		code->coupon = column_number(rows, row, "coupon_id");
		code->is_word = strcmp(column_text(rows, row, "kind"), "word") == 0;
	}
	PQclear(rows);
	postgres_array_fini(&texts);
	for (size_t i = 0; i < r->n; i++)
		if (!r->codes[i].set && !r->codes[i].why)
			r->codes[i].why = checked(strdup("there is no such code"));

	owners_look(r);
	revoked = part_revoke(r, 0);
	part_revoke(r, 1);

	/* Brings the revocations of each coupon to Redis once. */
	for (size_t i = 0; i < r->n; i++)
		if (r->codes[i].set)
			coupons[coupons_n++] = r->codes[i].coupon;
	coupons_n = numbers_unique(coupons, coupons_n);
	for (size_t i = 0; i < coupons_n; i++)
		revocations_apply(r->db, r->redis, coupons[i]);
	free(coupons);

	revoked -= owners_look(r); /* claimed since the first look */
	for (size_t i = 0; i < r->n; i++) {
		const struct code *code = &r->codes[i];

		if (code->why)
			say("%s%s", code->name, code->why);
		refused += code->why != NULL;
		free(code->name);
		free(code->why);
	}
	r->revoked += revoked;
	if (revoked > 0)
		log_fatal_status(CTL_UNKNOWN);
	r->refused += refused;
	r->before += (int64_t)r->n - revoked - refused;
	r->n = 0;
}

/*
 * Adds a code of the file `path`, or of the command line (NULL). Revokes the chunk when it is full.
 */
static void code_add(struct revocation *r, const char *path, const struct code_row *row)
{
	struct code *to = &r->codes[r->n++];
	struct text_buffer name = { 0 };
	struct code_found found;
	char line[32];

	*to = (struct code){ .set = 0 };
	if (path) {
		snprintf(line, sizeof(line), ":%" PRId64 ": ", row->line);
		text_add_string(&name, path);
		text_add_string(&name, line);
	}
	if (!row->wrong) {
		text_add_string(&name, "\"");
		text_add_shown(&name, row->code, row->code_len);
		text_add_string(&name, "\": ");
	}
	to->name = name.data;
	if (row->wrong) {
		to->why = checked(strdup(row->wrong));
	} else if (code_book_find(r->stored.book, row->code, row->code_len, &found) == 0) {
		to->set = found.set->id;
		to->serial = found.serial;
		to->coupon = found.set->coupon;
	} else if (code_text_spell(row->code, row->code_len, to->text)) {
		to->why = checked(strdup("there is no such code"));
	}
	if (r->n == CHUNK)
		chunk_revoke(r);
}

static int codes_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	const char *path = args_text(args, "file");
	struct revocation r = { .codes = checked(calloc(CHUNK, sizeof(*r.codes))) };
	cJSON *object = output_object();
	struct code_file_form form;
	struct code_file *file;
	struct code_row row;

	r.db = store_changing_open(ctl, &r.redis);
	store_key_bind(r.db, ctl, path);
	stored_read(&r.stored, ctl, r.db);
	for (int i = 0; i < args->arguments_n; i++)
		code_add(&r, NULL,
			 &(struct code_row){ .code = args->arguments[i],
					     .code_len = strlen(args->arguments[i]) });
	if (path) {
		form = code_file_form_read(args, path);
		file = code_file_open(path, &form);
		while (code_file_next(file, &row))
			code_add(&r, path, &row);
		code_file_close(file);
	}
	chunk_revoke(&r);
	free(r.codes);
	code_book_free(r.stored.book);
	redis_client_free(r.redis);
	db_close(r.db);
	output_number(object, "revoked", r.revoked);
	output_number(object, "revoked_before", r.before);
	output_number(object, "refused", r.refused);
	output_say(object,
		   "{revoked} revoked, {revoked_before} revoked before, {refused} refused\n",
		   args_has(args, "json"));
	return r.refused > 0 ? CTL_REFUSED : CTL_DONE;
}

static int revoke_run(struct ctl *ctl)
{
	const struct args *args = &ctl->args;
	int64_t set = args_id(args, "set");
	int ways = (set != 0) + args_has(args, "file") + (args->arguments_n > 0);
	struct redis_client *redis;
	struct db *db;
	int64_t coupon;

	if (ways != 1)
		args_fail("codes revoke takes codes, or --file, or --set%s",
			  say_help("codes revoke"));
	if (!set)
		return codes_run(ctl);

	args_ask(args, "All codes of set %" PRId64 " that are not used will be revoked for ever.",
		 set);
	db = stored_lock(ctl);
	redis = store_redis_open(ctl);
	store_key_bind(db, ctl, NULL);
	coupon = db_value(db, sql_query_code_set_revoke, postgres_number(set));
	if (!coupon)
		log_fatal_as(CTL_ABSENT, "there is no set %" PRId64, set);
	revocations_apply(db, redis, coupon);
	redis_client_free(redis);
	output_rows(db_ask(db, sql_query_code_set_revoked, postgres_number(set)), NULL,
		    "set {set} of coupon {coupon} is revoked, by {revoked_by} at {revoked_at}\n",
		    args_has(args, "json"));
	db_close(db);
	return 0;
}

const struct command codes_revoke_command = {
	.name = "codes revoke",
	.run = revoke_run,
	.argument = "[CODE…]",
	.options = OPTIONS(OPTION("file", "FILE",
				  "the codes of this file, CSV with a column code, or JSON lines"),
			   CODE_FILE_OPTIONS,
			   OPTION("set", "SET", "all codes of this set that are not used"),
			   YES_OPTION, KEY_OPTION_AGAIN, BY_OPTION),
	.summary = "revoke codes, the codes of a file, or a set",
	.detail =
		"What is used stays used. Codes that are used or do not exist are named, and the\n"
		"others revoked. Repeated, it changes nothing. With --set it asks first on a\n"
		"terminal.",
};
