/*
 * couponctl codes import: stores the codes of a file that others made, over two connections at
 * once: PostgreSQL has work for two processors, and the file is read meanwhile.
 *
 * Each lane has a connection and a chunk of rows. The main thread fills the chunks in turn, and a
 * thread for each full one stores it:
 *
 *	main      fill 1 │ fill 2 │ join, tell 1, fill 1 │ join, tell 2, fill 2 │ …
 *	thread 1         │ store 1 ───────────▶          │ store 1 …
 *	thread 2                  │ store 2 ────────────────────────▶ …
 *
 * Of two rows with one code in chunks that are stored at once, either may be the one that is told.
 */
#include "common/array.h"
#include "common/check.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/thread.h"
#include "ctl/codes/code_file.h"
#include "ctl/codes/stored_codes.h"
#include "ctl/output.h"
#include "ctl/say.h"
#include "embed.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 20000
#define LANES 2
#define REQUEST_SIZE 128

/* A time of the file: most rows have one of a few. */
struct read_time {
	char *text;
	int64_t ms;
	char why[TIME_WHY_SIZE]; /* "": it is a time */
	UT_hash_handle hh;
};

struct import {
	const struct ctl *ctl;
	const char *name; /* of the file; NULL for standard input */
	struct code_file *file;
	struct db *db; /* of the main thread */
	struct stored stored;
	struct code_terms terms;
	struct read_time *ends, *uses; /* the times of valid_to, and of used_at */
	int64_t set, coupon;
	int is_again;                    /* the set was there before */
	int64_t added, present, refused; /* stored now, stored before, refused */
	int64_t used, revoked;           /* of those that were stored before */
	struct progress progress;
};

/* The arguments of sql_query_code_import. */
enum { SERIALS, TEXTS, SPELLINGS, METADATA, STATES, USERS, USED_AT, FOR_USERS, ENDS, COLUMNS_N };

struct refusal {
	int64_t line; /* first: they are sorted by it */
	char *why;
};

struct import_lane {
	struct import *import;
	struct db *db;
	struct thread thread;
	int is_running; /* the thread has the connection and the chunk, which follows */
	size_t rows_n, refusals_n;
	int64_t added, used, revoked;
	struct postgres_array columns[COLUMNS_N]; /* of the rows to be stored */
	struct refusal refusals[CHUNK];
};

/* Notes why a row is refused. */
__attribute__((format(printf, 3, 4))) static void refuse(struct import_lane *lane, int64_t line,
							 const char *format, ...)
{
	struct refusal *refusal = &lane->refusals[lane->refusals_n++];
	va_list list;

	refusal->line = line;
	va_start(list, format);
	check(vasprintf(&refusal->why, format, list) >= 0);
	va_end(list);
}

#define TIMES_MAX 4096 /* that are remembered */

/* What a text of the file stands for, among those that were read before. */
static const struct read_time *time_find(struct import *import, struct read_time **times,
					 enum time_edge edge, const char *text)
{
	struct read_time *time;

	HASH_FIND_STR(*times, text, time);
	if (time)
		return time;
	if (HASH_COUNT(*times) >= TIMES_MAX) {
		time = *times;
		HASH_DEL(*times, time);
		free(time->text);
	} else {
		time = checked(malloc(sizeof(*time)));
	}
	time->text = checked(strdup(text));
	if (time_of_text(text, edge, import->db, import->terms.zone, &time->ms, time->why) == 0)
		*time->why = '\0';
	HASH_ADD_KEYPTR(hh, *times, time->text, strlen(time->text), time);
	return time;
}

/* Reads a time of a row; 0 where it has none. 0, or -1: the row is refused. */
static int row_time(struct import_lane *lane, const struct code_row *row, const char *name,
		    const char *text, enum time_edge edge, int64_t *ms)
{
	struct import *import = lane->import;
	const struct read_time *time;

	*ms = 0;
	if (!*text)
		return 0;
	time = time_find(import, edge == TIME_END ? &import->ends : &import->uses, edge, text);
	*ms = time->ms;
	if (*time->why)
		refuse(lane, row->line, "its %s is \"%s\": %s", name, text, time->why);
	return *time->why ? -1 : 0;
}

/*
 * Adds a row to the chunk, after a check of its code: its spelling, and that it is no generated
 * code.
 */
