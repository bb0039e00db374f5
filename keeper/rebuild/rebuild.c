/*
 *	hold.lua ─▶ new generation ─▶ store in PostgreSQL the numbers that only Redis has
 *	         ─▶ snapshot of PostgreSQL ─▶ fill.lua, piece by piece ─▶ place.lua
 *
 * An interrupted rebuild is not undone: the coupon stays unavailable to gateways, the filled keys
 * expire, and the next round starts a new rebuild. Only place.lua opens the coupon, once, and only
 * under the latest generation.
 *
 * A big coupon has a snapshot over a connection of its own, and its rows are written a few pages at
 * a time, between the rest of the keeper's work.
 */
#include "keeper/rebuild/rebuild.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "embed.h"
#include "keeper/metrics.h"
#include "keeper/rebuild/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_MAX 9007199254740991
#define ANSWER_SIZE 160
#define TOLD_EVERY_MS 500
#define TOLD_LASTS_MS "30000"

struct rebuild {
	struct keeper_context *context;
	struct keeper_database *own_database; /* of the snapshot; NULL: the keeper's */
	struct coupon_row row;                /* when it began */
	int64_t redis_generation;             /* before; 0: none */
	struct placing placing;
	struct snapshot snapshot;
	struct slot_writer *writer;
	int64_t rows_ms, told_ms; /* from when rows are written, and when it was told; 0: not yet */
};

void rebuild_hold_append(struct keeper_context *context, const struct coupon_row *row,
			 int64_t wait_ms)
{
	char generation[NUMBER_SIZE], wait[NUMBER_SIZE];
	const char *argv[] = { context->fence_text,
			       number_text(row->generation > 0 ? row->generation : 1, generation),
			       number_text(wait_ms, wait) };

	redis_client_append_coupon_eval(context->redis, lua_hold, row->id, COUPON_KEYS_ISSUE, 3,
					argv);
}

int rebuild_hold(struct keeper_context *context, const struct coupon_row *row, int64_t wait_ms)
{
	char word[REDIS_WORD_SIZE];

	keeper_context_fence(context);
	rebuild_hold_append(context, row, wait_ms);
	redis_word_take(redis_client_next(context->redis), word);
	if (strcmp(word, "held") == 0)
		return 0;
	if (strcmp(word, "early") == 0)
		return 1;
	keeper_context_word(context, word);
	return -1;
}

int rebuild_answer(struct keeper_context *context, const struct coupon_row *row, const char *answer)
{
	if (row->rebuild_asked <= row->rebuild_done)
		return 0;
	return keeper_database_run(context->database, sql_query_rebuild_answer,
				   POSTGRES_ARGUMENTS(postgres_number(row->id),
						      postgres_number(row->rebuild_asked),
						      postgres_text(answer),
						      postgres_number(context->fence)));
}

/*
 * Writes the codes that were revoked after the revocation `above` under the temporary name of this
 * generation. 0, or -1.
 */
static int codes_fill(struct keeper_context *context, struct snapshot *snapshot, int64_t generation,
		      int64_t above)
{
	struct piece piece = { .coupon = snapshot->row.id,
			       .generation = generation,
			       .what = FILL_REVOKED };

	if (snapshot_revoked_begin(snapshot, above))
		return -1;
	do { /* the last page is empty: place.lua needs one */
		if (snapshot_revoked(snapshot))
			return -1;
		piece.words_n = PQntuples(snapshot->page);
		for (int i = 0; i < piece.words_n; i++)
			piece.words[i] = PQgetvalue(snapshot->page, i, 0);
		piece_append(context->redis, &piece, keeper_context_fence(context));
		if (piece_take(redis_client_next(context->redis)) != 0 ||
		    keeper_context_goes_on(context))
			return -1;
	} while (piece.words_n > 0);
	return 0;
}

/*
 * Runs the script that puts the coupon in place. Codes that were revoked since the snapshot are
 * filled, too. Returns the reply; NULL: the call failed.
 */
