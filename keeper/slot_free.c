/*
 * One step:
 *
 *	PostgreSQL ──page of pending──▶ by coupon ──slot_free.lua──▶ Redis
 *	     ▲                              │
 *	     └──────── freed_at ─────────┘   of receives that are freed, or not in Redis
 *
 * A voided receive was issued before. First the number of its transaction is copied to Redis, so
 * that it is noticed should PostgreSQL be put back to before it.
 *
 * When Redis is unreachable, refuses the call, does not have the coupon yet, or is not the process
 * that the keeper follows, the receives stay pending. If it will never have the coupon again, there
 * is nothing to free.
 */
#include "keeper/slot_free.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "coupon/slot.h"
#include "embed.h"
#include "keeper/keeper_stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIVE "give "
#define VOIDED "voided" /* the reason */
#define WHAT_SIZE (sizeof(GIVE) + NUMBER_SIZE + ULID_SIZE + NUMBER_SIZE + RECEIVE_TAIL_MAX)
#define ARGS_EACH 5
#define LATE_ARGS_EACH 9
_Static_assert(1 + LATE_PAGE * LATE_ARGS_EACH <= SLOT_FREE_PAGE * ARGS_EACH,
	       "struct free_page has them");
#define NO_BATCH "00000000000000000000000000"
#define ZERO_UUID "00000000-0000-0000-0000-000000000000"

/* The last ones are those of slot_free_pending, whose key is the holder's, or of late_page. */
enum free_column {
	COUPON,
	USER_ID,
	SLOT,
	BATCH,
	IDX,
	KEY,
	REASON,
	IS_OVER,
	HOLDER_BATCH,
	HOLDER_IDX,
	NUM = HOLDER_BATCH,
	GENERATION,
	SEQ
};

struct free_page {
	struct keeper_context *context;
	struct late *late; /* NULL: a page of rejected receives */
	PGresult *rows;
	/* The rows of one coupon, and the arguments of the script for them. */
	int part[SLOT_FREE_PAGE], part_n;
	const char *argv[SLOT_FREE_PAGE * ARGS_EACH];
	char batches[SLOT_FREE_PAGE][ULID_SIZE];
	char whats[SLOT_FREE_PAGE][WHAT_SIZE];
	struct postgres_array done_coupons, done_batches, done_indexes;
};

static const char *value(const struct free_page *page, int row, enum free_column column)
{
	return PQgetvalue(page->rows, row, (int)column);
}

static struct ulid batch_at(const struct free_page *page, int row, enum free_column column)
{
	struct ulid batch;

	check(ulid_from_uuid(&batch, value(page, row, column)) == 0); /* PostgreSQL's spelling */
	return batch;
}

static void done_add(struct free_page *page, int row)
{
	const struct ulid batch = batch_at(page, row, BATCH);

	postgres_array_add_number(&page->done_coupons, number_at(page->rows, row, COUPON));
	postgres_array_add_uuid(&page->done_batches, &batch);
	postgres_array_add_number(&page->done_indexes, number_at(page->rows, row, IDX));
}

/* Whether Redis can have the receive: messages that the script did not write may name any slot. */
static int is_possible(const PGresult *rows, int row, struct slot *slot)
{
	return slot_of_row(slot, rows, row, USER_ID) == 0 && slot->number >= 1 &&
	       slot->number <= RECEIVE_SLOT_MAX && slot->index <= RECEIVE_INDEX_MAX;
}

/*
 * Adds a rejected receive to those that the script is called for. The receive that has the slot in
 * PostgreSQL gets it in Redis. If there is none, the slot is freed, and its unit goes back to the
 * stock, unless the receive was rejected for lack of stock or for a row that no longer exists: then
 * Redis had more stock than PostgreSQL.
 */
static void part_add(struct free_page *page, int row, const struct slot *slot)
{
	const char **argv = &page->argv[page->part_n * ARGS_EACH];
	const char *reason = value(page, row, REASON);
	char *what = page->whats[page->part_n], batch[ULID_SIZE];
	struct ulid holder;

	if (!PQgetisnull(page->rows, row, HOLDER_BATCH)) {
		holder = batch_at(page, row, HOLDER_BATCH);
		snprintf(what, WHAT_SIZE, GIVE "%s:%s:%s:%s", value(page, row, SLOT),
			 ulid_format(&holder, batch), value(page, row, HOLDER_IDX),
			 value(page, row, KEY));
	} else if (strcmp(reason, VOIDED) == 0) {
		strcpy(what, "void");
	} else if (strcmp(reason, "out_of_stock") == 0 || strcmp(reason, "slot_taken") == 0) {
		strcpy(what, "drop");
	} else {
		strcpy(what, "free");
	}
	argv[0] = value(page, row, USER_ID);
	argv[1] = value(page, row, SLOT);
	argv[2] = ulid_format(&slot->batch, page->batches[page->part_n]);
	argv[3] = value(page, row, IDX);
	argv[4] = what;
	page->part[page->part_n++] = row;
}