static void row_add(struct import_lane *lane, const struct code_row *row)
{
	char text[CODE_OTHERS_SIZE];
	struct code_found found;
	int64_t used_ms, end_ms;
	size_t len;
	int is_used;

	lane->rows_n++;
	if (row->wrong) {
		refuse(lane, row->line, "%s", row->wrong);
	} else if (row_time(lane, row, "used_at", row->used_at, TIME_BEGIN, &used_ms) ||
		   row_time(lane, row, "valid_to", row->valid_to, TIME_END, &end_ms)) {
		return; /* it is refused */
	} else if (code_text_spell(row->code, row->code_len, text)) {
		struct text_buffer shown = { 0 };

		text_add_shown(&shown, row->code, row->code_len);
		refuse(lane, row->line, "the code is \"%s\": allowed are " CODE_OTHERS_ALLOWED,
		       shown.data ? shown.data : "");
		text_buffer_fini(&shown);
	} else if (code_book_find(lane->import->stored.book, row->code, row->code_len, &found) ==
		   0) {
		refuse(lane, row->line, "the code is a generated one, of set %" PRId64,
		       found.set->id);
	} else {
		len = strlen(text);
		postgres_array_add_number(&lane->columns[SERIALS], row->line);
		postgres_array_add_text(&lane->columns[TEXTS], text, len);
		/* Empty: it is the text. */
		if ((row->code_len == len && memcmp(row->code, text, len) == 0) ||
		    !code_text_is_plain(row->code, row->code_len))
			postgres_array_add_text(&lane->columns[SPELLINGS], "", 0);
		else
			postgres_array_add_text(&lane->columns[SPELLINGS], row->code,
						row->code_len);
		postgres_array_add_text(&lane->columns[METADATA], row->metadata,
					strlen(row->metadata));
		postgres_array_add_text(&lane->columns[STATES], row->state, strlen(row->state));
		is_used = strcmp(row->state, "used") == 0;
		len = strlen(row->user);
		postgres_array_add_text(&lane->columns[USERS], row->user, is_used ? len : 0);
		postgres_array_add_number(&lane->columns[USED_AT], used_ms);
		postgres_array_add_text(&lane->columns[FOR_USERS], row->user, is_used ? 0 : len);
		postgres_array_add_number(&lane->columns[ENDS], end_ms);
	}
}

/* Stores the rows, and notes why others are refused. Runs in the thread of a lane. */
static void *lane_store(void *context)
{
	struct import_lane *lane = context;
	int64_t set = lane->import->set;

	/* The rows are sorted in memory. */
	db_run(lane->db, "BEGIN; SET LOCAL work_mem = '64MB'");
	lane->used = lane->revoked = 0;
	if (lane->import->is_again) {
		PGresult *row = db_ask(lane->db, sql_query_code_present, postgres_number(set),
				       postgres_array(&lane->columns[SERIALS]));

		lane->used = column_number(row, 0, "used");
		lane->revoked = column_number(row, 0, "revoked");
		PQclear(row);
	}
	lane->added = db_value(lane->db, sql_query_code_import, postgres_number(set),
			       postgres_number(lane->import->coupon),
			       postgres_array(&lane->columns[SERIALS]),
			       postgres_array(&lane->columns[TEXTS]),
			       postgres_array(&lane->columns[SPELLINGS]),
			       postgres_array(&lane->columns[METADATA]),
			       postgres_array(&lane->columns[STATES]),
			       postgres_array(&lane->columns[USERS]),
			       postgres_array(&lane->columns[USED_AT]),
			       postgres_array(&lane->columns[FOR_USERS]),
			       postgres_array(&lane->columns[ENDS]));
	if (lane->added < (int64_t)lane->columns[SERIALS].n) {
		/* For each that did not go in, the other row with the same text. */
		PGresult *taken = db_ask(lane->db, sql_query_code_taken, postgres_number(set),
					 postgres_array(&lane->columns[SERIALS]),
					 postgres_array(&lane->columns[TEXTS]));

		for (int row = 0; row < PQntuples(taken); row++)
			if (column_number(taken, row, "set_id") == set)
				refuse(lane, column_number(taken, row, "serial"),
				       "the code is that of line %s",
				       column_text(taken, row, "other_serial"));
			else
				refuse(lane, column_number(taken, row, "serial"),
				       "the code exists in set %s of coupon %s%s%s",
				       column_text(taken, row, "set_id"),
				       column_text(taken, row, "coupon_id"),
				       *column_text(taken, row, "state") ? ", and is " : "",
				       column_text(taken, row, "state"));
		PQclear(taken);
	}
	if (lane->added > 0)
		db_do(lane->db, sql_query_code_changed);
	db_run(lane->db, "COMMIT");
	return NULL;
}

/* Waits for the thread, prints the refused rows, counts all rows, and empties the chunk. */
static void lane_end(struct import_lane *lane, struct import *import)
{
	if (!lane->is_running)
		return;
	thread_join(&lane->thread);
	lane->is_running = 0;
	progress_hide(&import->progress);
	qsort(lane->refusals, lane->refusals_n, sizeof(lane->refusals[0]), number_compare);
	for (size_t i = 0; i < lane->refusals_n; i++) {
		say("%s%s%" PRId64 ": %s", import->name ? import->name : "line",
		    import->name ? ":" : " ", lane->refusals[i].line, lane->refusals[i].why);
		free(lane->refusals[i].why);
	}
	import->added += lane->added;
	import->used += lane->used;
	import->revoked += lane->revoked;
	import->refused += (int64_t)lane->refusals_n;
	import->present += (int64_t)(lane->rows_n - lane->refusals_n) - lane->added;
	lane->rows_n = lane->refusals_n = 0;
	for (int i = 0; i < COLUMNS_N; i++)
		postgres_array_clear(&lane->columns[i]);
	code_file_progress(import->file, &import->progress);
}

