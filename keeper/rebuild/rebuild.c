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

/* Tells couponctl and the metrics how far it is, from time to time. */
static void progress_tell(struct rebuild *rebuild)
{
	int64_t now_ms = clock_monotonic_ms(), filled = slot_writer_added(rebuild->writer);
	char text[3 * NUMBER_SIZE];

	if (now_ms - (rebuild->told_ms ? rebuild->told_ms : rebuild->rows_ms) < TOLD_EVERY_MS)
		return;
	rebuild->told_ms = now_ms;
	metrics_set(KEEPER_METRIC_ROWS, rebuild->snapshot.row.issued);
	metrics_set(KEEPER_METRIC_FILLED, filled);
	snprintf(text, sizeof(text), "%" PRId64 " %" PRId64 " %" PRId64, filled,
		 rebuild->snapshot.row.issued, now_ms - rebuild->rows_ms);
	freeReplyObject(coupon_call(rebuild->context->redis, rebuild->row.id, "SET",
				    COUPON_KEY_FILLED, text, "PX", TOLD_LASTS_MS, NULL));
}

static void progress_end(struct rebuild *rebuild)
{
	metrics_set(KEEPER_METRIC_ROWS, 0);
	metrics_set(KEEPER_METRIC_FILLED, 0);
	if (rebuild->told_ms)
		freeReplyObject(coupon_call(rebuild->context->redis, rebuild->row.id, "DEL",
					    COUPON_KEY_FILLED, NULL));
}

/* Writes a page of rows. 1; 0: that was the last one; -1. */
static int rows_write(struct rebuild *rebuild)
{
	const PGresult *page;
	struct slot slot;

	if (snapshot_rows(&rebuild->snapshot))
		return -1;
	page = rebuild->snapshot.page;
	for (int i = 0; i < PQntuples(page); i++) {
		if (slot_of_row(&slot, page, i, 0)) {
			log_error("rebuild_user", LOG_I("coupon", rebuild->row.id),
				  LOG_S("user", PQgetvalue(page, i, 0)));
			return -1;
		}
		if (slot_writer_add(rebuild->writer, &slot))
			return -1;
	}
	progress_tell(rebuild);
	if (PQntuples(page) > 0)
		return 1;
	if (slot_writer_flush(rebuild->writer))
		return -1;
	rebuild->placing.issued = slot_writer_added(rebuild->writer);
	return 0;
}

/* Adds a page of revoked codes to those that are filled. 0, or -1. */
static int codes_page_fill(struct keeper_context *context, int64_t coupon, int64_t generation,
			   const PGresult *page)
{
	struct piece piece = { .coupon = coupon,
			       .generation = generation,
			       .what = FILL_REVOKED,
			       .words_n = PQntuples(page) };

	for (int i = 0; i < piece.words_n; i++)
		piece.words[i] = PQgetvalue(page, i, 0);
	piece_append(context->redis, &piece, keeper_context_fence(context));
	return piece_take(redis_client_next(context->redis)) == 0 ? 0 : -1;
}

/*
 * Writes the codes that were revoked after the revocation `above` under the temporary name of this
 * generation. 0, or -1.
 */
static int codes_fill(struct keeper_context *context, struct snapshot *snapshot, int64_t generation,
		      int64_t above)
{
	int rows;

	if (snapshot_revoked_begin(snapshot, above))
		return -1;
	do { /* the last page is empty: place.lua needs one */
		if (snapshot_revoked(snapshot))
			return -1;
		rows = PQntuples(snapshot->page);
		if (codes_page_fill(context, snapshot->row.id, generation, snapshot->page) ||
		    keeper_context_goes_on(context))
			return -1;
	} while (rows > 0);
	return 0;
}

/*
 * Fills codes that were revoked after the snapshot, in a transaction of their own, and raises its
 * revocation to the last one. 0, or -1; 0 also where there are none.
 */