static int is_word(const redisReply *reply, const char *word)
{
	return reply->type == REDIS_REPLY_STRING && strcmp(reply->str, word) == 0;
}

/* Takes the reply of the script to the rows of one coupon. */
static void reply_take(struct free_page *page, const redisReply *reply)
{
	const char *coupon = value(page, page->part[0], COUPON);
	int64_t freed = 0, given = 0, dropped = 0;

	/* Redis does not have the coupon. If it never will again, nothing is to be freed. */
	if (reply->elements == 1) {
		for (int i = 0; i < page->part_n; i++)
			if (*value(page, page->part[i], IS_OVER) == 't')
				done_add(page, page->part[i]);
		return;
	}
	if (reply->elements != (size_t)page->part_n + 3) {
		log_error("slot_free_reply", LOG_S("coupon", coupon),
			  LOG_I("elements", reply->elements));
		return;
	}
	for (int i = 0; i < page->part_n; i++) {
		const redisReply *ended = reply->element[i + 3];

		freed += is_word(ended, "free") || is_word(ended, "void");
		given += is_word(ended, "give");
		dropped += is_word(ended, "drop");
		if (ended->type == REDIS_REPLY_STRING && !is_word(ended, "malformed"))
			done_add(page, page->part[i]);
		else
			log_error("slot_free_malformed", LOG_S("coupon", coupon),
				  LOG_S("user", value(page, page->part[i], USER_ID)));
	}
	if (freed + given + dropped > 0)
		log_info("slots_freed", LOG_S("coupon", coupon), LOG_I("freed", freed),
			 LOG_I("given", given), LOG_I("dropped", dropped));
	if (dropped > 0)
		log_warn("coupon_short", LOG_S("coupon", coupon),
			 LOG_I("lost", reply->element[2]->integer));
}

/* Fills the arguments of the script for the outcome of a row: the i-th of its coupon. */
static void late_args_fill(struct free_page *page, int i)
{
	const char **argv = &page->argv[1 + i * LATE_ARGS_EACH];
	int row = page->part[i];
	const char *num = value(page, row, NUM), *generation = value(page, row, GENERATION),
		   *seq = value(page, row, SEQ), *reason = value(page, row, REASON);
	const char *none[LATE_ARGS_EACH] = { num, "0", "0", "1", "1", NO_BATCH, "0", "", "none" };
	struct slot slot;

	if (!is_possible(page->rows, row, &slot) || *generation == '-' || *seq == '-') {
		memcpy(argv, none, sizeof(none));
		return;
	}
	argv[0] = num;
	argv[1] = generation;
	argv[2] = seq;
	argv[3] = value(page, row, USER_ID);
	argv[4] = value(page, row, SLOT);
	argv[5] = ulid_format(&slot.batch, page->batches[i]);
	argv[6] = value(page, row, IDX);
	argv[7] = value(page, row, KEY);
	argv[8] = *reason == '\0'                       ? "issued"
		  : strcmp(reason, "out_of_stock") == 0 ? "drop"
							: "free";
}

/*
 * Deletes the outcomes that Redis has counted, up to this number. 0, or -1. Locked rows stay and
 * are sent again.
 */
static int counted(const struct free_page *page, int64_t coupon, const char *last)
{
	struct put_off *put_off = &page->late->put_off;

	if (put_off_waits(put_off, coupon, clock_monotonic_ms()))
		return 0;
	if (keeper_database_run(page->context->database, sql_query_late_counted,
				POSTGRES_ARGUMENTS(postgres_number(coupon), postgres_text(last),
						   postgres_number(page->context->fence))) == 0)
		put_off_end(put_off, coupon);
	else if (keeper_context_failed(page->context))
		return -1;
	else
		keeper_context_put_off(put_off, coupon);
	return 0;
}

/*
 * Counts the outcomes of one coupon's rows. 0, or -1. They stay if Redis does not have the coupon
 * or refuses the call.
 */
static int part_count(struct free_page *page)
{
	struct keeper_context *context = page->context;
	int64_t coupon = number_at(page->rows, page->part[0], COUPON);
	const char *last = value(page, page->part[page->part_n - 1], NUM);
	int n = page->part_n;
	char word[REDIS_WORD_SIZE];

	page->part_n = 0;
	if (keeper_context_goes_on(context))
		return -1;
	if (*value(page, page->part[0], IS_OVER) == 't')
		return counted(page, coupon, last);
	page->argv[0] = keeper_context_fence(context);
	for (int i = 0; i < n; i++)
		late_args_fill(page, i);
	redis_word_take(redis_client_coupon_eval(context->redis, lua_late, coupon,
						 COUPON_KEY_COUPON | COUPON_KEY_USERS |
							 COUPON_KEY_KNOWN | COUPON_KEY_CODES,
						 1 + n * LATE_ARGS_EACH, page->argv),
			word);
	if (strcmp(word, "ok") == 0) {
		fault_point(FAULT_LATE_COUNTED);
		if (!put_off_waits(&page->late->put_off, coupon, clock_monotonic_ms()))
			log_info("late_counted", LOG_I("coupon", coupon), LOG_I("receives", n));
		return counted(page, coupon, last);
	}
	if (strcmp(word, "gap") == 0 && keeper_context_event_is_new(context, coupon, "late_gap"))
		log_error("late_gap", LOG_I("coupon", coupon));
	return keeper_context_word(context, word);
}

