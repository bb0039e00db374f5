/* What an audit reads in both stores. It changes nothing in any. */
#include "ctl/audit/audit.h"

#include "common/check.h"
#include "common/log/log.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_USERS 250 /* of one slot each: Redis needs about 0.3 ms */
#define STEP_LEAST 20
#define EXACT_WAIT_MS 100

void row_read(const struct pass *pass, struct audit_row *row, struct generations *generations)
{
	struct db *db = pass->audit->db;
	PGresult *result = store_coupon_row(db, sql_query_audit_coupon, pass->coupon);

	*row = (struct audit_row){ .version = column_number(result, 0, "version"),
				   .total = column_number(result, 0, "total_num"),
				   .issued = column_number(result, 0, "issued_num"),
				   .limit = column_number(result, 0, "user_limit"),
				   .begin_ms = column_number(result, 0, "begin_ms"),
				   .end_ms = column_number(result, 0, "end_ms"),
				   .generation = column_number(result, 0, "generation"),
				   .seq_seen = column_number(result, 0, "seq_seen"),
				   .settled = column_number(result, 0, "settled_num"),
				   .idle_ms = INT64_MAX,
				   .rejected = column_number(result, 0, "rejected_num"),
				   .tombstones = column_number(result, 0, "tombstone_num"),
				   .unfreed = column_number(result, 0, "unfreed_num") };
	if (!db_is_null(result, 0, "idle_ms"))
		row->idle_ms = column_number(result, 0, "idle_ms");
	row->settled_sum = row->settled + column_number(result, 0, "older_settled_num");
	snprintf(row->status, sizeof(row->status), "%s", column_text(result, 0, "status"));
	PQclear(result);
	if (!generations)
		return;
	generations->n = 0;
	*generation_find(generations,
			 row->generation) = (struct generation){ .number = row->generation,
								 .high = row->seq_seen,
								 .settled = row->settled,
								 .idle_ms = row->idle_ms };
	result = db_ask(db, sql_query_coupon_generation_page, postgres_number(pass->coupon));
	for (int i = 0; i < PQntuples(result); i++)
		generation_add_row(generations, result, i, 0);
	PQclear(result);
}

void slot_read(const PGresult *rows, int row, int first, struct slot *slot)
{
	if (slot_of_row(slot, rows, row, first))
		log_fatal("PostgreSQL: a user is no valid id, or a batch is not a uuid");
}

PGresult *outcomes_read(const struct pass *pass, const struct slot *slots, size_t n)
{
	PGresult *outcomes = store_slots_ask(pass->audit->db, sql_query_audit_outcomes,
					     pass->coupon, slots, n);

	check((size_t)PQntuples(outcomes) == n);
	return outcomes;
}

size_t records_step(int64_t limit)
{
	int64_t step = limit > 0 ? 2 * STEP_USERS / limit : STEP_USERS;

	return step > STEP_USERS ? STEP_USERS : step < STEP_LEAST ? STEP_LEAST : (size_t)step;
}

redisReply *records_read(const struct pass *pass, const struct slot *slots, size_t n)
{
	struct redis_client *redis = pass->audit->redis;

	return store_reply(redis, coupon_records(redis, pass->coupon, slots, n));
}

/* The keys of a coupon, their types, and what of each is read. */
static const struct {
	enum coupon_key key;
	const char *type, *command;
} keys[] = { { COUPON_KEY_COUPON, "hash", "HGETALL" }, { COUPON_KEY_USERS, "hash", "HLEN" },
	     { COUPON_KEY_OUTBOX, "hash", "HLEN" },    { COUPON_KEY_SEEN, "hash", "HGETALL" },
	     { COUPON_KEY_KNOWN, "set", "SCARD" },     { COUPON_KEY_DEAD, "set", "SCARD" } };

#define KEYS (sizeof(keys) / sizeof(keys[0]))
/* The replies: the types first. */
enum { AT_COUPON = KEYS, AT_USERS, AT_OUTBOX, AT_SEEN, AT_KNOWN, AT_DEAD, AT_TIME, AT_KEEPER, ALL };

