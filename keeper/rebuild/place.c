#include "keeper/rebuild/place.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "embed.h"
#include "keeper/metrics.h"

#include <stdlib.h>
#include <string.h>

#define FILL_HEAD 5 /* arguments of lua/fill.lua before the words */
#define LANES 4
#define LANE_WINDOW 3   /* pieces without a reply */
#define LANES_FROM 1024 /* slots that go over the keeper's own connection */
#define USERS_COUNT 256
#define OUTBOX_COUNT 32 /* entries requested at a time; each may be 70 KB */

#define KEYS_MAX (COUPON_KEYS_MAX + 3)
#define PLACE_HEAD 12
#define PLACE_EACH 3
#define OLDER_MAX ((REDIS_CLIENT_ARGS_MAX - PLACE_HEAD) / PLACE_EACH) /* of one call */

int snapshots_read(struct keeper_context *context, struct keeper_database *database,
		   struct snapshot *const *list, const int64_t *ids, size_t n)
{
	PGresult *older = NULL,
		 *coupons = keeper_database_coupons(database, sql_query_rebuild_coupon, ids, n);
	int coupon = 0, generation = 0, rc = -1;

	if (coupons && keeper_context_goes_on(context) == 0)
		older = keeper_database_coupons(database, sql_query_rebuild_generations, ids, n);
	for (size_t i = 0; older && i < n; i++) {
		if (coupon < PQntuples(coupons) && number_at(coupons, coupon, 0) == ids[i]) {
			coupon_row_read(coupons, coupon, &list[i]->row);
			list[i]->late = number_at(coupons, coupon, 17);
			list[i]->unfreed = number_at(coupons, coupon, 18);
			list[i]->has_rejected = *PQgetvalue(coupons, coupon, 19) == 't';
			coupon++;
		}
		for (; generation < PQntuples(older) && number_at(older, generation, 0) == ids[i];
		     generation++)
			generation_add_row(&list[i]->generations, older, generation, 1);
	}
	if (older)
		rc = 0;
	PQclear(coupons);
	PQclear(older);
	return rc;
}

static int waiting(void *context)
{
	return keeper_context_goes_on(context);
}

int snapshot_begin(struct snapshot *snapshot, struct keeper_context *context,
		   struct keeper_database *database, int64_t coupon)
{
	*snapshot = (struct snapshot){ .database = database };
	keeper_database_patient(database, waiting, context);
	if (keeper_database_run(database, sql_query_rebuild_begin, 0, NULL) ||
	    keeper_database_run(database, sql_query_rebuild_patience, 0, NULL) ||
	    snapshots_read(context, database, &snapshot, &coupon, 1) || snapshot->row.id != coupon)
		return -1;
	return keeper_database_run(database, sql_query_rebuild_rows,
				   POSTGRES_ARGUMENTS(postgres_number(coupon)));
}

static int page_take(struct snapshot *snapshot, PGresult *page)
{
	PQclear(snapshot->page);
	snapshot->page = page;
	return page ? 0 : -1;
}

int snapshot_rows_ask(struct snapshot *snapshot)
{
	snapshot->is_ahead = keeper_database_send(snapshot->database, sql_query_rebuild_fetch, 0,
						  NULL) == 0;
	return snapshot->is_ahead ? 0 : -1;
}

int snapshot_rows(struct snapshot *snapshot)
{
	if (!snapshot->is_ahead && snapshot_rows_ask(snapshot))
		return -1;
	snapshot->is_ahead = 0;
	if (page_take(snapshot, keeper_database_take(snapshot->database)))
		return -1;
	return PQntuples(snapshot->page) > 0 ? snapshot_rows_ask(snapshot) : 0;
}

int snapshot_revoked_begin(struct snapshot *snapshot, int64_t above)
{
	return keeper_database_run(snapshot->database, sql_query_rebuild_revoked,
				   POSTGRES_ARGUMENTS(postgres_number(snapshot->row.id),
						      postgres_number(above)));
}

int snapshot_revoked(struct snapshot *snapshot)
{
	return page_take(snapshot, keeper_database_query(snapshot->database,
							 sql_query_rebuild_fetch_revoked, 0, NULL));
}

