/*
 *	Redis ──users, in steps──▶ old enough, not in the outbox ──PostgreSQL──▶ without an outcome:
 *	                                                                         given up by name
 *
 * Then the receives of older generations that no slot names are given up by number. Each step is a
 * statement of its own and may be repeated.
 */
#include "ctl/command/lost.h"

#include "common/clock.h"
#include "common/id.h"
#include "common/log.h"
#include "common/receive.h"
#include "ctl/locks.h"
#include "ctl/rabbit.h"
#include "ctl/slots.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCAN_COUNT 256
#define OLDER_S 60
#define OLDER_MAX_S 31536000

struct lost {
	struct db *db;
	struct redis_client *redis;
	int64_t coupon;
	int64_t before_ms; /* only receives accepted before */
	int64_t generation;
	int64_t generation_older; /* the one before: receives in `known` have its numbers */
	int64_t named;
};

enum { USERS, SLOTS, BATCHES, INDEXES, GENERATIONS, TIMES, ARRAYS };

static const enum postgres_type types[ARRAYS] = {
	[USERS] = POSTGRES_INT8,   [SLOTS] = POSTGRES_INT2,       [BATCHES] = POSTGRES_UUID,
	[INDEXES] = POSTGRES_INT2, [GENERATIONS] = POSTGRES_INT4, [TIMES] = POSTGRES_INT8,
};

static redisReply *member_read(struct lost *lost, const char *command, enum coupon_key which,
			       const char *member)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(lost->coupon, which, key), member };
	redisReply *reply = redis_client_call(lost->redis, 3, argv);

	store_redis_check(lost->redis, reply != NULL);
	return reply;
}

static int is_member(struct lost *lost, const char *command, enum coupon_key which,
		     const char *member)
{
	redisReply *reply = member_read(lost, command, which, member);
	int is = reply->integer == 1;

	freeReplyObject(reply);
	return is;
}

static int is_in_outbox(struct lost *lost, const struct slot *slot)
{
	char batch[ULID_SIZE];

	return is_member(lost, "HEXISTS", COUPON_KEY_OUTBOX, ulid_format(&slot->batch, batch));
}

static int64_t generation_of(struct lost *lost, const struct slot *slot)
{
	char batch[ULID_SIZE], member[ULID_SIZE + 8];

	snprintf(member, sizeof(member), "%s:%d", ulid_format(&slot->batch, batch), slot->index);
	return is_member(lost, "SISMEMBER", COUPON_KEY_KNOWN, member) ? lost->generation_older
								      : lost->generation;
}

static void arrays_fill(struct lost *lost, const struct slots *slots, int whole,
			struct postgres_array arrays[ARRAYS])
{
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_init(&arrays[i], types[i]);
	for (size_t i = 0; i < slots->n; i++) {
		const struct slot *slot = &slots->list[i];

		postgres_array_add_number(&arrays[USERS], slot->user);
		postgres_array_add_number(&arrays[SLOTS], slot->number);
		postgres_array_add_uuid(&arrays[BATCHES], &slot->batch);
		postgres_array_add_number(&arrays[INDEXES], slot->index);
		if (!whole)
			continue;
		postgres_array_add_number(&arrays[GENERATIONS], generation_of(lost, slot));
		postgres_array_add_number(&arrays[TIMES], ulid_time_ms(&slot->batch));
	}
}

/* Keeps the slots whose positions, from 1, PostgreSQL returned. */
static void slots_keep(struct slots *slots, const PGresult *ords)
{
	size_t n = 0;

	for (int row = 0; row < PQntuples(ords); row++)
		slots->list[n++] = slots->list[db_int(ords, row, "ord") - 1];
	slots->n = n;
}

static PGresult *slots_ask(struct lost *lost, const char *sql, int params_n,
			   const struct slots *slots)
{
	static const int order[2][6] = { { USERS, SLOTS, BATCHES, INDEXES },
					 { GENERATIONS, BATCHES, INDEXES, USERS, SLOTS, TIMES } };
	struct postgres_array arrays[ARRAYS];
	struct postgres_argument arguments[7] = { postgres_number(lost->coupon) };
	int whole = params_n == 7;
	PGresult *result;

	arrays_fill(lost, slots, whole, arrays);
	for (int i = 1; i < params_n; i++)
		arguments[i] = postgres_array(&arrays[order[whole][i - 1]]);
	result = db_query_arguments(lost->db, sql, params_n, arguments);
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_fini(&arrays[i]);
	return result;
}

static void slots_give_up(struct lost *lost, struct slots *slots)
{
	PGresult *ords = slots_ask(lost, sql_query_lost_candidates, 5, slots);
	size_t n = 0;

	slots_keep(slots, ords);
	PQclear(ords);
	for (size_t i = 0; i < slots->n; i++)
		if (!is_in_outbox(lost, &slots->list[i]))
			slots->list[n++] = slots->list[i];
	slots->n = n;
	if (n == 0)
		return;
	ords = slots_ask(lost, sql_query_receive_lost, 7, slots);
	slots_keep(slots, ords);
	PQclear(ords);
	for (size_t i = 0; i < slots->n; i++) {
		struct receive receive = { .coupon = lost->coupon,
					   .user = slots->list[i].user,
					   .batch = slots->list[i].batch,
					   .index = slots->list[i].index };
		char text[RECEIVE_SIZE];

		receive_format(&receive, text);
		printf("lost: receive %s, user %lld, slot %d\n", text,
		       (long long)slots->list[i].user, slots->list[i].number);
	}
	lost->named += (int64_t)slots->n;
}

