#include "keeper/rebuild/place.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "embed.h"
#include "keeper/metrics.h"

#include <stdlib.h>
#include <string.h>

#define KEYS_MAX (COUPON_KEYS_MAX + 3)
#define HEAD 12
#define EACH 3
#define OLDER_MAX ((REDIS_CLIENT_ARGS_MAX - HEAD) / EACH) /* of one call */

static enum redis_revoked pages_revoke(struct keeper_context *context, struct snapshot *snapshot,
				       const struct redis_revocation *revocation, int64_t *seq)
{
	const char *codes[SNAPSHOT_PAGE];
	enum redis_revoked done;
	int rows;

	if (keeper_database_run(context->database, sql_query_rebuild_begin, 0, NULL) ||
	    snapshot_revoked_begin(snapshot, revocation->from))
		return REDIS_REVOKED_FAILED;
	do {
		if (snapshot_revoked(snapshot) || keeper_context_goes_on(context))
			return REDIS_REVOKED_FAILED;
		rows = PQntuples(snapshot->page);
		for (int i = 0; i < rows; i++)
			codes[i] = PQgetvalue(snapshot->page, i, 0);
		done = redis_revoke(context->redis, revocation, rows == 0, (size_t)rows, codes,
				    seq);
	} while (rows > 0 && done == REDIS_REVOKED_DONE);
	return done;
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
	int64_t seq = -1;
	enum redis_revoked done = pages_revoke(context, &snapshot, &revocation, &seq);

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

static const enum coupon_key filling[] = { COUPON_KEY_USERS, COUPON_KEY_KNOWN, COUPON_KEY_CODES };

int place_append(struct keeper_context *context, const struct snapshot *snapshot,
		 const struct placing *placing)
{
	const struct coupon_row *row = &snapshot->row;
	const size_t older_n = snapshot->generations.n;
	struct coupon_keys keys;
	char filled[3][COUPON_KEY_SIZE];
	const char *names[KEYS_MAX];
	char head[HEAD][NUMBER_SIZE], older[OLDER_MAX * EACH][NUMBER_SIZE];
	const char *argv[HEAD + OLDER_MAX * EACH] = {
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
	int argc = HEAD;

	/* Leaving some out would give their receives in flight away as stock. */
	if (older_n > OLDER_MAX) {
		log_error("generations_too_many", LOG_I("coupon", row->id),
			  LOG_I("generations", (int64_t)older_n));
		return -1;
	}
	for (size_t i = 0; i < older_n; i++) {
		const struct generation *generation = &snapshot->generations.list[i];
		const int64_t three[EACH] = { generation->number, generation->high,
					      generation->settled };

		for (int j = 0; j < EACH; j++, argc++)
			argv[argc] = number_text(three[j], older[argc - HEAD]);
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

static void hash_append(struct keeper_context *context, int64_t coupon, enum coupon_key which)
{
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL", coupon_key(coupon, which, key) };

	redis_client_append(context->redis, 2, hgetall);
}

int rebuild_seen(struct keeper_context *context, const int64_t *coupons, size_t n)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 }, numbers = { .type = POSTGRES_INT4 },
			      highs = { .type = POSTGRES_INT8 };
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		hash_append(context, coupons[i], COUPON_KEY_COUPON);
		hash_append(context, coupons[i], COUPON_KEY_SEEN);
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

/*
 * Marks all rejected receives as not freed, and reads of each coupon the last late outcome that
 * Redis must have counted. 0, or -1.
 */
static int verify_prepare(struct keeper_context *context, const struct coupon_row *const *rows,
			  size_t n, int64_t *late)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 };
	PGresult *result;

	for (size_t i = 0; i < n; i++)
		postgres_array_add_number(&ids, rows[i]->id);
	result = keeper_database_query(context->database, sql_query_slot_free_again,
				       POSTGRES_ARGUMENTS(postgres_array(&ids),
							  postgres_number(context->fence)));
	postgres_array_fini(&ids);
	if (!result)
		return -1;
	check(PQntuples(result) == (int)n);
	for (size_t i = 0; i < n; i++)
		late[i] = number_at(result, (int)i, 0);
	PQclear(result);
	return 0;
}

int place_verify(struct keeper_context *context, const struct coupon_row *const *rows, size_t n,
		 char (*words)[REDIS_WORD_SIZE])
{
	int64_t late[KEEPER_PAGE];

	check(n <= KEEPER_PAGE);
	fault_point(FAULT_KEEPER_BEFORE_VERIFY);
	if (verify_prepare(context, rows, n, late))
		return -1;
	keeper_context_fence(context);
	for (size_t i = 0; i < n; i++) {
		const int64_t numbers[] = { rows[i]->generation, rows[i]->seq_seen, late[i],
					    rows[i]->revocation };
		char texts[4][NUMBER_SIZE];
		const char *argv[6] = { context->fence_text, context->run_id };

		for (int j = 0; j < 4; j++)
			argv[2 + j] = number_text(numbers[j], texts[j]);
		redis_client_append_coupon_eval(context->redis, lua_verify, rows[i]->id,
						COUPON_KEYS_ISSUE | COUPON_KEY_SEEN, 6, argv);
	}
	for (size_t i = 0; i < n; i++)
		keeper_context_next(context, words[i]);
	fault_point(FAULT_KEEPER_AFTER_VERIFY);
	return 0;
}
