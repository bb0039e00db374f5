/*
 * couponctl codes import: stores the codes of a file that others made, over two connections at
 * once: PostgreSQL has work for two processors, and the file is read meanwhile.
 *
 * Each lane has a connection and a chunk. The main thread fills the chunks in turn, and a thread
 * for each full one stores it:
 *
 *	main      fill 1 │ fill 2 │ join, tell 1, fill 1 │ join, tell 2, fill 2 │ …
 *	thread 1         │ store 1 ───────────▶          │ store 1 …
 *	thread 2                  │ store 2 ────────────────────────▶ …
 *
 * Of two rows with one code in chunks that are stored at once, either may be the one that is told.
 */
#include "codes/text.h"
#include "common/check.h"
#include "common/log/log.h"
#include "ctl/codes/code_file.h"
#include "ctl/codes/stored.h"
#include "ctl/output.h"
#include "embed.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 20000
#define LANES 2
#define REQUEST_SIZE 128

struct import_row {
	int64_t line;
	char text[CODE_OTHERS_SIZE];
	struct text_buffer spelling; /* empty: the text */
	struct text_buffer metadata; /* empty: none */
	struct text_buffer wrong;    /* empty: it is stored */
};

struct import_counts {
	int64_t added, present, refused; /* stored now, stored before, told */
};

/* Some rows of the file: stored in one transaction, then told on standard error. */
struct import_chunk { /* all zero at first */
	size_t n;
	int64_t added; /* of these */
	struct import_row rows[CHUNK];
};

struct import_job {
	const struct ctl *ctl;
	const struct stored *stored;
	struct code_file *file;
	const char *path;
	int64_t set, coupon;
};

struct lane {
	const struct import_job *job;
	struct db *db;
	pthread_t thread;
	int is_running; /* the thread has the chunk and the connection */
	struct import_chunk chunk;
};

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

/* The code is checked: its spelling, and that it is none of the generated ones. */
static void chunk_add(struct import_chunk *chunk, const struct stored *stored,
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
	PGresult *result = db_ask(db, sql_query_code_import, postgres_number(set),
				  postgres_number(coupon), postgres_array(&columns->serials),
				  postgres_array(&columns->texts),
				  postgres_array(&columns->spellings),
				  postgres_array(&columns->metadata));
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
	PGresult *taken = db_ask(db, sql_query_code_taken, postgres_number(set),
				 postgres_array(&columns->serials),
				 postgres_array(&columns->texts));

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

/* Stores the rows in a set, and notes why others are refused. In the thread of a lane. */
static void chunk_store(struct import_chunk *chunk, struct db *db, int64_t set, int64_t coupon)
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
		db_do(db, sql_query_code_changed);
	db_run(db, "COMMIT");
	columns_fini(&columns);
}

/* Tells the rows that are refused, and counts all. Then the chunk is empty. */
static void chunk_tell(struct import_chunk *chunk, const char *path, struct import_counts *counts)
{
	int64_t refused = refused_tell(chunk, path);

	counts->added += chunk->added;
	counts->refused += refused;
	counts->present += (int64_t)chunk->n - chunk->added - refused;
	chunk->n = 0;
}

static void chunk_fini(struct import_chunk *chunk)
{
	for (size_t i = 0; i < CHUNK; i++) {
		text_buffer_fini(&chunk->rows[i].spelling);
		text_buffer_fini(&chunk->rows[i].metadata);
		text_buffer_fini(&chunk->rows[i].wrong);
	}
}

static void *lane_store(void *context)
{
	struct lane *lane = context;

	chunk_store(&lane->chunk, lane->db, lane->job->set, lane->job->coupon);
	return NULL;
}

static void lane_start(struct lane *lane)
{
	check(pthread_create(&lane->thread, NULL, lane_store, lane) == 0);
	lane->is_running = 1;
}

static void lane_end(struct lane *lane, struct import_counts *counts, struct progress *progress)
{
	if (!lane->is_running)
		return;
	check(pthread_join(lane->thread, NULL) == 0);
	lane->is_running = 0;
	progress_hide(progress);
	chunk_tell(&lane->chunk, lane->job->path, counts);
	progress_show(progress, "codes", code_file_done(lane->job->file),
		      code_file_bytes(lane->job->file));
}

/* 0 when the file has no more rows. */
static int lane_fill(struct lane *lane)
{
	struct code_row row;

	while (lane->chunk.n < CHUNK) {
		if (!code_file_next(lane->job->file, &row))
			return 0;
		chunk_add(&lane->chunk, lane->job->stored, &row);
	}
	return 1;
}