static int import_run(struct ctl *ctl)
{
	const char *path = ctl->args.arguments[1];
	struct import import = { .ctl = ctl,
				 .name = strncmp(path, "/dev/", 5) == 0 ? NULL : path,
				 .coupon = args_id_argument(&ctl->args) };
	const struct code_file_form form = code_file_form_read(&ctl->args, path);
	struct read_time *time, *next;
	char hash[CODE_FILE_HASH_SIZE], request[REQUEST_SIZE];
	struct db *db, *lock;
	PGresult *row;
	cJSON *object;
	int status;
	struct import_lane *lanes;
	struct code_row code;
	int has_more = 1, i;

	code_terms_check(&ctl->args);
	import.file = code_file_open(path, &form);
	db = import.db = store_postgres_open(ctl);
	import.terms = code_terms_read(&ctl->args, db, import.coupon);
	stored_read(&import.stored, ctl, db);

	/*
	 * Finds the set by the file and the coupon, so that a command goes on where one was
	 * interrupted.
	 */
	lock = stored_lock(ctl);
	store_key_bind(lock, ctl, path);
	snprintf(request, sizeof(request), "import %" PRId64 " %s", import.coupon,
		 code_file_hash(path, hash));
	row = db_ask(lock, sql_query_code_set_list, db_id(0), db_id(0), postgres_text(request));
	import.is_again = PQntuples(row) > 0;
	if (import.is_again && db_is_true(row, 0, "is_revoked"))
		log_fatal("this file was imported as set %s, which was revoked",
			  column_text(row, 0, "id"));
	import.set = import.is_again ? column_number(row, 0, "id")
				     : stored_set_add(lock, import.coupon, "imported", request,
						      import.name, &import.terms);
	PQclear(row);
	db_close(lock);

	/* Store all rows, show the progress, and print the refused rows by ascending lines. */
	lanes = checked(calloc(LANES, sizeof(*lanes)));
	for (i = 0; i < LANES; i++) {
		lanes[i].import = &import;
		lanes[i].db = store_changing_open(import.ctl, NULL);
		for (int k = 0; k < COLUMNS_N; k++)
			postgres_array_init(&lanes[i].columns[k],
					    k == SERIALS || k == USED_AT || k == ENDS
						    ? POSTGRES_INT8
						    : POSTGRES_TEXT);
	}
	for (i = 0; has_more; i = (i + 1) % LANES) {
		lane_end(&lanes[i], &import);
		while (lanes[i].rows_n < CHUNK && (has_more = code_file_next(import.file, &code)))
			row_add(&lanes[i], &code);
		thread_start(&lanes[i].thread, lane_store, &lanes[i]);
		lanes[i].is_running = 1;
	}
	for (int k = 0; k < LANES; k++, i = (i + 1) % LANES)
		lane_end(&lanes[i], &import);
	progress_end(&import.progress);
	for (i = 0; i < LANES; i++) {
		for (int k = 0; k < COLUMNS_N; k++)
			postgres_array_fini(&lanes[i].columns[k]);
		db_close(lanes[i].db);
	}
	free(lanes);
	HASH_ITER (hh, import.ends, time, next)
		free(time->text);
	HASH_ITER (hh, import.uses, time, next)
		free(time->text);

	db_do(db, sql_query_code_set_complete, postgres_number(import.set));
	code_file_close(import.file);
	code_book_free(import.stored.book);
	db_close(db);
	status = stored_wait(ctl);
	object = output_object();
	output_id(object, "set", import.set);
	output_id(object, "coupon", import.coupon);
	output_number(object, "stored", import.added);
	output_number(object, "present", import.present);
	output_number(object, "present_used", import.used);
	output_number(object, "present_revoked", import.revoked);
	output_number(object, "refused", import.refused);
	output_say(object,
		   "set {set} of coupon {coupon}: {stored:,} codes stored, {present:,} were there "
		   "before[present_used , {present_used:,} of them used]"
		   "[present_revoked , {present_revoked:,} of them revoked], "
		   "{refused:,} refused\n",
		   args_has(&ctl->args, "json"));
	return status ? status : import.refused > 0 ? CTL_REFUSED : CTL_DONE;
}

const struct command codes_import_command = {
	.name = "codes import",
	.run = import_run,
	.argument = "COUPON FILE",
	.options = OPTIONS(CODE_FILE_OPTIONS, CODE_FILE_METADATA_OPTION, CODE_TERMS_OPTIONS,
			   KEY_OPTION_AGAIN, BY_OPTION),
	.summary = "store the codes of a file that others made",
	.detail =
		"CSV has a header with the column code; a JSON line is an object with the member\n"
		"code. It may have state (unused, used or revoked), user (who alone may claim it,\n"
		"or has used it), valid_to (until when it can be claimed), used_at, metadata, and\n"
		"what --metadata lists; nothing is stored if there is another column or member.\n"
		"Rows that are wrong, and codes that exist, are named by their line, and the\n"
		"others are stored. Interrupted, run the same command again.",
};