static redisReply *place_run(struct keeper_context *context, struct snapshot *snapshot,
			     const struct placing *placing)
{
	int64_t coupon = snapshot->row.id, filled, last;
	PGresult *revocation;
	struct snapshot more;
	redisReply *reply;
	int rc;

	for (;;) {
		reply = NULL;
		keeper_context_fence(context);
		if (place_append(context, snapshot, placing) == 0)
			reply = redis_client_next(context->redis);
		if (!reply || reply->type != REDIS_REPLY_STRING ||
		    strcmp(reply->str, "revoked") != 0 || keeper_context_goes_on(context))
			return reply;

		/* There is a later revocation: fill its codes, in a transaction of their own. */
		revocation = keeper_database_query(context->database, sql_query_code_revocation,
						   POSTGRES_ARGUMENTS(postgres_number(coupon)));
		if (!revocation)
			return reply;
		filled = snapshot->row.revocation;
		last = PQntuples(revocation) == 1 ? number_at(revocation, 0, 0) : 0;
		PQclear(revocation);
		if (last <= filled) {
			log_error("revocations_lost", LOG_I("coupon", coupon),
				  LOG_I("last", filled));
			return reply;
		}
		more = (struct snapshot){ .database = context->database, .row = snapshot->row };
		rc = keeper_database_run(context->database, sql_query_rebuild_begin, 0, NULL);
		if (rc == 0)
			rc = codes_fill(context, &more, placing->generation, filled);
		snapshot_end(&more);
		snapshot->row.revocation = last;
		if (rc)
			return reply;
		freeReplyObject(reply);
	}
}

/* Until the snapshot is begun, and the revoked codes are written. 0, or -1. */
static int rebuild_begin(struct rebuild *rebuild)
{
	struct keeper_context *context = rebuild->context;
	struct snapshot *snapshot = &rebuild->snapshot;
	struct placing *placing = &rebuild->placing;
	struct keeper_database *database = rebuild->own_database ? rebuild->own_database
								 : context->database;
	int64_t coupon = rebuild->row.id;
	PGresult *opened;

	if (rebuild_hold(context, &rebuild->row, 0))
		return -1;
	fault_point(FAULT_REBUILD_HELD);
	/*
	 * Open a new generation in PostgreSQL, higher than the row's and than Redis'. It opens none
	 * when another keeper was elected, or the row has changed: the next round reads it again.
	 */
	opened =
		keeper_database_query(context->database, sql_query_coupon_generation_open,
				      POSTGRES_ARGUMENTS(postgres_number(coupon),
							 postgres_number(rebuild->row.generation),
							 postgres_number(rebuild->redis_generation),
							 postgres_number(context->fence)));
	if (PQntuples(opened) == 1)
		placing->generation = number_at(opened, 0, 0);
	PQclear(opened);
	if (placing->generation == 0)
		return -1;
	fault_point(FAULT_REBUILD_OPENED);
	if (placing->why)
		log_info("rebuild_began", LOG_I("coupon", coupon), LOG_S("why", placing->why),
			 LOG_I("generation", placing->generation));
	rebuild->writer = slot_writer_new(context, coupon, placing->generation);
	if (rebuild_seen(context, &coupon, 1) ||
	    snapshot_begin(snapshot, context, database, coupon))
		return -1;
	if (snapshot->row.version > rebuild->row.version)
		return -1; /* these terms are not kept yet: the next round does it first */
	if (snapshot->row.revocation > 0 && codes_fill(context, snapshot, placing->generation, 0))
		return -1;
	rebuild->rows_ms = clock_monotonic_ms();
	return slot_writer_begin(rebuild->writer,
				 snapshot->row.limit == 1 ? FILL_SINGLE : FILL_ISSUED, ROOM_MAX) ||
			       snapshot_rows_ask(snapshot)
		       ? -1
		       : 0;
}

/*
 * Writes a page of rows; after the last one, also the receives in flight, and puts the coupon in
 * place. 1: there is more to do; 0: the coupon is open; -1.
 */