static void types_check(const struct pass *pass, struct cut *cut, const redisReply *reply,
			int report)
{
	char key[COUPON_KEY_SIZE];

	for (size_t i = 0; i < KEYS; i++) {
		const char *type = reply->element[i]->str;

		if (strcmp(type, "none") == 0 || strcmp(type, keys[i].type) == 0)
			continue;
		cut->bad = 1;
		if (report)
			finding_add(pass, FINDING_KEY_TYPE, NULL,
				    "key %s in Redis is a %s, and has to be a %s",
				    coupon_key(pass->coupon, keys[i].key, key), type, keys[i].type);
	}
}

/* Whether a holder of the keeper's lock, a field KIND:TOKEN, has a lease that has not ended. */
static int keeper_holds(const redisReply *lock, int64_t now_ms)
{
	if (lock->type != REDIS_REPLY_ARRAY)
		return 0;
	for (size_t i = 0; i + 1 < lock->elements; i += 2)
		if (strchr(lock->element[i]->str, ':') &&
		    strtoll(lock->element[i + 1]->str, NULL, 10) > now_ms)
			return 1;
	return 0;
}

void cut_read(const struct pass *pass, struct cut *cut, struct generations *generations, int report)
{
	struct redis_client *redis = pass->audit->redis;
	char key[KEYS][COUPON_KEY_SIZE];
	struct redis_words commands[ALL] = {
		[AT_TIME] = { { "TIME" } }, [AT_KEEPER] = { { "HGETALL", KEEPER_LOCK_KEY } }
	};
	redisReply *reply, **at;

	for (size_t i = 0; i < KEYS; i++) {
		coupon_key(pass->coupon, keys[i].key, key[i]);
		commands[i] = (struct redis_words){ { "TYPE", key[i] } };
		commands[KEYS + i] = (struct redis_words){ { keys[i].command, key[i] } };
	}
	memset(cut, 0, sizeof(*cut));
	reply = store_reply(redis, redis_client_transaction(redis, commands, ALL));
	at = reply->element;
	types_check(pass, cut, reply, report);
	check(redis_reply_time_ms(at[AT_TIME], &cut->at_ms) == 0);
	cut->users = at[AT_USERS]->integer;
	cut->outbox = at[AT_OUTBOX]->integer;
	cut->known = at[AT_KNOWN]->integer;
	cut->keeper = keeper_holds(at[AT_KEEPER], cut->at_ms);
	cut->present = strcmp(at[0]->str, "none") != 0;
	if (cut->present && at[AT_COUPON]->type == REDIS_REPLY_ARRAY) {
		redis_coupon_parse(&cut->coupon, at[AT_COUPON]);
		cut->bad |= cut->coupon.bad_n > 0;
		for (int i = 0; report && i < cut->coupon.bad_n; i++)
			finding_add(pass, FINDING_COUPON_MALFORMED, NULL,
				    "field %s of the coupon in Redis %s", cut->coupon.bad[i].field,
				    cut->coupon.bad[i].what);
		cut->held = redis_coupon_is_held(&cut->coupon);
		cut->verified = strcmp(cut->coupon.run_id, pass->audit->run_id) == 0;
		if (generations && !cut->bad)
			generations_raise(generations, at[AT_COUPON], at[AT_SEEN]);
	}
	freeReplyObject(reply);
}

void cut_read_exact(const struct pass *pass, struct cut *cut, struct generations *generations)
{
	struct cut next;
	int64_t until_ms;

	cut_read(pass, cut, generations, 1);
	for (until_ms = cut->at_ms + EXACT_WAIT_MS;
	     cut->present && !cut->bad && cut->at_ms < until_ms; *cut = next) {
		do
			cut_read(pass, &next, generations, 0);
		while (next.at_ms == cut->at_ms);
		if (!next.present || next.bad)
			return;
		if (next.coupon.seq == cut->coupon.seq &&
		    next.coupon.generation == cut->coupon.generation) {
			cut->exact = 1;
			return;
		}
	}
}
