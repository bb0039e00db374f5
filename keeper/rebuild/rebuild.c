/*
 *	hold.lua ─▶ new generation ─▶ store in PostgreSQL the numbers that only Redis has
 *	         ─▶ snapshot of PostgreSQL ─▶ fill.lua, piece by piece ─▶ place.lua
 *
 * An interrupted rebuild is not undone: the coupon stays unavailable to gateways, the filled keys
 * expire, and the next round starts a new rebuild. Only place.lua opens the coupon, once, and only
 * under the latest generation.
 */
#include "keeper/rebuild/rebuild.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "embed.h"
#include "keeper/metrics.h"
#include "keeper/rebuild/codes.h"
#include "keeper/rebuild/outbox.h"
#include "keeper/rebuild/place.h"
#include "keeper/rebuild/seen.h"
#include "keeper/rebuild/slot_writer.h"
#include "keeper/rebuild/snapshot.h"
#include "keeper/rebuild/users.h"

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
	int64_t coupon;
	int64_t generation;
	struct snapshot snapshot;
	struct slot_writer *writer;
	int64_t issued, known;     /* filled */
	int64_t begun_ms, told_ms; /* of the rows; 0: nothing was told yet */
	char answer[ANSWER_SIZE];
};

void rebuild_hold_append(struct keeper_context *context, const struct coupon_row *row,
			 int64_t wait_ms, const char *fence)
{
	char generation[NUMBER_SIZE], wait[NUMBER_SIZE];
	const char *argv[] = { fence,
			       number_text(row->generation > 0 ? row->generation : 1, generation),
			       number_text(wait_ms, wait) };

	redis_client_append_coupon_eval(context->redis, lua_hold, row->id, COUPON_KEYS_ISSUE, 3,
					argv);
}

static int hold(struct keeper_context *context, const struct coupon_row *row, int64_t wait_ms)
{
	char fence[KEEPER_FENCE_SIZE], word[REDIS_WORD_SIZE];

	rebuild_hold_append(context, row, wait_ms, keeper_context_fence(context, fence));
	redis_word_take(redis_client_next(context->redis), word);
	if (strcmp(word, "held") == 0)
		return 0;
	if (strcmp(word, "early") == 0)
		return 1;
	keeper_context_word(context, word);
	return -1;
}

int rebuild_hold(struct keeper_context *context, const struct coupon_row *row)
{
	return hold(context, row, 0);
}

int rebuild_hold_for_reports(struct keeper_context *context, const struct coupon_row *row)
{
	return hold(context, row, REBUILD_REPORTS_MS);
}

int rebuild_answer(struct keeper_context *context, const struct coupon_row *row, const char *answer)
{
	const struct postgres_argument arguments[] = { postgres_number(row->id),
						       postgres_number(row->rebuild_asked),
						       postgres_text(answer),
						       postgres_number(context->fence) };

	if (row->rebuild_asked <= row->rebuild_done)
		return 0;
	return keeper_database_run(context->database, sql_query_rebuild_answer, 4, arguments);
}

static int generation_open(struct rebuild *rebuild, const struct coupon_row *row,
			   const struct coupon_look *look)
{
	if (place_generation(rebuild->context, row, look->present ? look->generation : 0,
			     &rebuild->generation))
		return -1;
	/*
	 * Another keeper was elected, or the row has changed since it was read: the next round
	 * reads it again.
	 */
	return rebuild->generation > 0 ? 0 : -1;
}

/* Tells couponctl and the metrics how far it is, from time to time. */
static void progress_tell(struct rebuild *rebuild)
{
	int64_t now_ms = clock_monotonic_ms(), filled = slot_writer_added(rebuild->writer);
	char key[COUPON_KEY_SIZE], text[3 * NUMBER_SIZE];
	const char *set[] = { "SET", coupon_key(rebuild->coupon, COUPON_KEY_FILLED, key), text,
			      "PX", TOLD_LASTS_MS };
	redisReply *reply;

	if (now_ms - (rebuild->told_ms ? rebuild->told_ms : rebuild->begun_ms) < TOLD_EVERY_MS)
		return;
	rebuild->told_ms = now_ms;
	keeper_metrics_set(KEEPER_METRIC_ROWS, rebuild->snapshot.row.issued);
	keeper_metrics_set(KEEPER_METRIC_FILLED, filled);
	snprintf(text, sizeof(text), "%" PRId64 " %" PRId64 " %" PRId64, filled,
		 rebuild->snapshot.row.issued, now_ms - rebuild->begun_ms);
	reply = redis_client_call(rebuild->context->redis, 5, set);
	if (reply)
		freeReplyObject(reply);
}