static int rebuild_step(struct rebuild *rebuild)
{
	struct keeper_context *context = rebuild->context;
	struct snapshot *snapshot = &rebuild->snapshot;
	struct placing *placing = &rebuild->placing;
	int64_t coupon = rebuild->row.id, now_ms, filled;
	char word[REDIS_WORD_SIZE], answer[ANSWER_SIZE], progress[3 * NUMBER_SIZE];
	redisReply *reply;
	struct slot slot;
	int rows, is_done;

	if (snapshot_rows(snapshot))
		return -1;
	rows = PQntuples(snapshot->page);
	for (int i = 0; i < rows; i++) {
		if (slot_of_row(&slot, snapshot->page, i, 0)) {
			log_error("rebuild_user", LOG_I("coupon", coupon),
				  LOG_S("user", PQgetvalue(snapshot->page, i, 0)));
			return -1;
		}
		if (slot_writer_add(rebuild->writer, &slot))
			return -1;
	}

	/* Tell couponctl and the metrics how far it is, from time to time. */
	now_ms = clock_monotonic_ms();
	if (now_ms - (rebuild->told_ms ? rebuild->told_ms : rebuild->rows_ms) >= TOLD_EVERY_MS) {
		rebuild->told_ms = now_ms;
		filled = slot_writer_added(rebuild->writer);
		metrics_set(KEEPER_METRIC_ROWS, snapshot->row.issued);
		metrics_set(KEEPER_METRIC_FILLED, filled);
		snprintf(progress, sizeof(progress), "%" PRId64 " %" PRId64 " %" PRId64, filled,
			 snapshot->row.issued, now_ms - rebuild->rows_ms);
		freeReplyObject(coupon_call(context->redis, coupon, "SET", COUPON_KEY_FILLED,
					    progress, "PX", TOLD_LASTS_MS, NULL));
	}
	if (rows > 0)
		return 1;

	if (slot_writer_flush(rebuild->writer))
		return -1;
	placing->issued = slot_writer_added(rebuild->writer);
	if (flight_fill(rebuild->writer, snapshot, rebuild->redis_generation))
		return -1;
	snapshot_end(snapshot);
	fault_point(FAULT_REBUILD_FILLED);
	reply = place_run(context, snapshot, placing);
	fault_point(FAULT_REBUILD_PLACED);
	is_done = place_is_done(context, snapshot, placing, reply, word);
	if (is_done)
		snprintf(answer, sizeof(answer),
			 "rebuilt as generation %" PRId64 ": %" PRId64 " issued, %lld in flight, "
			 "stock %lld",
			 placing->generation, placing->issued,
			 reply->element[2]->integer + reply->element[3]->integer,
			 reply->element[1]->integer);
	freeReplyObject(reply);
	if (is_done)
		return placing->why ? rebuild_answer(context, &rebuild->row, answer) : 0;
	keeper_context_word(context, word);
	return -1;
}

static void rebuild_free(struct rebuild *rebuild)
{
	snapshot_end(&rebuild->snapshot);
	generations_fini(&rebuild->snapshot.generations);
	if (rebuild->writer) {
		slot_writer_free(rebuild->writer);
		metrics_set(KEEPER_METRIC_ROWS, 0);
		metrics_set(KEEPER_METRIC_FILLED, 0);
		if (rebuild->told_ms)
			freeReplyObject(coupon_call(rebuild->context->redis, rebuild->row.id, "DEL",
						    COUPON_KEY_FILLED, NULL));
	}
	keeper_database_free(rebuild->own_database);
	free(rebuild);
}

/* A failure that concerns this coupon alone must not delay the others. */
static int rebuild_end(struct rebuild *rebuild, int rc)
{
	struct keeper_context *context = rebuild->context;

	rebuild_free(rebuild);
	context->refused = rc != 0;
	return rc == 0 ? 0 : keeper_context_usable(context);
}

