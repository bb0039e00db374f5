#include "keeper/close.h"

#include "common/fault.h"
#include "common/log/log.h"
#include "embed.h"
#include "keeper/metrics.h"

#include <string.h>

int close_due(const struct coupon_row *row, int64_t now_ms)
{
	return row->status != COUPON_CLOSED && row->end_ms > 0 &&
	       now_ms >= row->end_ms + CLOSE_GRACE_MS;
}

/*
 * Runs a statement that returns whether this keeper is still elected, and whether the change was
 * made (`*done`). 0, or -1 when the round is over. 0 with `refused` set: it failed for this coupon.
 */
static int fenced_change(struct keeper_context *context, const char *sql, int n,
			 const struct postgres_argument *arguments, int *done)
{
	PGresult *result = keeper_database_query(context->database, sql, n, arguments);
	int elected;

	*done = 0;
	if (!result)
		return keeper_context_failed(context);
	elected = *PQgetvalue(result, 0, 0) == 't';
	*done = *PQgetvalue(result, 0, 1) == 't';
	PQclear(result);
	return elected ? 0 : keeper_context_fenced(context);
}

int close_ended(struct keeper_context *context, const struct coupon_row *row)
{
	const struct postgres_argument arguments[] = { postgres_number(row->id),
						       postgres_number(row->version),
						       postgres_number(context->fence) };
	int closed, rc;

	fault_point(FAULT_KEEPER_BEFORE_CLOSE);
	rc = fenced_change(context, sql_query_coupon_ended_set, 3, arguments, &closed);
	if (rc || !closed)
		return rc; /* not closed: the terms have changed, the next sweep uses them */
	log_info("coupon_ended", LOG_I("coupon", row->id), LOG_I("issued", row->issued),
		 LOG_I("total", row->total));
	keeper_metrics_add(KEEPER_METRIC_CLOSED, 1);
	return 0;
}

/*
 * Whether PostgreSQL has an outcome for every receive that Redis has accepted, by `row` and
 * `look`. Receives of older generations and pending releases are checked when the coupon is
 * marked. Pure.
 */
static int close_settles(const struct coupon_row *row, const struct coupon_look *look,
			 const char *run_id)
{
	if (row->status != COUPON_CLOSED || look->broken || row->pending || row->late ||
	    coupon_rebuild_is_due(row))
		return 0;
	if (!look->present) /* never loaded; or its keys are gone, after it was settled */
		return (row->generation == 0 || row->is_settled) && !look->users_present &&
		       look->outbox_n == 0;
	if (look->placeholder || look->flagged || look->reported > look->seq)
		return 0;
	return coupon_is_verified(row, look, run_id) && look->version >= row->version &&
	       look->seq == row->settled && row->seq_seen == row->settled && look->reserved == 0 &&
	       look->outbox_n == 0;
}

/* The older generations in Redis, and their highest numbers. */
struct highs {
	struct postgres_array generations, seqs;
};

/* 0, or -1: they could not be read. */
static int highs_read(struct keeper_context *context, int64_t coupon, struct highs *highs)
{
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL", coupon_key(coupon, COUPON_KEY_COUPON, key) };
	redisReply *reply = redis_client_call(context->redis, 2, hgetall);
	int64_t generation, seq;
	int is_high = 0;

	if (!reply)
		return -1;
	for (size_t i = 0; is_high >= 0 && i + 1 < reply->elements; i += 2) {
		is_high = redis_reply_high(reply->element[i], reply->element[i + 1], &generation,
					   &seq);
		if (is_high > 0) {
			postgres_array_add_number(&highs->generations, generation);
			postgres_array_add_number(&highs->seqs, seq);
		}
	}
	freeReplyObject(reply);
	return is_high < 0 ? -1 : 0;
}

/* 1 when it is marked as settled, 0 when it is not settled, -1. */
static int settled_mark(struct keeper_context *context, const struct coupon_row *row)
{
	struct highs highs = { .generations.type = POSTGRES_INT4, .seqs.type = POSTGRES_INT8 };
	int settled = 0, rc;

	if (highs_read(context, row->id, &highs)) {
		rc = keeper_context_failed(context);
	} else {
		const struct postgres_argument arguments[] = {
			postgres_number(row->id),           postgres_number(context->fence),
			postgres_number(row->generation),   postgres_number(row->settled),
			postgres_array(&highs.generations), postgres_array(&highs.seqs)
		};

		fault_point(FAULT_KEEPER_BEFORE_SETTLED);
		rc = fenced_change(context, sql_query_coupon_settled_set, 6, arguments, &settled);
	}
	postgres_array_fini(&highs.generations);
	postgres_array_fini(&highs.seqs);
	return rc ? rc : settled;
}

static void keys_expire(struct keeper_context *context, const struct coupon_row *row,
			int64_t keep_ms, char word[REDIS_WORD_SIZE])
{
	char fence[KEEPER_FENCE_SIZE], generation[NUMBER_SIZE], settled[NUMBER_SIZE],
		keep[NUMBER_SIZE];
	const char *argv[] = { keeper_context_fence(context, fence),
			       number_text(row->generation, generation),
			       number_text(row->settled, settled), number_text(keep_ms, keep) };

	fault_point(FAULT_KEEPER_BEFORE_EXPIRE);
	redis_word_take(redis_client_coupon_eval(context->redis, lua_expire, row->id,
						 COUPON_KEYS_ALL, 4, argv),
			word);
}

static int expiry_record(struct keeper_context *context, const struct coupon_row *row,
			 int64_t keep_ms)
{
	const struct postgres_argument arguments[] = { postgres_number(row->id),
						       postgres_number(context->fence),
						       postgres_number(keep_ms) };
	int recorded, rc;

	fault_point(FAULT_KEEPER_BEFORE_EXPIRY_MARK);
	rc = fenced_change(context, sql_query_coupon_expires_set, 3, arguments, &recorded);
	if (rc || !recorded)
		return rc; /* not recorded: a further outcome has arrived, the next sweep checks */
	log_info("coupon_settled", LOG_I("coupon", row->id), LOG_I("issued", row->issued),
		 LOG_I("kept_ms", keep_ms));
	keeper_metrics_add(KEEPER_METRIC_SETTLED, 1);
	return 1;
}

int close_step(struct keeper_context *context, const struct coupon_row *row,
	       const struct coupon_look *look, int64_t keep_ms)
{
	int64_t known = 0;
	char word[REDIS_WORD_SIZE];
	int rc;

	if (!close_settles(row, look, context->run_id))
		return 0;
	if (look->present && coupon_known(context->redis, row->id, &known))
		return keeper_context_failed(context);
	rc = known > 0 ? 0 : settled_mark(context, row);
	if (rc <= 0)
		return rc;
	if (!look->present)
		return expiry_record(context, row, 0);
	keys_expire(context, row, keep_ms, word);
	return strcmp(word, "expires") == 0 ? expiry_record(context, row, keep_ms)
					    : keeper_context_word(context, word);
}