/* Reads which receives of the batches of these slots are rejected, into snapshot->page. */
static int rejected_read(struct snapshot *snapshot, const struct slot *slots, size_t n)
{
	struct postgres_array batches = { .type = POSTGRES_UUID };
	int rc;

	if (!snapshot->has_rejected || n == 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		postgres_array_add_uuid(&batches, &slots[i].batch);
	rc = page_take(snapshot,
		       keeper_database_query(snapshot->database, sql_query_rebuild_rejected,
					     POSTGRES_ARGUMENTS(postgres_number(snapshot->row.id),
								postgres_array(&batches))));
	postgres_array_fini(&batches);
	return rc;
}

static int is_rejected(const struct snapshot *snapshot, const struct slot *slot)
{
	char uuid[ULID_UUID_SIZE];

	if (!snapshot->has_rejected)
		return 0;
	ulid_to_uuid(&slot->batch, uuid);
	for (int row = 0; row < PQntuples(snapshot->page); row++)
		if (number_at(snapshot->page, row, 1) == slot->index &&
		    strcmp(PQgetvalue(snapshot->page, row, 0), uuid) == 0)
			return 1;
	return 0;
}

void snapshot_raise(struct snapshot *snapshot, int64_t generation, int64_t high)
{
	for (size_t i = 0; i < snapshot->generations.n; i++)
		if (snapshot->generations.list[i].number == generation)
			generation_raise(&snapshot->generations, generation, high);
}

void snapshot_end(struct snapshot *snapshot)
{
	if (!snapshot->database)
		return;
	PQclear(snapshot->page);
	snapshot->page = NULL;
	if (snapshot->is_ahead)
		PQclear(keeper_database_take(snapshot->database));
	snapshot->is_ahead = 0;
	keeper_database_patient(snapshot->database, NULL, NULL);
	/* No effect on a dropped connection. */
	keeper_database_run(snapshot->database, sql_query_rebuild_end, 0, NULL);
	snapshot->database = NULL;
}

void piece_append(struct redis_client *redis, const struct piece *piece, const char *fence)
{
	char keys[3][COUPON_KEY_SIZE], room[NUMBER_SIZE], past[NUMBER_SIZE];
	const int64_t coupon = piece->coupon, generation = piece->generation;
	const char *names[] = { coupon_key_filling(coupon, generation, COUPON_KEY_USERS, keys[0]),
				coupon_key_filling(coupon, generation, COUPON_KEY_KNOWN, keys[1]),
				coupon_key_filling(coupon, generation, COUPON_KEY_CODES, keys[2]) };
	const char *argv[FILL_HEAD + FILL_WORDS_MAX] = { fence, piece->what,
							 number_text(piece->room, room), FILL_LASTS,
							 number_text(piece->past, past) };

	memcpy(argv + FILL_HEAD, piece->words, (size_t)piece->words_n * sizeof(*argv));
	redis_client_append_eval(redis, lua_fill, 3, names, FILL_HEAD + piece->words_n, argv);
}

int64_t piece_take(redisReply *reply)
{
	int64_t added = reply && reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;

	freeReplyObject(reply);
	return added;
}

/* A connection for pieces that do not wait for each other. */
struct fill_lane {
	struct redis_client *redis;
	int sent[LANE_WINDOW]; /* slots of the pieces without a reply, the oldest first */
	int sent_n;
};

struct slot_writer {
	struct keeper_context *context;
	int64_t room;
	int64_t added;
	struct fill_lane lanes[LANES];
	int lanes_n;     /* the first ones are open */
	int lanes_tried; /* it was tried to open them */
	unsigned turn;   /* whose lane is next */
	int n;           /* slots that are buffered */
	struct user_id users[FILL_PIECE];
	char records[FILL_PIECE][SLOT_RECORD_SIZE];
	/*
	 * Its words are users and records. `past`: added of all kinds, if the pieces without a
	 * reply add all of theirs.
	 */
	struct piece piece;
};

struct slot_writer *slot_writer_new(struct keeper_context *context, int64_t coupon,
				    int64_t generation)
{
	struct slot_writer *writer = checked(calloc(1, sizeof(*writer)));

	writer->context = context;
	writer->piece.coupon = coupon;
	writer->piece.generation = generation;
	for (int i = 0; i < FILL_PIECE; i++) {
		writer->piece.words[2 * i] = writer->users[i].text;
		writer->piece.words[2 * i + 1] = writer->records[i];
	}
	return writer;
}

void slot_writer_free(struct slot_writer *writer)
{
	for (int i = 0; i < LANES; i++)
		redis_client_free(writer->lanes[i].redis);
	free(writer);
}

/* Takes the reply to a piece of `sent` slots. 0, or -1. */
static int reply_take(struct slot_writer *writer, redisReply *reply, int sent)
{
	int64_t added = piece_take(reply);

	if (added < 0)
		return -1;
	writer->added += added;
	writer->piece.past += added - sent;
	return 0;
}

/* Takes the replies until at most `left` are missing. 0, or -1. */
static int lane_take(struct slot_writer *writer, struct fill_lane *lane, int left)
{
	int rc = 0;

	while (lane->sent_n > left) {
		rc |= reply_take(writer, redis_client_next(lane->redis), lane->sent[0]);
		memmove(lane->sent, lane->sent + 1, (size_t)--lane->sent_n * sizeof(*lane->sent));
	}
	return rc;
}

/*
 * The lane for a piece, or NULL: the keeper's connection, and the next piece waits for the reply.
 * The room of a piece of receives in flight depends on the reply to the one before. The first
 * pieces of all have created the keys, so that no other one may do so.
 */
static struct fill_lane *lane_for(struct slot_writer *writer)
{
	if (strcmp(writer->piece.what, FILL_FLIGHT) == 0 || writer->piece.past < LANES_FROM)
		return NULL;
	/* Open as many as Redis allows; without any, all pieces go over the keeper's connection. */
	for (; !writer->lanes_tried && writer->lanes_n < LANES; writer->lanes_n++) {
		struct fill_lane *lane = &writer->lanes[writer->lanes_n];

		lane->redis = redis_client_twin(writer->context->redis);
		if (redis_client_open(lane->redis))
			break;
		redis_client_prepare(lane->redis, lua_fill);
	}
	writer->lanes_tried = 1;
	return writer->lanes_n > 0 ? &writer->lanes[writer->turn++ % (unsigned)writer->lanes_n]
				   : NULL;
}

/* Sends the buffered slots. 0, or -1: Redis failed, or refused this or an earlier piece. */
static int piece_send(struct slot_writer *writer)
{
	struct redis_client *redis = writer->context->redis;
	struct piece *piece = &writer->piece;
	struct fill_lane *lane;
	int n = writer->n;

	fault_point(FAULT_REBUILD_FILLING);
	keeper_context_fence(writer->context);
	piece->words_n = 2 * n;
	writer->n = 0;
	lane = lane_for(writer);
	if (lane && lane_take(writer, lane, LANE_WINDOW - 1))
		return -1;
	piece->room = writer->room - writer->added;
	piece_append(lane ? lane->redis : redis, piece, writer->context->fence_text);
	piece->past += n;
	if (lane) {
		redis_client_flush(lane->redis);
		lane->sent[lane->sent_n++] = n;
	} else if (reply_take(writer, redis_client_next(redis), n)) {
		return -1;
	}
	return keeper_context_goes_on(writer->context);
}

int slot_writer_flush(struct slot_writer *writer)
{
	int rc = writer->n > 0 ? piece_send(writer) : 0;

	for (int i = 0; i < writer->lanes_n; i++)
		rc |= lane_take(writer, &writer->lanes[i], 0);
	return rc ? -1 : 0;
}

int slot_writer_begin(struct slot_writer *writer, const char *what, int64_t room)
{
	if (slot_writer_flush(writer))
		return -1;
	writer->piece.what = what;
	writer->room = room;
	writer->added = 0;
	return 0;
}

int slot_writer_add(struct slot_writer *writer, const struct slot *slot)
{
	if (writer->n == FILL_PIECE && piece_send(writer))
		return -1;
	writer->users[writer->n] = slot->user;
	slot_record_format(slot, writer->records[writer->n++]);
	return 0;
}

int64_t slot_writer_added(const struct slot_writer *writer)
{
	return writer->added;
}

/*
 * Receives in flight: their users, slots and keys are in Redis alone. A message in the queue may no
 * longer be in the outbox, but a repeated request must not get a second slot.
 */
struct flight_scan {
	struct snapshot *snapshot;
	struct slot_writer *writer;
	struct slots slots; /* of one step of a scan */
};

/* Adds the slots of those receives that are not rejected. 0, or -1. */
static int slots_add_open(struct flight_scan *flight, const struct slots *slots)
{
	for (size_t i = 0; i < slots->n; i++) {
		const struct slot *slot = &slots->list[i];

		if (slot->number >= 1 && slot->number <= RECEIVE_SLOT_MAX &&
		    !is_rejected(flight->snapshot, slot) && slot_writer_add(flight->writer, slot))
			return -1;
	}
	return 0;
}

/*
 * Adds the receives of a message. One that cannot be read will be dead-lettered; its numbers count
 * as in flight.
 */
static int message_add(void *context, const redisReply *batch, const struct message *message,
		       const char *error)
{
	struct flight_scan *flight = context;
	struct slots slots = { 0 };
	int rc;

	(void)batch;
	if (error)
		return 0;
	snapshot_raise(flight->snapshot, message->generation,
		       message->seq + (int64_t)message->receives_n - 1);
	slots_add_message(&slots, message);
	rc = slots_add_open(flight, &slots);
	slots_fini(&slots);
	return rc;
}

static int entries_add(void *context, const redisReply *entries)
{
	struct flight_scan *flight = context;
	struct snapshot *snapshot = flight->snapshot;
	struct slots batches = { 0 };
	struct slot slot = { 0 };
	int rc;

	for (size_t i = 0; i + 1 < entries->elements; i += 2)
		if (ulid_parse(&slot.batch, entries->element[i]->str, entries->element[i]->len) ==
		    0)
			slots_add(&batches, &slot);
	rc = rejected_read(snapshot, batches.list, batches.n);
	slots_fini(&batches);
	return rc ? -1 : outbox_entries(entries, snapshot->row.id, message_add, flight);
}

/* 0; 1: the writer is full; 2: it failed. Malformed records are skipped. */
static int users_add(void *context, const redisReply *users)
{
	struct flight_scan *flight = context;

	slots_read(&flight->slots, users);
	if (rejected_read(flight->snapshot, flight->slots.list, flight->slots.n) ||
	    slots_add_open(flight, &flight->slots) ||
	    keeper_context_goes_on(flight->writer->context))
		return 2;
	return flight->writer->added >= flight->writer->room;
}

int flight_fill(struct slot_writer *writer, struct snapshot *snapshot, int64_t redis_generation)
{
	struct redis_client *redis = writer->context->redis;
	struct flight_scan flight = { .snapshot = snapshot, .writer = writer };
	int64_t room = snapshot->row.total - snapshot->row.issued, in_flight;
	redisReply *seq;
	int rc;

	if (slot_writer_begin(writer, FILL_FLIGHT, room > 0 ? room : 0) ||
	    coupon_scan(redis, snapshot->row.id, COUPON_KEY_OUTBOX, OUTBOX_COUNT, entries_add,
			&flight) ||
	    slot_writer_flush(writer))
		return -1;

	/* Count those in flight by the numbers of both stores, while the coupon is held. */
	seq = coupon_call(redis, snapshot->row.id, "HGET", COUPON_KEY_COUPON, "seq", NULL);
	if (!seq)
		return -1;
	snapshot_raise(snapshot, redis_generation, redis_reply_number(seq));
	freeReplyObject(seq);
	in_flight = generations_unsettled(&snapshot->generations, 0);
	if (in_flight < 0)
		return -1;

	room = (room < in_flight ? room : in_flight) - writer->added;
	if (room <= 0)
		return 0;
	if (slot_writer_begin(writer, FILL_FLIGHT, room))
		return -1;
	rc = coupon_scan(redis, snapshot->row.id, COUPON_KEY_USERS, USERS_COUNT, users_add,
			 &flight);
	slots_fini(&flight.slots);
	/* A missing hash, or a key of another type, has no users. */
	if (rc == 2 || (rc < 0 && !redis_client_is_open(redis)))
		return -1;
	return slot_writer_flush(writer);
}

int codes_revoke(struct keeper_context *context, const struct coupon_row *row,
		 const struct coupon_look *look)
{
	const struct redis_revocation revocation = { .run_id = context->run_id,
						     .coupon = row->id,
						     .generation = look->generation,
						     .from = look->revocation,
						     .to = row->revocation };
	struct snapshot snapshot = { .database = context->database, .row = *row };
	enum redis_revoked done = REDIS_REVOKED_FAILED;
	const char *codes[SNAPSHOT_PAGE];
	int64_t seq = -1;
	int rows = 0;

	if (keeper_database_run(context->database, sql_query_rebuild_begin, 0, NULL) == 0 &&
	    snapshot_revoked_begin(&snapshot, revocation.from) == 0)
		do {
			done = REDIS_REVOKED_FAILED;
			if (snapshot_revoked(&snapshot) || keeper_context_goes_on(context))
				break;
			rows = PQntuples(snapshot.page);
			for (int i = 0; i < rows; i++)
				codes[i] = PQgetvalue(snapshot.page, i, 0);
			done = redis_revoke(context->redis, &revocation, rows == 0, (size_t)rows,
					    codes, &seq);
		} while (rows > 0 && done == REDIS_REVOKED_DONE);
	snapshot_end(&snapshot);
	if (done == REDIS_REVOKED_FAILED)
		return -1;
	if (done != REDIS_REVOKED_DONE)
		return 0;
	log_info("coupon_revoked", LOG_I("coupon", row->id), LOG_I("revocation", row->revocation));
	if (seq < 0)
		return 0;
	return keeper_database_run(context->database, sql_query_code_revocation_cut,
				   POSTGRES_ARGUMENTS(postgres_number(row->id),
						      postgres_number(revocation.from),
						      postgres_number(revocation.to),
						      postgres_number(revocation.generation),
						      postgres_number(seq)));
}

int place_append(struct keeper_context *context, const struct snapshot *snapshot,
		 const struct placing *placing)
{
	static const enum coupon_key filling[] = { COUPON_KEY_USERS, COUPON_KEY_KNOWN,
						   COUPON_KEY_CODES };
	const struct coupon_row *row = &snapshot->row;
	const size_t older_n = snapshot->generations.n;
	struct coupon_keys keys;
	char filled[3][COUPON_KEY_SIZE];
	const char *names[KEYS_MAX];
	char head[PLACE_HEAD][NUMBER_SIZE], older[OLDER_MAX * PLACE_EACH][NUMBER_SIZE];
	const char *argv[PLACE_HEAD + OLDER_MAX * PLACE_EACH] = {
		context->fence_text,
		context->run_id,
		number_text(placing->generation, head[2]),
		number_text(row->version, head[3]),
		coupon_status_text(row->status),
		number_text(row->total, head[5]),
		number_text(row->begin_ms, head[6]),
		number_text(row->end_ms, head[7]),
		number_text(row->limit, head[8]),
		number_text(placing->issued, head[9]),
		number_text(snapshot->late, head[10]),
		number_text(row->revocation, head[11]),
	};
	int argc = PLACE_HEAD;

	/* Leaving some out would give their receives in flight away as stock. */
	if (older_n > OLDER_MAX) {
		log_error("generations_too_many", LOG_I("coupon", row->id),
			  LOG_I("generations", (int64_t)older_n));
		return -1;
	}
	for (size_t i = 0; i < older_n; i++) {
		const struct generation *generation = &snapshot->generations.list[i];
		const int64_t three[PLACE_EACH] = { generation->number, generation->high,
						    generation->settled };

		for (int j = 0; j < PLACE_EACH; j++, argc++)
			argv[argc] = number_text(three[j], older[argc - PLACE_HEAD]);
	}
	coupon_keys_make(&keys, row->id, COUPON_KEYS_PLACE);
	memcpy(names, keys.names, (size_t)keys.n * sizeof(*names));
	for (int i = 0; i < 3; i++)
		names[keys.n + i] = coupon_key_filling(row->id, placing->generation, filling[i],
						       filled[i]);
	redis_client_append_eval(context->redis, lua_place, keys.n + 3, names, argc, argv);
	return 0;
}

int place_is_done(struct keeper_context *context, const struct snapshot *snapshot,
		  const struct placing *placing, const redisReply *reply,
		  char word[REDIS_WORD_SIZE])
{
	int64_t coupon = snapshot->row.id, over;

	word[0] = '\0';
	if (reply)
		redis_reply_word(reply, word);
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 5) {
		log_warn("rebuild_refused", LOG_I("coupon", coupon),
			 LOG_S("why", *word ? word : "error"));
		return 0;
	}
	if (!placing->why) {
		keeper_context_event_is_new(context, coupon, "loaded");
		log_info("coupon_loaded", LOG_I("coupon", coupon),
			 LOG_I("generation", placing->generation),
			 LOG_I("stock", reply->element[1]->integer),
			 LOG_S("status", coupon_status_text(snapshot->row.status)));
		return 1;
	}
	metrics_add(KEEPER_METRIC_REBUILT, 1);
	log_info("coupon_rebuilt", LOG_I("coupon", coupon), LOG_S("why", placing->why),
		 LOG_I("generation", placing->generation), LOG_I("issued", placing->issued),
		 LOG_I("stock", reply->element[1]->integer),
		 LOG_I("in_flight", reply->element[2]->integer + reply->element[3]->integer),
		 LOG_I("ms", clock_monotonic_ms() - placing->begun_ms));
	over = reply->element[4]->integer;
	if (over > 0)
		log_error("coupon_overdrawn", LOG_I("coupon", coupon), LOG_I("over", over));
	return 1;
}