int rebuild_run(struct keeper_context *context, const struct coupon_row *row,
		const struct coupon_look *look, const char *why)
{
	struct rebuild *rebuild;
	int rc = 1;

	if (rebuild_big_waits(context, row))
		return 0;
	rebuild = checked(calloc(1, sizeof(*rebuild)));
	rebuild->context = context;
	rebuild->row = *row;
	rebuild->redis_generation = look->present ? look->generation : 0;
	rebuild->placing.why = why;
	rebuild->placing.begun_ms = clock_monotonic_ms();
	if (row->issued > REBUILD_BIG_ROWS) {
		rebuild->own_database = keeper_database_new(context->database_url,
							    context->is_synchronous);
		rc = postgres_open(keeper_database_session(rebuild->own_database)) ? -1 : 1;
	}
	if (rc > 0 && rebuild_begin(rebuild))
		rc = -1;
	if (rc > 0 && rebuild->own_database) {
		context->big = rebuild;
		return 0;
	}
	while (rc > 0)
		rc = rebuild_step(rebuild);
	return rebuild_end(rebuild, rc);
}

int64_t rebuild_big(const struct keeper_context *context)
{
	return context->big ? context->big->row.id : 0;
}

int rebuild_big_waits(const struct keeper_context *context, const struct coupon_row *row)
{
	return context->big && row->issued > REBUILD_BIG_ROWS;
}

int rebuild_big_step(struct keeper_context *context, int64_t for_ms)
{
	struct rebuild *rebuild = context->big;
	int64_t until_ms = clock_monotonic_ms() + for_ms;
	int rc = 1;

	while (rc > 0 && clock_monotonic_ms() < until_ms) {
		if (keeper_database_waits(rebuild->own_database, until_ms - clock_monotonic_ms()))
			return 0;
		rc = rebuild_step(rebuild);
	}
	if (rc > 0)
		return 0;
	context->big = NULL;
	return rebuild_end(rebuild, rc);
}

void rebuild_big_stop(struct keeper_context *context)
{
	if (context->big)
		rebuild_free(context->big);
	context->big = NULL;
}

/*
 * Some coupons together:
 *
 *	hold.lua of all ─▶ one statement opens the generations ─▶ one stores the numbers that only
 *	Redis has ─▶ one snapshot of PostgreSQL ─▶ fill.lua of all ─▶ place.lua of all
 *
 * A coupon drops out at any step and is left as an interrupted rebuild leaves it. Redis has nothing
 * of them in flight: neither users nor an outbox.
 */

/* A coupon that has not dropped out. */
struct page_entry {
	struct coupon_row *row; /* as it was read; when it is done, as it is after that */
	const struct coupon_look *look;
	enum page_state *state;
	struct placing placing;
	struct snapshot now;
	int rows_first; /* of the user coupons, `placing.issued` of them */
	int pieces;     /* filled */
	int is_out;
};

struct rebuild_page {
	struct keeper_context *context;
	struct page_entry entries[KEEPER_PAGE];
	int64_t ids[KEEPER_PAGE];
	size_t n;
	PGresult *rows;
};

/* Removes the entries that are out. 0, or -1: none is left, or the keeper must not go on. */
static int page_sift(struct rebuild_page *page)
{
	size_t n = 0;

	for (size_t i = 0; i < page->n; i++) {
		page->ids[n] = page->ids[i];
		if (!page->entries[i].is_out)
			page->entries[n++] = page->entries[i];
		else
			generations_fini(&page->entries[i].now.generations);
	}
	page->n = n;
	return n > 0 ? keeper_context_goes_on(page->context) : -1;
}