static void progress_end(struct rebuild *rebuild)
{
	char key[COUPON_KEY_SIZE];
	const char *del[] = { "DEL", coupon_key(rebuild->coupon, COUPON_KEY_FILLED, key) };
	redisReply *reply;

	keeper_metrics_set(KEEPER_METRIC_ROWS, 0);
	keeper_metrics_set(KEEPER_METRIC_FILLED, 0);
	if (rebuild->told_ms == 0)
		return;
	reply = redis_client_call(rebuild->context->redis, 2, del);
	if (reply)
		freeReplyObject(reply);
}

static int rows_write(struct rebuild *rebuild)
{
	struct snapshot *snapshot = &rebuild->snapshot;
	int rows;

	rebuild->begun_ms = clock_monotonic_ms();

	if (slot_writer_begin(rebuild->writer,
			      snapshot->row.limit == 1 ? SLOT_ISSUED_SINGLE : SLOT_ISSUED,
			      ROOM_MAX))
		return -1;
	do {
		if (snapshot_rows(snapshot))
			return -1;
		rows = PQntuples(snapshot->page);
		for (int i = 0; i < rows; i++) {
			const char *user_text = PQgetvalue(snapshot->page, i, 0);
			struct user_id user;
			struct ulid batch;

			if (user_id_parse(&user, user_text, strlen(user_text))) {
				log_error("rebuild_user", LOG_I("coupon", rebuild->coupon),
					  LOG_S("user", user_text));
				return -1;
			}
			check(ulid_from_uuid(&batch, PQgetvalue(snapshot->page, i, 2)) ==
			      0); /* PostgreSQL's own spelling */
			if (slot_writer_add(rebuild->writer, &user,
					    (int)strtol(PQgetvalue(snapshot->page, i, 1), NULL, 10),
					    &batch,
					    (int)strtol(PQgetvalue(snapshot->page, i, 3), NULL, 10),
					    PQgetvalue(snapshot->page, i, 4)))
				return -1;
		}
		progress_tell(rebuild);
	} while (rows > 0);
	if (slot_writer_flush(rebuild->writer))
		return -1;
	rebuild->issued = slot_writer_added(rebuild->writer);
	return 0;
}

/*
 * Counts the receives in flight by the numbers of both stores, while the coupon is held. 0, or -1
 * when Redis failed.
 */
static int in_flight_count(struct rebuild *rebuild, int64_t redis_generation, int64_t *in_flight)
{
	char key[COUPON_KEY_SIZE];
	const char *hget[] = { "HGET", coupon_key(rebuild->coupon, COUPON_KEY_COUPON, key), "seq" };
	redisReply *reply = redis_client_call(rebuild->context->redis, 3, hget);
	int64_t seq;

	if (!reply)
		return -1;
	seq = redis_reply_number(reply);
	freeReplyObject(reply);
	*in_flight = 0;
	for (size_t i = 0; i < rebuild->snapshot.generations_n; i++) {
		const struct snapshot_generation *generation = &rebuild->snapshot.generations[i];
		int64_t high = generation->seq_seen;

		if (generation->number == redis_generation && seq > high)
			high = seq;
		if (high > generation->settled)
			*in_flight += high - generation->settled;
	}
	return 0;
}

static int64_t less(int64_t a, int64_t b)
{
	int64_t least = a < b ? a : b;

	return least > 0 ? least : 0;
}

/*
 * Writes receives in flight that have a slot in Redis: first those of the outbox, whose messages
 * are not lost, then those of the users' hash, up to the number in flight.
 */
static int in_flight_write(struct rebuild *rebuild, int64_t redis_generation)
{
	struct snapshot *snapshot = &rebuild->snapshot;
	int64_t room = snapshot->row.total - snapshot->row.issued, in_flight;

	if (slot_writer_begin(rebuild->writer, SLOT_IN_FLIGHT, less(room, room)) ||
	    rebuild_outbox(rebuild->context, snapshot, rebuild->writer) ||
	    in_flight_count(rebuild, redis_generation, &in_flight))
		return -1;
	rebuild->known = slot_writer_added(rebuild->writer);
	room = less(room - rebuild->known, in_flight - rebuild->known);
	if (room == 0)
		return 0;
	if (slot_writer_begin(rebuild->writer, SLOT_IN_FLIGHT, room) ||
	    rebuild_users(rebuild->context, snapshot, rebuild->writer))
		return -1;
	rebuild->known += slot_writer_added(rebuild->writer);
	return 0;
}

static int codes_write(struct rebuild *rebuild)
{
	return rebuild->snapshot.row.revocation == 0
		       ? 0
		       : codes_fill(rebuild->context, &rebuild->snapshot, rebuild->generation, 0);
}