int rebuild_seen(struct keeper_context *context, const int64_t *coupons, size_t n)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 }, numbers = { .type = POSTGRES_INT4 },
			      highs = { .type = POSTGRES_INT8 };
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL", key };
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		coupon_key(coupons[i], COUPON_KEY_COUPON, key);
		redis_client_append(context->redis, 2, hgetall);
		coupon_key(coupons[i], COUPON_KEY_SEEN, key);
		redis_client_append(context->redis, 2, hgetall);
	}
	for (size_t i = 0; i < n; i++) {
		redisReply *hash = redis_client_next(context->redis);
		redisReply *seen = redis_client_next(context->redis);
		struct generations generations = { 0 };

		/* place.lua reports a key that Redis refuses. */
		generations_raise(&generations, hash, seen);
		generations_arrays(&generations, &numbers, &highs);
		while (ids.n < numbers.n)
			postgres_array_add_number(&ids, coupons[i]);
		generations_fini(&generations);
		freeReplyObject(hash);
		freeReplyObject(seen);
	}
	if (!redis_client_is_open(context->redis))
		rc = -1;
	else if (ids.n > 0)
		rc = keeper_database_run(context->database, sql_query_rebuild_seen,
					 POSTGRES_ARGUMENTS(postgres_array(&ids),
							    postgres_array(&numbers),
							    postgres_array(&highs),
							    postgres_number(context->fence)));
	postgres_array_fini(&ids);
	postgres_array_fini(&numbers);
	postgres_array_fini(&highs);
	return rc;
}