static int codes_fill_more(struct keeper_context *context, struct snapshot *snapshot,
			   int64_t generation)
{
	struct snapshot more = { .database = context->database, .row = snapshot->row };
	PGresult *result = keeper_database_query(context->database, sql_query_code_revocation,
						 POSTGRES_ARGUMENTS(
							 postgres_number(snapshot->row.id)));
	int64_t last;
	int rc;

	if (!result)
		return -1;
	last = PQntuples(result) == 1 ? number_at(result, 0, 0) : 0;
	PQclear(result);
	if (last <= snapshot->row.revocation)
		return 0;
	rc = keeper_database_run(context->database, sql_query_rebuild_begin, 0, NULL);
	if (rc == 0)
		rc = codes_fill(context, &more, generation, snapshot->row.revocation);
	snapshot_end(&more);
	snapshot->row.revocation = last;
	return rc;
}

/*
 * The reply of the script; NULL: the call failed. Codes that were revoked since the snapshot, whose
 * codes are filled, are filled too.
 */
static redisReply *place_run(struct keeper_context *context, struct snapshot *snapshot,
			     const struct placing *placing)
{
	for (;;) {
		int64_t filled = snapshot->row.revocation;
		redisReply *reply = NULL;

		keeper_context_fence(context);
		if (place_append(context, snapshot, placing) == 0)
			reply = redis_client_next(context->redis);
		if (!reply || reply->type != REDIS_REPLY_STRING ||
		    strcmp(reply->str, "revoked") != 0 || keeper_context_goes_on(context) ||
		    codes_fill_more(context, snapshot, placing->generation))
			return reply;
		if (snapshot->row.revocation == filled) {
			log_error("revocations_lost", LOG_I("coupon", snapshot->row.id),
				  LOG_I("last", filled));
			return reply;
		}
		freeReplyObject(reply);
	}
}

/* Puts the coupon in place. 0, or -1. */
static int placed(struct rebuild *rebuild)
{
	const struct placing *placing = &rebuild->placing;
	char word[REDIS_WORD_SIZE], answer[ANSWER_SIZE];
	redisReply *reply;
	int is_done;

	fault_point(FAULT_REBUILD_FILLED);
	reply = place_run(rebuild->context, &rebuild->snapshot, placing);
	fault_point(FAULT_REBUILD_PLACED);
	is_done = place_is_done(rebuild->context, &rebuild->snapshot, placing, reply, word);
	if (is_done)
		snprintf(answer, sizeof(answer),
			 "rebuilt as generation %" PRId64 ": %" PRId64 " issued, %lld in flight, "
			 "stock %lld",
			 placing->generation, placing->issued,
			 reply->element[2]->integer + reply->element[3]->integer,
			 reply->element[1]->integer);
	freeReplyObject(reply);
	if (is_done)
		return placing->why ? rebuild_answer(rebuild->context, &rebuild->row, answer) : 0;
	keeper_context_word(rebuild->context, word);
	return -1;
}

/*
 * Opens a new generation in PostgreSQL, higher than the row's and than Redis'. 0; -1 also when
 * another keeper was elected, or the row has changed: the next round reads it again.
 */
static int generation_open(struct rebuild *rebuild)
{
	PGresult *result =
		keeper_database_query(rebuild->context->database, sql_query_coupon_generation_open,
				      POSTGRES_ARGUMENTS(postgres_number(rebuild->row.id),
							 postgres_number(rebuild->row.generation),
							 postgres_number(rebuild->redis_generation),
							 postgres_number(rebuild->context->fence)));
	int rc = result && PQntuples(result) == 1 ? 0 : -1;

	if (rc == 0)
		rebuild->placing.generation = number_at(result, 0, 0);
	PQclear(result);
	return rc;
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

	if (rebuild_hold(context, &rebuild->row, 0))
		return -1;
	fault_point(FAULT_REBUILD_HELD);
	if (generation_open(rebuild))
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

/* 1: there is more to do; 0: the coupon is open; -1. */
static int rebuild_step(struct rebuild *rebuild)
{
	int rc = rows_write(rebuild);

	if (rc != 0)
		return rc;
	if (flight_fill(rebuild->writer, &rebuild->snapshot, rebuild->redis_generation))
		return -1;
	snapshot_end(&rebuild->snapshot);
	return placed(rebuild);
}

static void rebuild_free(struct rebuild *rebuild)
{
	snapshot_end(&rebuild->snapshot);
	generations_fini(&rebuild->snapshot.generations);
	if (rebuild->writer) {
		slot_writer_free(rebuild->writer);
		progress_end(rebuild);
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
