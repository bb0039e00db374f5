#include "ctl/audit/stores.h"

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

static int64_t number_or(const PGresult *result, int row, const char *column, int64_t none)
{
	return db_is_null(result, row, column) ? none : db_int(result, row, column);
}

void row_read(struct db *db, int64_t coupon, struct audit_row *row)
{
	PGresult *result = db_ask(db, sql_query_audit_coupon, postgres_number(coupon));

	memset(row, 0, sizeof(*row));
	if (PQntuples(result) > 0) {
		row->known = 1;
		snprintf(row->status, sizeof(row->status), "%s", db_text(result, 0, "status"));
		row->version = db_int(result, 0, "version");
		row->total = db_int(result, 0, "total_num");
		row->issued = db_int(result, 0, "issued_num");
		row->limit = db_int(result, 0, "user_limit");
		row->begin_ms = db_int(result, 0, "begin_ms");
		row->end_ms = db_int(result, 0, "end_ms");
		row->generation = db_int(result, 0, "generation");
		row->seq_seen = db_int(result, 0, "seq_seen");
		row->settled = db_int(result, 0, "settled_num");
		row->settled_sum = row->settled + db_int(result, 0, "older_settled_num");
		row->idle_ms = number_or(result, 0, "idle_ms", INT64_MAX);
		row->rejected = db_int(result, 0, "rejected_num");
		row->tombstones = db_int(result, 0, "tombstone_num");
		row->unreleased = db_int(result, 0, "unreleased_num");
	}
	PQclear(result);
}

void generations_read(struct db *db, int64_t coupon, const struct audit_row *row,
		      struct generations *generations)
{
	PGresult *result = db_ask(db, sql_query_coupon_generation_page, postgres_number(coupon));

	generations->n = 0;
	*generation_find(generations,
			 row->generation) = (struct generation){ .number = row->generation,
								 .high = row->seq_seen,
								 .settled = row->settled,
								 .idle_ms = row->idle_ms };
	for (int i = 0; i < PQntuples(result); i++)
		generation_add_row(generations, result, i, 0);
	PQclear(result);
}

void slot_read(const PGresult *rows, int row, int first, struct slot *slot)
{
	if (slot_of_row(slot, rows, row, first))
		log_fatal("PostgreSQL: a user is no valid id, or a batch is not a uuid");
}

void outcomes_read(struct db *db, int64_t coupon, const struct slot *slots, size_t n,
		   struct outcome *outcomes)
{
	struct slot_arrays arrays;
	PGresult *result;

	check(n <= COUPON_SLOTS_MAX);
	if (n == 0)
		return;
	slot_arrays_init(&arrays);
	slot_arrays_add(&arrays, slots, n);
	result = db_ask(db, sql_query_audit_outcomes, postgres_number(coupon),
			postgres_array(&arrays.users), postgres_array(&arrays.numbers),
			postgres_array(&arrays.batches), postgres_array(&arrays.indexes));
	slot_arrays_fini(&arrays);
	check((size_t)PQntuples(result) == n);
	for (int i = 0; i < (int)n; i++) {
		outcomes[i] = (struct outcome){
			.issued_ms = number_or(result, i, "issued_ms", -1),
			.rejected_ms = number_or(result, i, "rejected_ms", -1),
			.is_released = db_is_true(result, i, "is_released"),
			.is_late = db_is_true(result, i, "is_late"),
			.is_held = !db_is_null(result, i, "holder_batch"),
		};
		snprintf(outcomes[i].tail, sizeof(outcomes[i].tail), "%s",
			 db_text(result, i, "holder_key"));
	}
	PQclear(result);
}

size_t records_step(int64_t limit)
{
	int64_t step = limit > 0 ? 2 * STEP_USERS / limit : STEP_USERS;

	return step > STEP_USERS ? STEP_USERS : step < STEP_LEAST ? STEP_LEAST : (size_t)step;
}

redisReply *records_read(const struct audit *audit, int64_t coupon, const struct slot *slots,
			 size_t n)
{
	redisReply *reply = coupon_records(audit->redis, coupon, slots, n);

	store_redis_check(audit->redis, reply != NULL);
	return reply;
}

