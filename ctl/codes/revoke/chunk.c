#include "ctl/codes/revoke/chunk.h"

#include "common/check.h"
#include "common/message/receive.h"
#include "common/redis/revoke.h"
#include "ctl/codes/revoke/apply.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void revoke_chunk_add(struct revoke_chunk *chunk, const struct stored *stored, const char *where,
		      const char *code, size_t len, const char *wrong)
{
	struct revoke_code *to = &chunk->codes[chunk->n++];
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
	if (code_book_find(stored->book, code, len, &found) == 0) {
		to->set = found.set->id;
		to->serial = found.serial;
		to->coupon = found.set->coupon;
	} else if (code_text_spell(code, len, to->text)) {
		text_add_string(&to->wrong, "there is no such code");
	}
}

/* Finds those that are no generated codes. */
static void others_find(struct revoke_chunk *chunk, struct db *db)
{
	struct postgres_argument argument;
	struct postgres_array texts;
	PGresult *rows;

	postgres_array_init(&texts, POSTGRES_TEXT);
	for (size_t i = 0; i < chunk->n; i++)
		postgres_array_add_text(&texts, chunk->codes[i].text, strlen(chunk->codes[i].text));
	argument = postgres_array(&texts);
	rows = db_query_arguments(db, sql_query_code_texts, 1, &argument);
	for (int row = 0; row < PQntuples(rows); row++) {
		struct revoke_code *code = &chunk->codes[db_int(rows, row, "ord") - 1];

		code->set = db_int(rows, row, "set_id");
		code->serial = db_int(rows, row, "serial");
		code->coupon = db_int(rows, row, "coupon_id");
		code->is_word = strcmp(db_text(rows, row, "kind"), "word") == 0;
	}
	PQclear(rows);
	postgres_array_fini(&texts);
	for (size_t i = 0; i < chunk->n; i++)
		if (!chunk->codes[i].set && chunk->codes[i].wrong.len == 0)
			text_add_string(&chunk->codes[i].wrong, "there is no such code");
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
static int64_t owners_look(struct revoke_chunk *chunk, struct redis_client *redis)
{
	struct revoke_code *run[REDIS_REVOKE_CODES_MAX];
	int64_t used = 0;
	size_t n = 0;

	for (size_t i = 0; i <= chunk->n; i++) {
		struct revoke_code *code = i < chunk->n ? &chunk->codes[i] : NULL;

		if (code && (!code->set || code->is_redeemed))
			continue;
		if (n > 0 &&
		    (!code || n == REDIS_REVOKE_CODES_MAX || code->coupon != run[0]->coupon)) {
			used += run_look(redis, run, n);
			n = 0;
		}
		if (code)
			run[n++] = code;
	}
	return used;
}

static int numbers_compare(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

struct columns {
	struct postgres_array sets, serials, coupons;
	size_t at[REVOKE_CHUNK]; /* of each element: its place in the chunk */
};

static void columns_fill(struct columns *columns, const struct revoke_chunk *chunk, int redeemed)
{
	postgres_array_init(&columns->sets, POSTGRES_INT8);
	postgres_array_init(&columns->serials, POSTGRES_INT8);
	postgres_array_init(&columns->coupons, POSTGRES_INT8);
	for (size_t i = 0; i < chunk->n; i++) {
		const struct revoke_code *code = &chunk->codes[i];

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

/* How many were not revoked before. */
static int64_t columns_revoke(struct db *db, const struct columns *columns)
{
	const struct postgres_argument arguments[] = { postgres_array(&columns->sets),
						       postgres_array(&columns->serials),
						       postgres_array(&columns->coupons) };
	PGresult *result = db_query_arguments(db, sql_query_code_revoke, 3, arguments);
	int64_t revoked = db_int(result, 0, "revoked");

	PQclear(result);
	return revoked;
}

static void used_note(struct revoke_chunk *chunk, struct db *db, const struct columns *columns)
{
	const struct postgres_argument arguments[] = { postgres_array(&columns->sets),
						       postgres_array(&columns->serials) };
	PGresult *rows = db_query_arguments(db, sql_query_code_used, 2, arguments);

	for (int row = 0; row < PQntuples(rows); row++) {
		size_t at = columns->at[db_int(rows, row, "ord") - 1];

		chunk->codes[at].set = 0;
		used_add(&chunk->codes[at], db_text(rows, row, "user_id"));
	}
	PQclear(rows);
}

static int64_t refused_tell(const struct revoke_chunk *chunk)
{
	int64_t refused = 0;

	for (size_t i = 0; i < chunk->n; i++) {
		const struct revoke_code *code = &chunk->codes[i];

		if (code->wrong.len == 0)
			continue;
		fprintf(stderr, "couponctl: %s%s\n", code->name.data, code->wrong.data);
		refused++;
	}
	return refused;
}

/* Tells Redis of the revocations of each coupon once. */
static void coupons_apply(const struct revoke_chunk *chunk, struct db *db,
			  struct redis_client *redis)
{
	int64_t *coupons = calloc(chunk->n + 1, sizeof(*coupons));
	size_t n = 0;

	check(coupons != NULL);
	for (size_t i = 0; i < chunk->n; i++)
		if (chunk->codes[i].set)
			coupons[n++] = chunk->codes[i].coupon;
	qsort(coupons, n, sizeof(*coupons), numbers_compare);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || coupons[i] != coupons[i - 1])
			revocations_apply(db, redis, coupons[i]);
	free(coupons);
}

/*
 * Revokes those that are redeemed in Redis, or the others, in a transaction. Returns how many were
 * not revoked before. What is redeemed, but not settled yet, is revoked once its receive loses it.
 */
static int64_t part_revoke(struct revoke_chunk *chunk, struct db *db, int redeemed)
{
	static struct columns columns;
	int64_t revoked = 0;

	columns_fill(&columns, chunk, redeemed);
	if (columns.sets.n > 0) {
		db_run(db, "BEGIN");
		revoked = columns_revoke(db, &columns);
		if (!redeemed)
			used_note(chunk, db, &columns);
		if (revoked > 0)
			PQclear(db_query(db, sql_query_code_changed, 0, NULL));
		db_run(db, "COMMIT");
	}
	columns_fini(&columns);
	return revoked;
}

void revoke_chunk_run(struct revoke_chunk *chunk, struct db *db, struct redis_client *redis,
		      struct revoke_counts *counts)
{
	int64_t revoked, refused;

	others_find(chunk, db);
	owners_look(chunk, redis);
	revoked = part_revoke(chunk, db, 0);
	part_revoke(chunk, db, 1);
	coupons_apply(chunk, db, redis);
	revoked -= owners_look(chunk, redis); /* redeemed since the first look */
	refused = refused_tell(chunk);
	counts->revoked += revoked;
	counts->refused += refused;
	counts->before += (int64_t)chunk->n - revoked - refused;
	chunk->n = 0;
}

void revoke_chunk_fini(struct revoke_chunk *chunk)
{
	for (size_t i = 0; i < REVOKE_CHUNK; i++) {
		text_buffer_fini(&chunk->codes[i].name);
		text_buffer_fini(&chunk->codes[i].wrong);
	}
}