int place_verify(struct keeper_context *context, const struct coupon_row *const *rows, size_t n,
		 char (*words)[REDIS_WORD_SIZE])
{
	struct postgres_array ids = { .type = POSTGRES_INT8 };
	PGresult *lates; /* the last late outcome that Redis must have counted, of each coupon */

	check(n <= KEEPER_PAGE);
	fault_point(FAULT_KEEPER_BEFORE_VERIFY);
	for (size_t i = 0; i < n; i++)
		postgres_array_add_number(&ids, rows[i]->id);
	lates = keeper_database_query(context->database, sql_query_slot_free_again,
				      POSTGRES_ARGUMENTS(postgres_array(&ids),
							 postgres_number(context->fence)));
	postgres_array_fini(&ids);
	if (!lates)
		return -1;
	check(PQntuples(lates) == (int)n);

	keeper_context_fence(context);
	for (size_t i = 0; i < n; i++) {
		const int64_t numbers[] = { rows[i]->generation, rows[i]->seq_seen,
					    number_at(lates, (int)i, 0), rows[i]->revocation };
		char texts[4][NUMBER_SIZE];
		const char *argv[6] = { context->fence_text, context->run_id };

		for (int j = 0; j < 4; j++)
			argv[2 + j] = number_text(numbers[j], texts[j]);
		redis_client_append_coupon_eval(context->redis, lua_verify, rows[i]->id,
						COUPON_KEYS_ISSUE | COUPON_KEY_SEEN, 6, argv);
	}
	PQclear(lates);
	for (size_t i = 0; i < n; i++)
		keeper_context_next(context, words[i]);
	fault_point(FAULT_KEEPER_AFTER_VERIFY);
	return 0;
}