/* Stores all rows, with progress; tells those that are refused, by ascending lines. */
static void lanes_run(const struct import_job *job, struct import_counts *counts)
{
	struct lane *lanes = calloc(LANES, sizeof(*lanes));
	struct progress progress = { 0 };
	int has_more = 1, i;

	check(lanes != NULL);
	for (i = 0; i < LANES; i++) {
		lanes[i].job = job;
		lanes[i].db = store_changing_open(job->ctl, NULL);
	}
	for (i = 0; has_more; i = (i + 1) % LANES) {
		lane_end(&lanes[i], counts, &progress);
		has_more = lane_fill(&lanes[i]);
		lane_start(&lanes[i]);
	}
	for (int k = 0; k < LANES; k++, i = (i + 1) % LANES)
		lane_end(&lanes[i], counts, &progress);
	progress_end(&progress);
	for (i = 0; i < LANES; i++) {
		db_close(lanes[i].db);
		chunk_fini(&lanes[i].chunk);
	}
	free(lanes);
}

/* The same file for the same coupon is the same set: interrupted, the command goes on with it. */
static int64_t set_find(const struct ctl *ctl, int64_t coupon, const char *path)
{
	char hash[CODE_FILE_HASH_SIZE], request[REQUEST_SIZE];
	struct db *db;
	PGresult *row;
	int64_t set;

	snprintf(request, sizeof(request), "import %" PRId64 " %s", coupon,
		 code_file_hash(path, hash));
	db = stored_lock(ctl);
	row = db_ask(db, sql_query_code_set_request, postgres_text(request));
	if (PQntuples(row) > 0 && db_is_true(row, 0, "is_revoked"))
		log_fatal("this file was imported as set %s, which was revoked",
			  db_text(row, 0, "id"));
	if (PQntuples(row) == 0) {
		PQclear(row);
		row = db_ask(db, sql_query_code_set_add, postgres_number(coupon),
			     postgres_text("imported"), postgres_text(request),
			     postgres_text(path));
	}
	if (PQntuples(row) == 0)
		log_fatal("there is no coupon %" PRId64, coupon);
	set = db_int(row, 0, "id");
	PQclear(row);
	db_close(db);
	return set;
}

static void result_print(const struct ctl *ctl, int64_t set, int64_t coupon,
			 const struct import_counts *counts)
{
	char added[OUTPUT_GROUPED_SIZE], present[OUTPUT_GROUPED_SIZE];
	char refused[OUTPUT_GROUPED_SIZE];
	cJSON *object;

	if (!args_has(&ctl->args, "json")) {
		printf("set %" PRId64 " of coupon %" PRId64
		       ": %s codes stored, %s were there before, %s refused\n",
		       set, coupon, output_grouped(counts->added, added),
		       output_grouped(counts->present, present),
		       output_grouped(counts->refused, refused));
		return;
	}
	object = output_object();
	output_id(object, "set", set);
	output_id(object, "coupon", coupon);
	output_number(object, "stored", counts->added);
	output_number(object, "present", counts->present);
	output_number(object, "refused", counts->refused);
	output_print(object);
}

static int import_run(struct ctl *ctl)
{
	int64_t coupon = args_coupon(&ctl->args), set;
	const char *path = ctl->args.arguments[1];
	struct import_counts counts = { 0 };
	struct code_file *file = code_file_open(path, sheet_format_read(&ctl->args, path));
	struct db *db = store_postgres_open(ctl);
	struct stored stored;

	stored_read(&stored, ctl, db);
	set = set_find(ctl, coupon, path);
	lanes_run(&(struct import_job){ .ctl = ctl,
					.stored = &stored,
					.file = file,
					.path = path,
					.set = set,
					.coupon = coupon },
		  &counts);
	db_do(db, sql_query_code_set_complete, postgres_number(set));
	code_file_close(file);
	stored_fini(&stored);
	db_close(db);
	result_print(ctl, set, coupon, &counts);
	return counts.refused > 0;
}

static const struct option import_options[] = {
	OPTION("format", "FORMAT",
	       "csv or jsonl; default: jsonl if the name ends in .jsonl or .ndjson, else csv"),
	SWITCH("json", "print the counts as one JSON object"),
	BY_OPTION,
	OPTIONS_END,
};

const struct command codes_import_command = {
	.name = "codes import",
	.run = import_run,
	.argument = "COUPON FILE",
	.options = import_options,
	.summary = "store the codes of a file that others made",
	.detail =
		"CSV has a header with the column code; a JSON line is an object with the member\n"
		"code. The other columns or members become metadata. Rows that are wrong, and\n"
		"codes that exist, are named by their line, and the others are stored; then the\n"
		"exit status is 1. Interrupted, run the same command again.",
};
