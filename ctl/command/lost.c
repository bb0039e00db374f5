/*
 *	Redis ──users, in steps──▶ old enough, not in the outbox ──PostgreSQL──▶ without an outcome:
 *	                                                                         given up by name
 *
 * Then the receives of older generations that no slot names are given up by number. Each step is a
 * statement of its own and may be repeated.
 *
 * Neither a slot nor the set of known receives has the generation of a receive. One that is not
 * known is of the generation in Redis. One that is known is counted in the oldest generation that
 * has numbers left, without those of receives that can still arrive: the generations of receives in
 * the outbox are in their messages, and younger receives are of the latest generations.
 */
#include "ctl/command/lost.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/id.h"
#include "common/log/log.h"
#include "common/message/message.h"
#include "common/message/number.h"
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
#define OUTBOX_COUNT 32 /* entries; each may be 40 KB */
#define HIGH "high:"    /* field of a coupon: the highest number of an older generation */
#define OLDER_S 60
#define OLDER_MAX_S 31536000

/* An older generation. */
struct older {
	int64_t number;
	int64_t left; /* numbers without an outcome */
	int64_t owed; /* of these, numbers of receives that can still arrive */
};

struct lost {
	struct db *db;
	struct redis_client *redis;
	int64_t coupon;
	int64_t before_ms;   /* only receives accepted before */
	int64_t generation;  /* of receives that are not known */
	struct older *older; /* in the order of their numbers */
	size_t older_n;
	int64_t young; /* known receives that are too young to be given up */
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

static int is_known(struct lost *lost, const struct slot *slot)
{
	char batch[ULID_SIZE], member[ULID_SIZE + 8];

	snprintf(member, sizeof(member), "%s:%d", ulid_format(&slot->batch, batch), slot->index);
	return is_member(lost, "SISMEMBER", COUPON_KEY_KNOWN, member);
}

/* The generation to count a receive in that is given up. */
static int64_t generation_take(struct lost *lost, const struct slot *slot)
{
	if (!is_known(lost, slot))
		return lost->generation;
	for (size_t i = 0; i < lost->older_n; i++)
		if (lost->older[i].left > lost->older[i].owed) {
			lost->older[i].left--;
			return lost->older[i].number;
		}
	/* receive_lost() counts it where it can. */
	return lost->older_n > 0 ? lost->older[lost->older_n - 1].number : lost->generation;
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
		postgres_array_add_number(&arrays[GENERATIONS], generation_take(lost, slot));
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

/* Keeps the receives without an outcome. */
static void slots_keep_open(struct lost *lost, struct slots *slots)
{
	PGresult *ords = slots_ask(lost, sql_query_lost_candidates, 5, slots);

	slots_keep(slots, ords);
	PQclear(ords);
}

static void slots_drop_sent(struct lost *lost, struct slots *slots)
{
	size_t n = 0;

	for (size_t i = 0; i < slots->n; i++)
		if (!is_in_outbox(lost, &slots->list[i]))
			slots->list[n++] = slots->list[i];
	slots->n = n;
}

static void slots_drop_young(struct lost *lost, struct slots *slots)
{
	size_t n = 0;

	for (size_t i = 0; i < slots->n; i++)
		if (ulid_time_ms(&slots->list[i].batch) < lost->before_ms)
			slots->list[n++] = slots->list[i];
		else
			lost->young += is_known(lost, &slots->list[i]);
	slots->n = n;
}

static void slots_give_up(struct lost *lost, struct slots *slots)
{
	PGresult *ords;

	slots_keep_open(lost, slots);
	slots_drop_sent(lost, slots);
	slots_drop_young(lost, slots);
	if (slots->n == 0)
		return;
	ords = slots_ask(lost, sql_query_receive_lost, 7, slots);
	slots_keep(slots, ords);
	PQclear(ords);
	for (size_t i = 0; i < slots->n; i++) {
		char text[RECEIVE_SIZE];

		printf("lost: receive %s, user %lld, slot %d\n",
		       slot_receive_format(&slots->list[i], lost->coupon, text),
		       (long long)slots->list[i].user, slots->list[i].number);
	}
	lost->named += (int64_t)slots->n;
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
	if (slots.n > 0)
		slots_give_up(lost, &slots);
	slots_fini(&slots);
}

static struct older *older_find(struct lost *lost, int64_t number)
{
	for (size_t i = 0; i < lost->older_n; i++)
		if (lost->older[i].number == number)
			return &lost->older[i];
	return NULL;
}

/* Receives in the outbox will arrive. Messages that cannot be parsed will be dead-lettered. */
static void outbox_owe(void *context, const redisReply *entries)
{
	struct lost *lost = context;
	struct json_arena *arena = json_arena_new();
	struct message *message = malloc(sizeof(*message));
	const char *error;

	check(message != NULL);
	for (size_t i = 0; i + 1 < entries->elements; i += 2) {
		const redisReply *body = entries->element[i + 1];
		struct slots slots = { 0 };
		struct older *older;

		if (message_decode(arena, body->str, body->len, message, &error) ||
		    !(older = older_find(lost, message->generation)))
			continue;
		for (size_t j = 0; j < message->receives_n; j++)
			slots_add(&slots,
				  &(struct slot){ .user = message->receives[j].user,
						  .batch = message->batch,
						  .number = (int16_t)message->receives[j].slot,
						  .index = (int16_t)j });
		slots_keep_open(lost, &slots);
		older->owed += (int64_t)slots.n;
		slots_fini(&slots);
	}
	free(message);
	json_arena_free(arena);
}

/* Younger receives are of the latest generations: their numbers stay in flight. */
static void young_owe(struct lost *lost)
{
	for (size_t i = lost->older_n; i > 0 && lost->young > 0; i--) {
		struct older *older = &lost->older[i - 1];
		int64_t room = older->left - older->owed;
		int64_t n = room < lost->young ? room : lost->young;

		if (n > 0) {
			older->owed += n;
			lost->young -= n;
		}
	}
}

static void number_give_up(struct lost *lost, const struct older *older)
{
	char coupon[DB_NUMBER_SIZE], generation[DB_NUMBER_SIZE], owed[DB_NUMBER_SIZE];
	const char *id = db_number(lost->coupon, coupon);
	PGresult *result;

	db_run(lost->db, "BEGIN");
	PQclear(db_query(lost->db, sql_query_coupon_lock, 1, &id));
	result = db_query(lost->db, sql_query_generation_lost, 4,
			  (const char *[]){ id, db_number(older->number, generation), "0",
					    db_number(older->owed, owed) });
	db_run(lost->db, "COMMIT");
	if (PQntuples(result) == 1)
		printf("lost: %s receives of generation %s that nothing names\n",
		       db_text(result, 0, "lost_num"), generation);
	PQclear(result);
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

/*
 * Stores in PostgreSQL the highest numbers that Redis has of older generations, and reads the
 * generation in Redis.
 */
static void redis_read(struct lost *lost)
{
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL", coupon_key(lost->coupon, COUPON_KEY_COUPON, key) };
	redisReply *fields = redis_client_call(lost->redis, 2, hgetall);
	struct postgres_array generations = { .type = POSTGRES_INT4 },
			      seqs = { .type = POSTGRES_INT8 };
	const struct postgres_argument arguments[] = { postgres_number(lost->coupon),
						       postgres_array(&generations),
						       postgres_array(&seqs) };
	int64_t generation, seq;

	store_redis_check(lost->redis, fields != NULL);
	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		const char *name = fields->element[i]->str, *value = fields->element[i + 1]->str;

		if (strcmp(name, "generation") == 0 &&
		    number_parse(value, INT32_MAX, &generation) == 0 &&
		    generation < lost->generation)
			lost->generation = generation;
		if (strncmp(name, HIGH, strlen(HIGH)) != 0 ||
		    number_parse(name + strlen(HIGH), INT32_MAX, &generation) ||
		    number_parse(value, INT64_MAX, &seq))
			continue;
		postgres_array_add_number(&generations, generation);
		postgres_array_add_number(&seqs, seq);
	}
	freeReplyObject(fields);
	PQclear(db_query_arguments(lost->db, sql_query_generation_seen, 3, arguments));
	postgres_array_fini(&generations);
	postgres_array_fini(&seqs);
}

static void generations_read(struct lost *lost)
{
	char coupon[DB_NUMBER_SIZE];
	const char *id = db_number(lost->coupon, coupon);
	PGresult *row = store_coupon_row(lost->db, sql_query_coupon_show, lost->coupon), *page;

	lost->generation = db_int(row, 0, "generation");
	PQclear(row);
	redis_read(lost);
	page = db_query(lost->db, sql_query_coupon_generation_page, 1, &id);
	lost->older_n = (size_t)PQntuples(page);
	lost->older = calloc(lost->older_n + 1, sizeof(*lost->older));
	check(lost->older != NULL);
	for (int i = 0; i < PQntuples(page); i++)
		lost->older[i] = (struct older){ .number = db_int(page, i, "generation"),
						 .left = db_int(page, i, "seq_seen") -
							 db_int(page, i, "settled_num") };
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
	store_hash_scan(lost.redis, lost.coupon, COUPON_KEY_OUTBOX, OUTBOX_COUNT, outbox_owe,
			&lost);
	store_hash_scan(lost.redis, lost.coupon, COUPON_KEY_USERS, SCAN_COUNT, users_give_up,
			&lost);
	young_owe(&lost);
	for (size_t i = 0; i < lost.older_n; i++)
		number_give_up(&lost, &lost.older[i]);
	printf("coupon %lld: %lld receives given up by name\n", (long long)lost.coupon,
	       (long long)lost.named);
	free(lost.older);
	redis_client_free(lost.redis);
}