/* Holds the coupons of which Redis has neither users nor an outbox. 0, or -1. */
static int all_hold(struct rebuild_page *page)
{
	struct keeper_context *context = page->context;
	char word[REDIS_WORD_SIZE];

	redis_client_prepare(context->redis, lua_hold);
	keeper_context_fence(context);
	for (size_t i = 0; i < page->n; i++) {
		const struct page_entry *entry = &page->entries[i];
		const int64_t id = page->ids[i];
		char keys[2][COUPON_KEY_SIZE];
		const char *exists[] = { "EXISTS", coupon_key(id, COUPON_KEY_USERS, keys[0]),
					 coupon_key(id, COUPON_KEY_OUTBOX, keys[1]) };

		/* No gateway can report anything of one that is loaded for the first time. */
		rebuild_hold_append(context, entry->row,
				    entry->placing.why ? REBUILD_REPORTS_MS : 0);
		redis_client_append(context->redis, 3, exists);
	}
	for (size_t i = 0; i < page->n; i++) {
		struct page_entry *entry = &page->entries[i];
		redisReply *remains;

		keeper_context_next(context, word);
		remains = redis_client_next(context->redis);
		if (strcmp(word, "early") == 0)
			*entry->state = PAGE_WAITS;
		entry->is_out = strcmp(word, "held") != 0 || !remains ||
				remains->type != REDIS_REPLY_INTEGER || remains->integer != 0;
		freeReplyObject(remains);
	}
	return context->fenced ? -1 : page_sift(page);
}

/* Opens a new generation of each. 0, or -1. */
static int generations_open(struct rebuild_page *page)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 }, expected = { .type = POSTGRES_INT4 },
			      redis = { .type = POSTGRES_INT4 };
	PGresult *result;

	for (size_t i = 0; i < page->n; i++) {
		postgres_array_add_number(&ids, page->ids[i]);
		postgres_array_add_number(&expected, page->entries[i].row->generation);
		postgres_array_add_number(&redis, page->entries[i].look->generation);
	}
	result = keeper_database_query(page->context->database, sql_query_rebuild_page_open,
				       POSTGRES_ARGUMENTS(postgres_array(&ids),
							  postgres_array(&expected),
							  postgres_array(&redis),
							  postgres_number(page->context->fence)));
	postgres_array_fini(&ids);
	postgres_array_fini(&expected);
	postgres_array_fini(&redis);
	if (!result)
		return -1;
	check(PQntuples(result) == (int)page->n);
	for (size_t i = 0; i < page->n; i++) {
		page->entries[i].placing.generation = number_at(result, (int)i, 1);
		page->entries[i].is_out = PQgetisnull(result, (int)i, 1);
	}
	PQclear(result);
	return page_sift(page);
}

/* Reads all that PostgreSQL has of them, in one snapshot. 0, or -1. */
static int snapshot_read(struct rebuild_page *page)
{
	struct keeper_database *database = page->context->database;
	struct snapshot *list[KEEPER_PAGE];
	int user = 0;

	for (size_t i = 0; i < page->n; i++)
		list[i] = &page->entries[i].now;
	if (keeper_database_run(database, sql_query_rebuild_begin, 0, NULL) == 0 &&
	    snapshots_read(page->context, database, list, page->ids, page->n) == 0)
		page->rows = keeper_database_coupons(database, sql_query_rebuild_page_rows,
						     page->ids, page->n);
	/* No effect on a dropped connection. */
	keeper_database_run(database, sql_query_rebuild_end, 0, NULL);
	if (!page->rows)
		return -1;

	/* Find the rows of each coupon, which are in their order. */
	for (size_t i = 0; i < page->n; i++) {
		struct page_entry *entry = &page->entries[i];
		const struct coupon_row *now = &entry->now.row; /* all zero: it is gone */

		entry->rows_first = user;
		while (user < PQntuples(page->rows) &&
		       number_at(page->rows, user, 0) == page->ids[i])
			user++;
		entry->placing.issued = user - entry->rows_first;
		entry->is_out = now->revocation > 0 ||
				now->generation != entry->placing.generation ||
				now->version > entry->row->version; /* its terms are not kept yet */
	}
	return page_sift(page);
}