static int part_end(struct free_page *page)
{
	struct redis_client *redis;
	redisReply *reply;

	if (page->late)
		return part_count(page);
	redis = page->context->redis;
	fault_point(FAULT_FREE_BEFORE_GIVE);
	reply = redis_client_coupon_eval(redis, lua_slot_free,
					 number_at(page->rows, page->part[0], COUPON),
					 COUPON_KEYS_SLOT_FREE, page->part_n * ARGS_EACH,
					 page->argv);
	if (reply && reply->type == REDIS_REPLY_ARRAY)
		reply_take(page, reply); /* what it refused stays pending */
	freeReplyObject(reply);
	page->part_n = 0;
	return redis_client_is_open(redis) ? 0 : -1;
}

/* Does what is to be done for the rows of each coupon. 0, or -1. */
static int rows_run(struct free_page *page)
{
	struct slot slot;

	for (int row = 0; row < PQntuples(page->rows); row++) {
		if (page->part_n > 0 &&
		    number_at(page->rows, page->part[0], COUPON) !=
			    number_at(page->rows, row, COUPON) &&
		    part_end(page))
			return -1;
		if (page->late)
			page->part[page->part_n++] = row;
		else if (is_possible(page->rows, row, &slot) &&
			 (PQgetisnull(page->rows, row, HOLDER_BATCH) ||
			  number_at(page->rows, row, HOLDER_IDX) <= RECEIVE_INDEX_MAX))
			part_add(page, row, &slot);
		else
			done_add(page, row);
	}
	return page->part_n > 0 ? part_end(page) : 0;
}

int slot_free_step(struct slot_free *slot_free, struct keeper_context *context, const char *run_id)
{
	const char *batch = *slot_free->batch ? slot_free->batch : ZERO_UUID;
	struct free_page page = { .context = context,
				  .done_coupons.type = POSTGRES_INT8,
				  .done_batches.type = POSTGRES_UUID,
				  .done_indexes.type = POSTGRES_INT2 };
	int voided_n = 0, last, rc = 0;

	page.rows = keeper_database_query(context->database, sql_query_slot_free_pending,
					  POSTGRES_ARGUMENTS(postgres_number(slot_free->coupon),
							     postgres_text(batch),
							     postgres_number(slot_free->index),
							     postgres_number(SLOT_FREE_PAGE)));
	if (!page.rows)
		return -1;
	last = PQntuples(page.rows) - 1;
	check(last < SLOT_FREE_PAGE);

	/* Copy the numbers of transactions if one of the receives is voided; then free. */
	for (int row = 0; row <= last; row++)
		voided_n += strcmp(value(&page, row, REASON), VOIDED) == 0;
	if ((voided_n > 0 && keeper_stores_copy(context)) || rows_run(&page))
		rc = -1;

	/*
	 * Also after a failure the receives that are done are marked. Rows that are locked are
	 * skipped: they stay pending.
	 */
	if (page.done_coupons.n > 0) {
		fault_point(FAULT_FREE_BEFORE_MARK);
		if (keeper_database_run(context->database, sql_query_slot_free_done,
					POSTGRES_ARGUMENTS(postgres_array(&page.done_coupons),
							   postgres_array(&page.done_batches),
							   postgres_array(&page.done_indexes),
							   postgres_text(run_id))))
			rc = -1;
	}
	postgres_array_fini(&page.done_coupons);
	postgres_array_fini(&page.done_batches);
	postgres_array_fini(&page.done_indexes);

	*slot_free = (struct slot_free){ 0 };
	if (rc == 0 && last == SLOT_FREE_PAGE - 1) {
		slot_free->coupon = number_at(page.rows, last, COUPON);
		snprintf(slot_free->batch, sizeof(slot_free->batch), "%s",
			 value(&page, last, BATCH));
		slot_free->index = number_at(page.rows, last, IDX);
		rc = 1;
	}
	PQclear(page.rows);
	return rc;
}

int late_step(struct late *late, struct keeper_context *context)
{
	struct free_page page = { .context = context, .late = late };
	int last, rc;

	page.rows = keeper_database_query(context->database, sql_query_late_page,
					  POSTGRES_ARGUMENTS(postgres_number(late->coupon),
							     postgres_number(late->number),
							     postgres_number(LATE_PAGE)));
	if (!page.rows)
		return -1;
	last = PQntuples(page.rows) - 1;
	check(last < LATE_PAGE);
	rc = rows_run(&page);
	late->coupon = late->number = 0;
	if (rc == 0 && last == LATE_PAGE - 1) {
		late->coupon = number_at(page.rows, last, COUPON);
		late->number = number_at(page.rows, last, NUM);
		rc = 1;
	}
	PQclear(page.rows);
	return rc;
}