void has_read(const struct audit *audit, int64_t coupon, enum coupon_key which,
	      const struct slot *slots, size_t n, char *has)
{
	store_redis_check(audit->redis,
			  coupon_has(audit->redis, coupon, which, slots, n, has) == 0);
}

/* For a malformed key or field. */
struct malformed {
	struct audit *audit;
	int64_t coupon;
};

static void field_add(void *context, const char *field, const char *what)
{
	const struct malformed *malformed = context;

	finding_add(&malformed->audit->findings, FINDING_COUPON_MALFORMED, malformed->coupon, NULL,
		    "field %s of the coupon in Redis %s", field, what);
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

static void types_check(struct audit *audit, int64_t coupon, struct cut *cut,
			const redisReply *reply, int report)
{
	char key[COUPON_KEY_SIZE];

	for (size_t i = 0; i < KEYS; i++) {
		const char *type = reply->element[i]->str;

		if (strcmp(type, "none") == 0 || strcmp(type, keys[i].type) == 0)
			continue;
		cut->bad = 1;
		if (report)
			finding_add(&audit->findings, FINDING_KEY_TYPE, coupon, NULL,
				    "key %s in Redis is a %s, and has to be a %s",
				    coupon_key(coupon, keys[i].key, key), type, keys[i].type);
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

void cut_read(struct audit *audit, int64_t coupon, struct cut *cut, struct generations *generations,
	      int report)
{
	char key[KEYS][COUPON_KEY_SIZE];
	struct redis_words commands[ALL] = {
		[AT_TIME] = { { "TIME" } }, [AT_KEEPER] = { { "HGETALL", KEEPER_LOCK_KEY } }
	};
	redisReply *reply, **at;

	for (size_t i = 0; i < KEYS; i++) {
		coupon_key(coupon, keys[i].key, key[i]);
		commands[i] = (struct redis_words){ { "TYPE", key[i] } };
		commands[KEYS + i] = (struct redis_words){ { keys[i].command, key[i] } };
	}
	memset(cut, 0, sizeof(*cut));
	reply = redis_client_transaction(audit->redis, commands, ALL);
	store_redis_check(audit->redis, reply != NULL);
	at = reply->element;
	types_check(audit, coupon, cut, reply, report);
	check(redis_reply_time_ms(at[AT_TIME], &cut->at_ms) == 0);
	cut->users = at[AT_USERS]->integer;
	cut->outbox = at[AT_OUTBOX]->integer;
	cut->known = at[AT_KNOWN]->integer;
	cut->keeper = keeper_holds(at[AT_KEEPER], cut->at_ms);
	cut->present = strcmp(at[0]->str, "none") != 0;
	if (cut->present && at[AT_COUPON]->type == REDIS_REPLY_ARRAY) {
		cut->bad |= redis_coupon_parse(&cut->coupon, at[AT_COUPON],
					       report ? field_add : NULL,
					       &(struct malformed){ audit, coupon }) > 0;
		cut->held = redis_coupon_is_held(&cut->coupon);
		cut->verified = strcmp(cut->coupon.run_id, audit->run_id) == 0;
		if (generations && !cut->bad)
			(void)generations_raise(generations, at[AT_COUPON], at[AT_SEEN]);
	}
	freeReplyObject(reply);
}

void cut_read_exact(struct audit *audit, int64_t coupon, struct cut *cut,
		    struct generations *generations)
{
	struct cut next;
	int64_t until_ms;

	cut_read(audit, coupon, cut, generations, 1);
	for (until_ms = cut->at_ms + EXACT_WAIT_MS;
	     cut->present && !cut->bad && cut->at_ms < until_ms; *cut = next) {
		do
			cut_read(audit, coupon, &next, generations, 0);
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

int64_t cut_taken(const struct cut *cut)
{
	const struct redis_coupon *c = &cut->coupon;

	return c->total - c->stock - c->reserved - c->lost;
}
