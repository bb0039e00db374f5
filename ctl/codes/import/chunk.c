#include "ctl/codes/import/chunk.h"

#include "embed.h"

#include <inttypes.h>
#include <string.h>

static void code_add(struct import_row *to, const struct stored *stored, const char *code,
		     size_t len)
{
	struct code_found found;
	char words[80];

	if (code_text_spell(code, len, to->text)) {
		text_add_string(&to->wrong, "the code is \"");
		text_add_shown(&to->wrong, code, len);
		text_add_string(&to->wrong, "\": allowed are " CODE_OTHERS_ALLOWED);
		return;
	}
	if (code_book_find(stored->book, code, len, &found) == 0) {
		snprintf(words, sizeof(words), "the code is a generated one, of set %" PRId64,
			 found.set->id);
		text_add_string(&to->wrong, words);
		return;
	}
	if (len != strlen(to->text) || memcmp(code, to->text, len) != 0)
		text_add(&to->spelling, code, len);
}

void import_chunk_add(struct import_chunk *chunk, const struct stored *stored,
		      const struct code_row *row)
{
	struct import_row *to = &chunk->rows[chunk->n++];

	to->line = row->line;
	text_buffer_clear(&to->spelling);
	text_buffer_clear(&to->metadata);
	text_buffer_clear(&to->wrong);
	if (row->wrong) {
		text_add_string(&to->wrong, row->wrong);
		return;
	}
	code_add(to, stored, row->code, row->code_len);
	text_add(&to->metadata, row->metadata, row->metadata_len);
}

struct columns {
	struct postgres_array serials, texts, spellings, metadata;
};

static void columns_init(struct columns *columns)
{
	postgres_array_init(&columns->serials, POSTGRES_INT8);
	postgres_array_init(&columns->texts, POSTGRES_TEXT);
	postgres_array_init(&columns->spellings, POSTGRES_TEXT);
	postgres_array_init(&columns->metadata, POSTGRES_TEXT);
}

static void columns_fini(struct columns *columns)
{
	postgres_array_fini(&columns->serials);
	postgres_array_fini(&columns->texts);
	postgres_array_fini(&columns->spellings);
	postgres_array_fini(&columns->metadata);
}

static void columns_fill(struct columns *columns, const struct import_chunk *chunk)
{
	for (size_t i = 0; i < chunk->n; i++) {
		const struct import_row *row = &chunk->rows[i];

		if (row->wrong.len > 0)
			continue;
		postgres_array_add_number(&columns->serials, row->line);
		postgres_array_add_text(&columns->texts, row->text, strlen(row->text));
		postgres_array_add_text(&columns->spellings, row->spelling.data, row->spelling.len);
		postgres_array_add_text(&columns->metadata, row->metadata.data, row->metadata.len);
	}
}

static int64_t columns_insert(struct db *db, int64_t set, int64_t coupon,
			      const struct columns *columns)
{
	const struct postgres_argument arguments[] = {
		postgres_number(set),
		postgres_number(coupon),
		postgres_array(&columns->serials),
		postgres_array(&columns->texts),
		postgres_array(&columns->spellings),
		postgres_array(&columns->metadata),
	};
	PGresult *result = db_query_arguments(db, sql_query_code_import, 6, arguments);
	int64_t added = db_int(result, 0, "added");

	PQclear(result);
	return added;
}

/* Lines ascend. */
static struct import_row *row_find(struct import_chunk *chunk, int64_t line)
{
	size_t low = 0, high = chunk->n;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (chunk->rows[middle].line <= line)
			low = middle;
		else
			high = middle;
	}
	return &chunk->rows[low];
}

static void taken_note(struct import_chunk *chunk, int64_t set, const PGresult *taken, int row)
{
	int64_t other = db_int(taken, row, "set_id");
	char words[120];

	if (other == set)
		snprintf(words, sizeof(words), "the code is that of line %s",
			 db_text(taken, row, "other_serial"));
	else
		snprintf(words, sizeof(words), "the code exists in set %" PRId64 " of coupon %s",
			 other, db_text(taken, row, "coupon_id"));
	text_add_string(&row_find(chunk, db_int(taken, row, "serial"))->wrong, words);
}

/* Names the other row with the same text for those that did not go in. */
static void taken_find(struct import_chunk *chunk, struct db *db, int64_t set,
		       const struct columns *columns)
{
	const struct postgres_argument arguments[] = {
		postgres_number(set),
		postgres_array(&columns->serials),
		postgres_array(&columns->texts),
	};
	PGresult *taken = db_query_arguments(db, sql_query_code_taken, 3, arguments);

	for (int row = 0; row < PQntuples(taken); row++)
		taken_note(chunk, set, taken, row);
	PQclear(taken);
}

static int64_t refused_tell(const struct import_chunk *chunk, const char *path)
{
	int64_t refused = 0;

	for (size_t i = 0; i < chunk->n; i++) {
		const struct import_row *row = &chunk->rows[i];

		if (row->wrong.len == 0)
			continue;
		fprintf(stderr, "couponctl: %s:%" PRId64 ": %s\n", path, row->line,
			row->wrong.data);
		refused++;
	}
	return refused;
}

void import_chunk_store(struct import_chunk *chunk, struct db *db, int64_t set, int64_t coupon)
{
	struct columns columns;

	columns_init(&columns);
	columns_fill(&columns, chunk);
	/* The rows are sorted in memory. */
	db_run(db, "BEGIN; SET LOCAL work_mem = '64MB'");
	chunk->added = columns_insert(db, set, coupon, &columns);
	if (chunk->added < (int64_t)columns.serials.n)
		taken_find(chunk, db, set, &columns);
	if (chunk->added > 0)
		PQclear(db_query(db, sql_query_code_changed, 0, NULL));
	db_run(db, "COMMIT");
	columns_fini(&columns);
}

void import_chunk_tell(struct import_chunk *chunk, const char *path, struct import_counts *counts)
{
	int64_t refused = refused_tell(chunk, path);

	counts->added += chunk->added;
	counts->refused += refused;
	counts->present += (int64_t)chunk->n - chunk->added - refused;
	chunk->n = 0;
}

void import_chunk_fini(struct import_chunk *chunk)
{
	for (size_t i = 0; i < IMPORT_CHUNK; i++) {
		text_buffer_fini(&chunk->rows[i].spelling);
		text_buffer_fini(&chunk->rows[i].metadata);
		text_buffer_fini(&chunk->rows[i].wrong);
	}
}
