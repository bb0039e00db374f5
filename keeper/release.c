/*
 * One step:
 *
 *	PostgreSQL ──page of pending──▶ by coupon ──release.lua──▶ Redis
 *	     ▲                              │
 *	     └──────── released_at ─────────┘   of receives that are released, or not in Redis
 *
 * A voided receive was issued before. First the number of its transaction is copied to Redis, so
 * that it is noticed should PostgreSQL be put back to before it.
 *
 * When Redis is unreachable, refuses the call, or does not have the coupon yet, the receives stay
 * pending. If it will never have the coupon again, there is nothing to release.
 */
#include "keeper/release.h"

#include "common/changes.h"
#include "common/check.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/message/receive.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIVE "give "
#define VOIDED "voided" /* the reason */
#define WHAT_SIZE (sizeof(GIVE) + NUMBER_SIZE + ULID_SIZE + NUMBER_SIZE + RECEIVE_TAIL_MAX)
#define INDEX_MAX 255
#define ARGS_EACH 5
#define ZERO_UUID "00000000-0000-0000-0000-000000000000"

enum column {
	COUPON,
	BATCH,
	IDX,
	USER_ID,
	SLOT,
	REASON,
	HOLDER_BATCH,
	HOLDER_IDX,
	HOLDER_KEY,
	IS_OVER
};

/* The rows of one coupon in a page, and the arguments of release.lua for them. */
struct part {
	const char *argv[RELEASE_PAGE * ARGS_EACH];
	char batches[RELEASE_PAGE][ULID_SIZE];
	char whats[RELEASE_PAGE][WHAT_SIZE];
	int rows[RELEASE_PAGE];
	int n;
};

/* The receives of a page that are done. */
struct done {
	struct postgres_array coupons, batches, indexes;
};

/* What was done for one coupon. */
struct sum {
	int64_t freed, given, dropped, malformed;
};

void release_init(struct release *release)
{
	*release = (struct release){ .batch = ZERO_UUID };
}

static int64_t number_at(const PGresult *page, int row, enum column column)
{
	return strtoll(PQgetvalue(page, row, (int)column), NULL, 10);
}

static void done_add(struct done *done, const PGresult *page, int row)
{
	struct ulid batch;

	check(ulid_from_uuid(&batch, PQgetvalue(page, row, BATCH)) == 0);
	postgres_array_add_number(&done->coupons, number_at(page, row, COUPON));
	postgres_array_add_uuid(&done->batches, &batch);
	postgres_array_add_number(&done->indexes, number_at(page, row, IDX));
}

/* Skips rows that are locked: they stay pending. */
static int done_mark(struct done *done, struct keeper_database *database)
{
	const struct postgres_argument arguments[] = { postgres_array(&done->coupons),
						       postgres_array(&done->batches),
						       postgres_array(&done->indexes) };

	if (done->coupons.n == 0)
		return 0;
	fault_point(FAULT_RELEASE_BEFORE_MARK);
	return keeper_database_run(database, sql_query_release_done, 3, arguments);
}

static void batch_format(const char *uuid, char out[ULID_SIZE])
{
	struct ulid ulid;

	check(ulid_from_uuid(&ulid, uuid) == 0); /* PostgreSQL's own spelling */
	ulid_format(&ulid, out);
}

/*
 * The receive that has the slot in PostgreSQL gets it in Redis. If there is none, the slot is
 * freed, and its unit goes back to the stock, unless the receive was rejected for lack of stock or
 * for a row that no longer exists: then Redis had more stock than PostgreSQL.
 */
static void what_format(const PGresult *page, int row, char what[WHAT_SIZE])
{
	const char *reason = PQgetvalue(page, row, REASON);
	char batch[ULID_SIZE];

	if (!PQgetisnull(page, row, HOLDER_BATCH)) {
		batch_format(PQgetvalue(page, row, HOLDER_BATCH), batch);
		snprintf(what, WHAT_SIZE, GIVE "%s:%s:%s:%s", PQgetvalue(page, row, SLOT), batch,
			 PQgetvalue(page, row, HOLDER_IDX), PQgetvalue(page, row, HOLDER_KEY));
		return;
	}
	if (strcmp(reason, VOIDED) == 0)
		snprintf(what, WHAT_SIZE, "void");
	else if (strcmp(reason, "out_of_stock") == 0 || strcmp(reason, "slot_taken") == 0)
		snprintf(what, WHAT_SIZE, "drop");
	else
		snprintf(what, WHAT_SIZE, "free");
}

/*
 * Whether Redis can have the receive: messages that the script did not write may name any slot.
 */
static int row_possible(const PGresult *page, int row)
{
	int64_t slot = number_at(page, row, SLOT);
	const char *user_text = PQgetvalue(page, row, USER_ID);
	struct user_id user;

	return user_id_parse(&user, user_text, strlen(user_text)) == 0 && slot >= 1 &&
	       slot <= RECEIVE_SLOT_MAX && number_at(page, row, IDX) <= INDEX_MAX &&
	       (PQgetisnull(page, row, HOLDER_BATCH) ||
		number_at(page, row, HOLDER_IDX) <= INDEX_MAX);
}

static void part_add(struct part *part, const PGresult *page, int row)
{
	const char **argv = &part->argv[part->n * ARGS_EACH];

	batch_format(PQgetvalue(page, row, BATCH), part->batches[part->n]);
	what_format(page, row, part->whats[part->n]);
	argv[0] = PQgetvalue(page, row, USER_ID);
	argv[1] = PQgetvalue(page, row, SLOT);
	argv[2] = part->batches[part->n];
	argv[3] = PQgetvalue(page, row, IDX);
	argv[4] = part->whats[part->n];
	part->rows[part->n++] = row;
}

