#include "ctl/codes/revoke/chunk.h"

#include "ctl/codes/revoke/marks.h"
#include "embed.h"

#include <stdio.h>
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

static void mark_write(struct revoke_mark *mark, const struct revoke_code *code)
{
	if (code->is_word)
		id_format(code->set, mark->code);
	else
		receive_code_format(code->set, code->serial, mark->code);
}

/*
 * Marks the codes in Redis, each run of one coupon in a call. Those that are redeemed there are not
 * to be revoked.
 */
static void marks_set(struct revoke_chunk *chunk, struct redis_client *redis)
{
	static struct revoke_mark marks[REVOKE_MARKS_MAX];
	struct revoke_code *run[REVOKE_MARKS_MAX];
	size_t n = 0;

	for (size_t i = 0; i <= chunk->n; i++) {
		struct revoke_code *code = i < chunk->n ? &chunk->codes[i] : NULL;

		if (code && !code->set)
			continue;
		if (n > 0 && (!code || n == REVOKE_MARKS_MAX || code->coupon != run[0]->coupon)) {
			revoke_marks_set(redis, run[0]->coupon, marks, n);
			for (size_t k = 0; k < n; k++) {
				if (!*marks[k].user)
					continue;
				run[k]->set = 0;
				used_add(run[k], marks[k].user);
			}
			n = 0;
		}
		if (!code)
			break;
		mark_write(&marks[n], code);
		run[n++] = code;
	}
}

struct columns {
	struct postgres_array sets, serials, coupons;
	size_t at[REVOKE_CHUNK]; /* of each element: its place in the chunk */
};

static void columns_fill(struct columns *columns, const struct revoke_chunk *chunk)
{
	postgres_array_init(&columns->sets, POSTGRES_INT8);
	postgres_array_init(&columns->serials, POSTGRES_INT8);
	postgres_array_init(&columns->coupons, POSTGRES_INT8);
	for (size_t i = 0; i < chunk->n; i++) {
		const struct revoke_code *code = &chunk->codes[i];

		if (!code->set)
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

void revoke_chunk_run(struct revoke_chunk *chunk, struct db *db, struct redis_client *redis,
		      struct revoke_counts *counts)
{
	static struct columns columns;
	int64_t revoked, refused;

	others_find(chunk, db);
	marks_set(chunk, redis);
	columns_fill(&columns, chunk);
	db_run(db, "BEGIN");
	revoked = columns_revoke(db, &columns);
	used_note(chunk, db, &columns);
	if (revoked > 0)
		PQclear(db_query(db, sql_query_code_changed, 0, NULL));
	db_run(db, "COMMIT");
	columns_fini(&columns);
	marks_set(chunk, redis);
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