/* Appends one piece of a coupon's rows. 0, or -1: a row is malformed. */
static int rows_append(struct rebuild_page *page, const struct page_entry *entry, int first, int n)
{
	char records[FILL_PIECE][SLOT_RECORD_SIZE];
	struct piece piece = { .coupon = entry->now.row.id,
			       .generation = entry->placing.generation,
			       .what = entry->now.row.limit == 1 ? FILL_SINGLE : FILL_ISSUED,
			       .room = entry->placing.issued,
			       .past = first - entry->rows_first,
			       .words_n = 2 * n };

	for (int i = 0; i < n; i++) {
		struct slot slot;

		if (slot_of_row(&slot, page->rows, first + i, 1))
			return -1; /* rebuild_run() logs it */
		piece.words[2 * i] = PQgetvalue(page->rows, first + i, 1);
		piece.words[2 * i + 1] = slot_record_format(&slot, records[i]);
	}
	piece_append(page->context->redis, &piece, page->context->fence_text);
	return 0;
}

/* Fills the rows of all under temporary names. 0, or -1. */
static int all_fill(struct rebuild_page *page)
{
	redis_client_prepare(page->context->redis, lua_fill);
	keeper_context_fence(page->context);
	for (size_t i = 0; i < page->n; i++) {
		struct page_entry *entry = &page->entries[i];

		for (int at = 0; at < entry->placing.issued && !entry->is_out; at += FILL_PIECE) {
			int left = (int)entry->placing.issued - at;

			entry->is_out = rows_append(page, entry, entry->rows_first + at,
						    left < FILL_PIECE ? left : FILL_PIECE) != 0;
			entry->pieces += !entry->is_out;
		}
	}
	for (size_t i = 0; i < page->n; i++) {
		struct page_entry *entry = &page->entries[i];
		int64_t left = entry->placing.issued;

		for (int piece = 0; piece < entry->pieces; piece++) {
			int64_t added = piece_take(redis_client_next(page->context->redis));

			left -= added > 0 ? added : 0;
		}
		entry->is_out |= left != 0;
	}
	return page_sift(page);
}

int page_rebuild(struct keeper_context *context, struct coupon_page *coupons)
{
	struct rebuild_page *page = checked(calloc(1, sizeof(*page)));

	page->context = context;
	for (size_t i = 0; i < coupons->n; i++) {
		const struct coupon_row *row = &coupons->rows[i];
		const struct coupon_look *look = &coupons->looks[i];

		if (coupons->states[i] != PAGE_CHOSEN)
			continue;
		coupons->states[i] = PAGE_LEFT;
		page->ids[page->n] = row->id;
		page->entries[page->n++] = (struct page_entry){
			.row = &coupons->rows[i],
			.look = look,
			.state = &coupons->states[i],
			.placing = { .why = look->present || row->generation > 0 ? "missing" : NULL,
				     .begun_ms = clock_monotonic_ms() },
		};
	}
	if (all_hold(page))
		goto out;
	fault_point(FAULT_PAGE_HELD);
	if (generations_open(page))
		goto out;
	fault_point(FAULT_PAGE_OPENED);
	if (rebuild_seen(context, page->ids, page->n) || snapshot_read(page) || all_fill(page))
		goto out;

	/* Put the coupons in place. */
	fault_point(FAULT_PAGE_FILLED);
	redis_client_prepare(page->context->redis, lua_place);
	keeper_context_fence(page->context);
	for (size_t i = 0; i < page->n; i++) {
		struct page_entry *entry = &page->entries[i];

		entry->is_out = place_append(page->context, &entry->now, &entry->placing) != 0;
	}
	for (size_t i = 0; i < page->n; i++) {
		struct page_entry *entry = &page->entries[i];
		redisReply *reply;
		char word[REDIS_WORD_SIZE];

		if (entry->is_out)
			continue;
		reply = redis_client_next(page->context->redis);
		if (place_is_done(page->context, &entry->now, &entry->placing, reply, word)) {
			*entry->row = entry->now.row;
			*entry->state = PAGE_DONE;
		}
		freeReplyObject(reply);
		if (strcmp(word, "fenced") == 0)
			keeper_context_fenced(page->context);
	}
	fault_point(FAULT_PAGE_PLACED);
out:
	redis_client_prepared_end(context->redis);
	PQclear(page->rows);
	for (size_t i = 0; i < page->n; i++)
		generations_fini(&page->entries[i].now.generations);
	free(page);
	return keeper_context_usable(context);
}