static void malformed_log(const PGresult *page, int row)
{
	log_error("release_malformed", LOG_S("coupon", PQgetvalue(page, row, COUPON)),
		  LOG_S("user", PQgetvalue(page, row, USER_ID)));
}

/* Whether the receive is done. */
static int ended_take(const redisReply *ended, struct sum *sum)
{
	if (ended->type != REDIS_REPLY_STRING)
		return 0;
	if (strcmp(ended->str, "malformed") == 0) {
		sum->malformed++;
		return 0;
	}
	sum->freed += strcmp(ended->str, "free") == 0 || strcmp(ended->str, "void") == 0;
	sum->given += strcmp(ended->str, "give") == 0;
	sum->dropped += strcmp(ended->str, "drop") == 0;
	return 1;
}

static void sum_log(const struct sum *sum, const char *coupon, int64_t lost)
{
	if (sum->freed + sum->given + sum->dropped > 0)
		log_info("slots_released", LOG_S("coupon", coupon), LOG_I("freed", sum->freed),
			 LOG_I("given", sum->given), LOG_I("dropped", sum->dropped));
	if (sum->dropped > 0)
		log_warn("coupon_short", LOG_S("coupon", coupon), LOG_I("lost", lost));
}

static void reply_take(const redisReply *reply, const struct part *part, const PGresult *page,
		       struct done *done)
{
	const char *coupon = PQgetvalue(page, part->rows[0], COUPON);
	int missing = reply->elements == 1;
	struct sum sum = { 0 };

	if (!missing && reply->elements != (size_t)part->n + 3) {
		log_error("release_reply", LOG_S("coupon", coupon),
			  LOG_I("elements", reply->elements));
		return;
	}
	for (int i = 0; i < part->n; i++) {
		if (missing ? *PQgetvalue(page, part->rows[i], IS_OVER) == 't'
			    : ended_take(reply->element[i + 3], &sum))
			done_add(done, page, part->rows[i]);
		else if (!missing)
			malformed_log(page, part->rows[i]);
	}
	if (!missing)
		sum_log(&sum, coupon, reply->element[2]->integer);
}

/* 0, or -1 when Redis is lost. Receives that it refused stay pending. */
static int coupon_release(struct part *part, const PGresult *page, struct redis_client *redis,
			  struct done *done)
{
	redisReply *reply;

	if (part->n == 0)
		return 0;
	fault_point(FAULT_RELEASE_BEFORE_GIVE);
	reply = redis_client_coupon_eval(redis, lua_release, number_at(page, part->rows[0], COUPON),
					 COUPON_KEYS_RELEASE, part->n * ARGS_EACH, part->argv);
	if (reply && reply->type == REDIS_REPLY_ARRAY)
		reply_take(reply, part, page, done);
	if (reply)
		freeReplyObject(reply);
	part->n = 0;
	return redis_client_is_open(redis) ? 0 : -1;
}

static int page_release(const PGresult *page, struct redis_client *redis, struct done *done)
{
	struct part part = { .n = 0 };

	for (int row = 0; row < PQntuples(page); row++) {
		if (part.n > 0 &&
		    number_at(page, part.rows[0], COUPON) != number_at(page, row, COUPON) &&
		    coupon_release(&part, page, redis, done))
			return -1;
		if (row_possible(page, row))
			part_add(&part, page, row);
		else
			done_add(done, page, row);
	}
	return coupon_release(&part, page, redis, done);
}

/* Copies the numbers of transactions if one of the receives is voided. 0, or -1. */
static int numbers_copy(const PGresult *page, struct redis_client *redis,
			struct keeper_database *database)
{
	struct changes changes, copy;
	int voided_n = 0;
	PGresult *rows;

	for (int row = 0; row < PQntuples(page); row++)
		voided_n += strcmp(PQgetvalue(page, row, REASON), VOIDED) == 0;
	if (voided_n == 0)
		return 0;
	if (changes_copy_read(&copy, redis))
		return -1;
	rows = keeper_database_query(database, sql_query_change_counts, 0, NULL);
	if (!rows)
		return -1;
	changes_take(&changes, rows);
	PQclear(rows);
	return changes_copy_raise(redis, &changes, &copy);
}

static PGresult *page_read(const struct release *release, struct keeper_database *database)
{
	const struct postgres_argument arguments[] = { postgres_number(release->coupon),
						       postgres_text(release->batch),
						       postgres_number(release->index),
						       postgres_number(RELEASE_PAGE) };

	return keeper_database_query(database, sql_query_release_pending, 4, arguments);
}

int release_step(struct release *release, struct redis_client *redis,
		 struct keeper_database *database)
{
	PGresult *page = page_read(release, database);
	struct done done = { .coupons.type = POSTGRES_INT8,
			     .batches.type = POSTGRES_UUID,
			     .indexes.type = POSTGRES_INT2 };
	int n, rc;

	if (!page)
		return -1;
	n = PQntuples(page);
	check(n <= RELEASE_PAGE);
	rc = numbers_copy(page, redis, database);
	if (rc == 0)
		rc = page_release(page, redis, &done);
	/* Also after a failure: marks the receives that are done. */
	if (done_mark(&done, database))
		rc = -1;
	postgres_array_fini(&done.coupons);
	postgres_array_fini(&done.batches);
	postgres_array_fini(&done.indexes);
	release_init(release);
	if (rc == 0 && n == RELEASE_PAGE) {
		release->coupon = number_at(page, n - 1, COUPON);
		snprintf(release->batch, sizeof(release->batch), "%s",
			 PQgetvalue(page, n - 1, BATCH));
		release->index = number_at(page, n - 1, IDX);
		rc = 1;
	}
	PQclear(page);
	return rc;
}