static int all_write(struct rebuild *rebuild, int64_t redis_generation)
{
	int rc = -1;

	if (snapshot_begin(&rebuild->snapshot, rebuild->context->database, rebuild->coupon,
			   keeper_context_waiting, rebuild->context) == 0 &&
	    codes_write(rebuild) == 0 && rows_write(rebuild) == 0)
		rc = in_flight_write(rebuild, redis_generation);
	snapshot_end(&rebuild->snapshot);
	return rc;
}

static redisReply *place(struct rebuild *rebuild)
{
	const struct snapshot *snapshot = &rebuild->snapshot;

	return place_run(rebuild->context,
			 &(struct placing){ .row = &snapshot->row,
					    .generation = rebuild->generation,
					    .issued = rebuild->issued,
					    .late = snapshot->late,
					    .revocation = snapshot->row.revocation,
					    .older = snapshot->generations,
					    .older_n = snapshot->generations_n });
}

void rebuild_placed_log(int64_t coupon, int64_t generation, int64_t issued, const redisReply *reply,
			const char *why, int64_t ms)
{
	int64_t over = reply->element[4]->integer;

	keeper_metrics_add(KEEPER_METRIC_REBUILT, 1);
	log_info("coupon_rebuilt", LOG_I("coupon", coupon), LOG_S("why", why),
		 LOG_I("generation", generation), LOG_I("issued", issued),
		 LOG_I("stock", reply->element[1]->integer),
		 LOG_I("in_flight", reply->element[2]->integer + reply->element[3]->integer),
		 LOG_I("ms", ms));
	if (over > 0)
		log_error("coupon_overdrawn", LOG_I("coupon", coupon), LOG_I("over", over));
}

static void answer_make(struct rebuild *rebuild, const redisReply *reply)
{
	int64_t in_flight = reply->element[2]->integer + reply->element[3]->integer;

	snprintf(rebuild->answer, ANSWER_SIZE,
		 "rebuilt as generation %" PRId64 ": %" PRId64 " issued, %" PRId64
		 " in flight, stock %" PRId64,
		 rebuild->generation, rebuild->issued, in_flight,
		 (int64_t)reply->element[1]->integer);
}

/* Puts the coupon in place. 0, or -1. */
static int placed(struct rebuild *rebuild, const char *why, int64_t begun_ms)
{
	redisReply *reply;
	char word[REDIS_WORD_SIZE];

	fault_point(FAULT_REBUILD_FILLED);
	reply = place(rebuild);
	fault_point(FAULT_REBUILD_PLACED);
	if (place_is_done(reply)) {
		rebuild_placed_log(rebuild->coupon, rebuild->generation, rebuild->issued, reply,
				   why, clock_monotonic_ms() - begun_ms);
		answer_make(rebuild, reply);
		freeReplyObject(reply);
		return 0;
	}
	redis_word_take(reply, word);
	log_warn("rebuild_refused", LOG_I("coupon", rebuild->coupon),
		 LOG_S("why", *word ? word : "error"));
	keeper_context_word(rebuild->context, word);
	return -1;
}

static int rebuild_do(struct rebuild *rebuild, const struct coupon_row *row,
		      const struct coupon_look *look, const char *why)
{
	int64_t begun_ms = clock_monotonic_ms();
	int rc;

	if (rebuild_hold(rebuild->context, row))
		return -1;
	fault_point(FAULT_REBUILD_HELD);
	if (generation_open(rebuild, row, look))
		return -1;
	fault_point(FAULT_REBUILD_OPENED);
	log_info("rebuild_began", LOG_I("coupon", row->id), LOG_S("why", why),
		 LOG_I("generation", rebuild->generation));
	rebuild->writer = slot_writer_new(rebuild->context, row->id, rebuild->generation);
	rc = rebuild_seen(rebuild->context, &row->id, 1) ||
			     all_write(rebuild, look->present ? look->generation : 0) ||
			     placed(rebuild, why, begun_ms) ||
			     rebuild_answer(rebuild->context, row, rebuild->answer)
		     ? -1
		     : 0;
	slot_writer_free(rebuild->writer);
	progress_end(rebuild);
	return rc;
}

int rebuild_run(struct keeper_context *context, const struct coupon_row *row,
		const struct coupon_look *look, const char *why)
{
	struct rebuild *rebuild;
	int rc;

	rebuild = calloc(1, sizeof(*rebuild));
	check(rebuild != NULL);
	rebuild->context = context;
	rebuild->coupon = row->id;
	rc = rebuild_do(rebuild, row, look, why);
	snapshot_fini(&rebuild->snapshot);
	free(rebuild);
	context->refused = rc != 0;
	/* A failure that concerns this coupon alone must not delay the others. */
	return rc == 0 ? 0 : keeper_context_usable(context);
}