static void slots_drop_young(struct lost *lost, struct slots *slots)
{
	size_t n = 0;

	for (size_t i = 0; i < slots->n; i++)
		if (ulid_time_ms(&slots->list[i].batch) < lost->before_ms)
			slots->list[n++] = slots->list[i];
	slots->n = n;
}

static void users_give_up(void *context, const redisReply *users)
{
	struct lost *lost = context;
	struct slots slots = { 0 };
	int64_t user;

	for (size_t i = 0; i + 1 < users->elements; i += 2) {
		const redisReply *id = users->element[i], *records = users->element[i + 1];

		/* Malformed records are left to the audit. */
		if (id_parse(id->str, id->len, &user) == 0)
			(void)slots_add_records(&slots, user, records->str, records->len);
	}
	slots_sort(&slots);
	slots_drop_young(lost, &slots);
	if (slots.n > 0)
		slots_give_up(lost, &slots);
	slots_fini(&slots);
}

/* The highest receive number of a generation that Redis has. */
static const char *high_of(struct lost *lost, const char *generation, char high[DB_NUMBER_SIZE])
{
	char field[DB_NUMBER_SIZE + 8];
	redisReply *reply;

	snprintf(field, sizeof(field), "high:%s", generation);
	reply = member_read(lost, "HGET", COUPON_KEY_COUPON, field);
	db_number(redis_reply_number(reply), high);
	freeReplyObject(reply);
	return high;
}

static void numbers_give_up(struct lost *lost)
{
	char coupon[DB_NUMBER_SIZE], high[DB_NUMBER_SIZE];
	const char *id = db_number(lost->coupon, coupon);
	PGresult *page = db_query(lost->db, sql_query_coupon_generation_page, 1, &id);

	for (int row = 0; row < PQntuples(page); row++) {
		const char *generation = db_text(page, row, "generation");
		PGresult *result;

		db_run(lost->db, "BEGIN");
		PQclear(db_query(lost->db, sql_query_coupon_lock, 1, &id));
		result = db_query(lost->db, sql_query_generation_lost, 3,
				  (const char *[]){ id, generation,
						    high_of(lost, generation, high) });
		db_run(lost->db, "COMMIT");
		if (PQntuples(result) == 1)
			printf("lost: %s receives of generation %s that nothing names\n",
			       db_text(result, 0, "lost_num"), generation);
		PQclear(result);
	}
	PQclear(page);
}

static void queues_need_empty(const char *url)
{
	struct broker *broker = broker_new(url);
	struct broker_look look;

	broker_look(broker, &look);
	if (!look.ok)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be queried: %s",
			  broker_error(broker));
	if (look.ready > 0 || look.dead > 0)
		log_fatal("the receive queue holds %lld messages and the dead-letter queue %lld: "
			  "these messages can still arrive",
			  (long long)look.ready, (long long)look.dead);
	broker_free(broker);
}

/* Where a lock or a time-out stops settling, workers hold receives that no queue shows. */
static void workers_need_hold_none(struct db *db)
{
	struct timespec pause = { .tv_sec = 0, .tv_nsec = 200000000 };
	struct locks locks = { .n = 0 };

	locks_look(&locks, db, clock_monotonic_ms());
	for (int i = 0; i < 6 && locks.n > 0; i++) {
		nanosleep(&pause, NULL);
		if (locks_look(&locks, db, clock_monotonic_ms()) > 0)
			log_fatal("another session has a transaction open that holds locks on "
				  "coupons or receives: receives that wait for it can still be "
				  "settled");
	}
	if (locks_workers_hold(db))
		log_fatal("a worker has put off receives that it could not settle yet, or is in "
			  "a long transaction: these receives can still be settled");
}

static void generations_read(struct lost *lost)
{
	char coupon[DB_NUMBER_SIZE];
	const char *id = db_number(lost->coupon, coupon);
	PGresult *row = store_coupon_row(lost->db, sql_query_coupon_show, lost->coupon), *page;

	lost->generation = lost->generation_older = db_int(row, 0, "generation");
	PQclear(row);
	page = db_query(lost->db, sql_query_coupon_generation_page, 1, &id);
	if (PQntuples(page) > 0)
		lost->generation_older = db_int(page, PQntuples(page) - 1, "generation");
	PQclear(page);
}

void lost_release(struct ctl *ctl, struct db *db)
{
	int64_t older_s = args_number(&ctl->args, "older-than-s", 0, OLDER_MAX_S, OLDER_S);
	struct lost lost = { .db = db,
			     .coupon = args_coupon(&ctl->args),
			     .before_ms = clock_wall_ms() - older_s * 1000 };

	queues_need_empty(ctl->config.amqp_url);
	workers_need_hold_none(db);
	lost.redis = store_redis_open(ctl);
	generations_read(&lost);
	store_hash_scan(lost.redis, lost.coupon, COUPON_KEY_USERS, SCAN_COUNT, users_give_up,
			&lost);
	numbers_give_up(&lost);
	printf("coupon %lld: %lld receives given up by name\n", (long long)lost.coupon,
	       (long long)lost.named);
	redis_client_free(lost.redis);
}
