#include "ctl/codes/revocations.h"

#include "common/check.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/redis/client.h"
#include "embed.h"

#define TRIES 10

static void redis_fail(const struct redis_client *redis)
{
	log_fatal(
		"PostgreSQL has revoked it, Redis not yet: %s; the keeper completes it, or run the "
		"command again",
		redis_client_error(redis));
}

/* Which revocations Redis does not have. 0, or -1: there are none, or it has no such coupon. */
static int missing_read(struct db *db, struct redis_client *redis,
			struct redis_revocation *revocation)
{
	char key[COUPON_KEY_SIZE];
	const char *hmget[] = { "HMGET", coupon_key(revocation->coupon, COUPON_KEY_COUPON, key),
				"generation", "revocation" };
	PGresult *row = db_ask(db, sql_query_code_revocation, postgres_number(revocation->coupon));
	redisReply *fields = redis_client_call(redis, 4, hmget);
	int is_there;

	if (!fields)
		redis_fail(redis);
	revocation->to = PQntuples(row) == 1 ? db_int(row, 0, "revocation_num") : 0;
	revocation->generation = redis_reply_number(fields->element[0]);
	revocation->from = redis_reply_number(fields->element[1]);
	is_there = fields->element[0]->type == REDIS_REPLY_STRING;
	freeReplyObject(fields);
	PQclear(row);
	/* A coupon that is loaded later is filled from a later state of PostgreSQL. */
	return is_there && revocation->from < revocation->to ? 0 : -1;
}

/* Marks all codes of these revocations. */
static enum redis_revoked pages_mark(struct db *db, struct redis_client *redis,
				     const struct redis_revocation *revocation, int64_t *seq)
{
	const char *codes[REDIS_REVOKE_CODES_MAX];
	enum redis_revoked done;
	int rows;

	do {
		PGresult *page = db_ask(db, sql_query_rebuild_fetch_revoked);

		rows = PQntuples(page);
		check(rows <= REDIS_REVOKE_CODES_MAX);
		for (int i = 0; i < rows; i++)
			codes[i] = db_text(page, i, "code");
		done = redis_revoke(redis, revocation, rows == 0, (size_t)rows, codes, seq);
		PQclear(page);
	} while (rows > 0 && done == REDIS_REVOKED_DONE);
	return done;
}

static enum redis_revoked all_mark(struct db *db, struct redis_client *redis,
				   const struct redis_revocation *revocation, int64_t *seq)
{
	enum redis_revoked done;

	db_run(db, "BEGIN");
	db_do(db, sql_query_rebuild_revoked, postgres_number(revocation->coupon),
	      postgres_number(revocation->from));
	done = pages_mark(db, redis, revocation, seq);
	db_run(db, "COMMIT");
	return done;
}

/* Records what was accepted before, so that it is settled. */
static void cut_record(struct db *db, const struct redis_revocation *revocation, int64_t seq)
{
	db_do(db, sql_query_code_revocation_cut, postgres_number(revocation->coupon),
	      postgres_number(revocation->from), postgres_number(revocation->to),
	      postgres_number(revocation->generation), postgres_number(seq));
}

void revocations_apply(struct db *db, struct redis_client *redis, int64_t coupon)
{
	char run_id[REDIS_RUN_ID_SIZE];
	struct redis_revocation revocation = { .coupon = coupon, .run_id = run_id };
	int64_t seq = -1;

	fault_point(FAULT_REVOKE_COMMITTED);
	if (redis_client_process(redis, run_id, &(int64_t){ 0 }))
		redis_fail(redis);
	for (int i = 0; i < TRIES; i++) {
		if (missing_read(db, redis, &revocation))
			return;
		switch (all_mark(db, redis, &revocation, &seq)) {
		case REDIS_REVOKED_FAILED:
			redis_fail(redis);
			return;
		case REDIS_REVOKED_DONE:
			if (seq >= 0)
				cut_record(db, &revocation, seq);
			return;
		case REDIS_REVOKED_MISSING:
			return;
		case REDIS_REVOKED_BEHIND:
			break;
		}
	}
	log_fatal(
		"Redis gets another copy of the coupon again and again: run the command once more");
}
