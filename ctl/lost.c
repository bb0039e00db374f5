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
#include "ctl/lost.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/client.h"
#include "common/redis/redis.h"
#include "ctl/ctl.h"
#include "ctl/postgres.h"
#include "ctl/rabbit.h"
#include "ctl/slots.h"
#include "ctl/store.h"
#include "embed.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A generation before the current one. */
struct older {
	int64_t number;
	int64_t left; /* numbers without an outcome */
	int64_t owed; /* of these, numbers of receives that can still arrive */
};

struct lost_generations {
	int64_t coupon;
	int64_t current;     /* of receives that are not known: the one in Redis */
	struct older *older; /* in the order of their numbers */
	size_t older_n;
};

struct lost_receives {
	struct db *db;
	struct redis_client *redis;
	int64_t coupon;
	int64_t before_ms; /* only receives accepted before */
	struct lost_generations *generations;
	int64_t young; /* result: known receives that are too young to be given up */
	int64_t named; /* result: receives given up */
};

/* Stores the highest numbers of older generations in PostgreSQL, and lowers `current`. */
static void redis_read(struct lost_generations *generations, struct db *db,
		       struct redis_client *redis)
{
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL",
				  coupon_key(generations->coupon, COUPON_KEY_COUPON, key) };
	redisReply *fields = redis_client_call(redis, 2, hgetall);
	struct postgres_array numbers = { .type = POSTGRES_INT4 }, seqs = { .type = POSTGRES_INT8 };
	const struct postgres_argument arguments[] = { postgres_number(generations->coupon),
						       postgres_array(&numbers),
						       postgres_array(&seqs) };
	int64_t number, seq;

	store_redis_check(redis, fields != NULL);
	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		const char *name = fields->element[i]->str, *value = fields->element[i + 1]->str;

		if (strcmp(name, "generation") == 0 &&
		    number_parse(value, INT32_MAX, &number) == 0 && number < generations->current)
			generations->current = number;
		if (redis_reply_high(fields->element[i], fields->element[i + 1], &number, &seq) <=
		    0)
			continue;
		postgres_array_add_number(&numbers, number);
		postgres_array_add_number(&seqs, seq);
	}
	freeReplyObject(fields);
	PQclear(db_query_arguments(db, sql_query_generation_seen, 3, arguments));
	postgres_array_fini(&numbers);
	postgres_array_fini(&seqs);
}

/* Stores in PostgreSQL the highest numbers that only Redis has, then reads. */
static void lost_generations_read(struct lost_generations *generations, struct db *db,
				  struct redis_client *redis, int64_t coupon)
{
	char text[DB_NUMBER_SIZE];
	const char *id = db_number(coupon, text);
	PGresult *row = store_coupon_row(db, sql_query_coupon_show, coupon), *page;

	*generations = (struct lost_generations){ .coupon = coupon,
						  .current = db_int(row, 0, "generation") };
	PQclear(row);
	redis_read(generations, db, redis);
	page = db_query(db, sql_query_coupon_generation_page, 1, &id);
	generations->older_n = (size_t)PQntuples(page);
	generations->older = calloc(generations->older_n + 1, sizeof(*generations->older));
	check(generations->older != NULL);
	for (int i = 0; i < PQntuples(page); i++)
		generations->older[i] = (struct older){ .number = db_int(page, i, "generation"),
							.left = db_int(page, i, "seq_seen") -
								db_int(page, i, "settled_num") };
	PQclear(page);
}

static void lost_generations_fini(struct lost_generations *generations)
{
	free(generations->older);
}

static struct older *lost_generations_find(struct lost_generations *generations, int64_t number)
{
	for (size_t i = 0; i < generations->older_n; i++)
		if (generations->older[i].number == number)
			return &generations->older[i];
	return NULL;
}

/* The generation to count a known receive in that is given up. */
static int64_t lost_generations_take(struct lost_generations *generations)
{
	struct older *older = generations->older;

	for (size_t i = 0; i < generations->older_n; i++)
		if (older[i].left > older[i].owed) {
			older[i].left--;
			return older[i].number;
		}
	/* receive_lost() counts it where it can. */
	return generations->older_n > 0 ? older[generations->older_n - 1].number
					: generations->current;
}

/* `n` receives of the latest generations are too young: their numbers stay in flight. */
static void lost_generations_owe(struct lost_generations *generations, int64_t n)
{
	for (size_t i = generations->older_n; i > 0 && n > 0; i--) {
		struct older *older = &generations->older[i - 1];
		int64_t room = older->left - older->owed;
		int64_t taken = room < n ? room : n;

		if (taken > 0) {
			older->owed += taken;
			n -= taken;
		}
	}
}

static void older_give_up(const struct older *older, const char *coupon, struct db *db)
{
	char number[DB_NUMBER_SIZE], owed[DB_NUMBER_SIZE];
	PGresult *result;

	db_run(db, "BEGIN");
	PQclear(db_query(db, sql_query_coupon_lock, 1, &coupon));
	result = db_query(db, sql_query_generation_lost, 4,
			  (const char *[]){ coupon, db_number(older->number, number), "0",
					    db_number(older->owed, owed) });
	db_run(db, "COMMIT");
	if (PQntuples(result) == 1)
		printf("lost: %s receives of generation %s that nothing names\n",
		       db_text(result, 0, "lost_num"), number);
	PQclear(result);
}

/* Gives up the numbers that are left, except those that are owed. */
static void lost_generations_give_up(const struct lost_generations *generations, struct db *db)
{
	char coupon[DB_NUMBER_SIZE];

	for (size_t i = 0; i < generations->older_n; i++)
		older_give_up(&generations->older[i], db_number(generations->coupon, coupon), db);
}

#define SCAN_COUNT 256

enum { USERS, SLOTS, BATCHES, INDEXES, GENERATIONS, TIMES, ARRAYS };

static const enum postgres_type types[ARRAYS] = {
	[USERS] = POSTGRES_TEXT,   [SLOTS] = POSTGRES_INT2,       [BATCHES] = POSTGRES_UUID,
	[INDEXES] = POSTGRES_INT2, [GENERATIONS] = POSTGRES_INT4, [TIMES] = POSTGRES_INT8,
};

static redisReply *member_read(struct lost_receives *lost, const char *command,
			       enum coupon_key which, const char *member)
{
	char key[COUPON_KEY_SIZE];
	const char *argv[] = { command, coupon_key(lost->coupon, which, key), member };
	redisReply *reply = redis_client_call(lost->redis, 3, argv);

	store_redis_check(lost->redis, reply != NULL);
	return reply;
}

static int is_member(struct lost_receives *lost, const char *command, enum coupon_key which,
		     const char *member)
{
	redisReply *reply = member_read(lost, command, which, member);
	int is = reply->integer == 1;

	freeReplyObject(reply);
	return is;
}

static int is_in_outbox(struct lost_receives *lost, const struct slot *slot)
{
	char batch[ULID_SIZE];

	return is_member(lost, "HEXISTS", COUPON_KEY_OUTBOX, ulid_format(&slot->batch, batch));
}

static int is_known(struct lost_receives *lost, const struct slot *slot)
{
	char batch[ULID_SIZE], member[ULID_SIZE + 8];

	snprintf(member, sizeof(member), "%s:%d", ulid_format(&slot->batch, batch), slot->index);
	return is_member(lost, "SISMEMBER", COUPON_KEY_KNOWN, member);
}

static void arrays_fill(struct lost_receives *lost, const struct slots *slots, int whole,
			struct postgres_array arrays[ARRAYS])
{
	for (int i = 0; i < ARRAYS; i++)
		postgres_array_init(&arrays[i], types[i]);
	for (size_t i = 0; i < slots->n; i++) {
		const struct slot *slot = &slots->list[i];

		postgres_array_add_text(&arrays[USERS], slot->user.text, slot->user.len);
		postgres_array_add_number(&arrays[SLOTS], slot->number);
		postgres_array_add_uuid(&arrays[BATCHES], &slot->batch);
		postgres_array_add_number(&arrays[INDEXES], slot->index);
		if (!whole)
			continue;
		postgres_array_add_number(&arrays[GENERATIONS],
					  is_known(lost, slot)
						  ? lost_generations_take(lost->generations)
						  : lost->generations->current);
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

static PGresult *slots_ask(struct lost_receives *lost, const char *sql, int params_n,
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
static void slots_keep_open(struct lost_receives *lost, struct slots *slots)
{
	PGresult *ords = slots_ask(lost, sql_query_lost_candidates, 5, slots);

	slots_keep(slots, ords);
	PQclear(ords);
}

static void slots_drop_sent(struct lost_receives *lost, struct slots *slots)
{
	size_t n = 0;

	for (size_t i = 0; i < slots->n; i++)
		if (!is_in_outbox(lost, &slots->list[i]))
			slots->list[n++] = slots->list[i];
	slots->n = n;
}

static void slots_drop_young(struct lost_receives *lost, struct slots *slots)
{
	size_t n = 0;

	for (size_t i = 0; i < slots->n; i++)
		if (ulid_time_ms(&slots->list[i].batch) < lost->before_ms)
			slots->list[n++] = slots->list[i];
		else
			lost->young += is_known(lost, &slots->list[i]);
	slots->n = n;
}

static void slots_give_up(struct lost_receives *lost, struct slots *slots)
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

		printf("lost: receive %s, user %s, slot %d\n",
		       slot_receive_format(&slots->list[i], lost->coupon, text),
		       slots->list[i].user.text, slots->list[i].number);
	}
	lost->named += (int64_t)slots->n;
}

static void users_give_up(void *context, const redisReply *users)
{
	struct lost_receives *lost = context;
	struct slots slots = { 0 };
	struct user_id user;

	for (size_t i = 0; i + 1 < users->elements; i += 2) {
		const redisReply *id = users->element[i], *records = users->element[i + 1];

		/* Malformed records are left to the audit. */
		if (user_id_parse(&user, id->str, id->len) == 0)
			(void)slots_add_records(&slots, &user, records->str, records->len);
	}
	slots_sort(&slots);
	if (slots.n > 0)
		slots_give_up(lost, &slots);
	slots_fini(&slots);
}

/* Receives in the outbox will arrive. Messages that cannot be read will be dead-lettered. */
static void message_owe(void *context, const struct message *message)
{
	struct lost_receives *lost = context;
	struct older *older = lost_generations_find(lost->generations, message->generation);
	struct slots slots = { 0 };

	if (!older)
		return;
	for (size_t i = 0; i < message->receives_n; i++)
		slots_add(&slots, &(struct slot){ .user = message->receives[i].user,
						  .batch = message->batch,
						  .number = (int16_t)message->receives[i].slot,
						  .index = (int16_t)i });
	slots_keep_open(lost, &slots);
	older->owed += (int64_t)slots.n;
	slots_fini(&slots);
}

/* Adds the receives in the outbox to what the older generations owe. */
static void lost_receives_owe(struct lost_receives *lost)
{
	outbox_scan(lost->redis, lost->coupon, message_owe, lost);
}

/* Each in a statement of some users, which may be repeated; prints each. */
static void lost_receives_give_up(struct lost_receives *lost)
{
	store_hash_scan(lost->redis, lost->coupon, COUPON_KEY_USERS, SCAN_COUNT, users_give_up,
			lost);
}

#define OLDER_S 60
#define OLDER_MAX_S 31536000

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

void lost_release(struct ctl *ctl, struct db *db)
{
	int64_t older_s = args_number(&ctl->args, "older-than-s", 0, OLDER_MAX_S, OLDER_S);
	struct lost_generations generations;
	struct lost_receives receives = { .db = db,
					  .coupon = args_coupon(&ctl->args),
					  .before_ms = clock_wall_ms() - older_s * 1000,
					  .generations = &generations };

	queues_need_empty(ctl->config.amqp_url);
	workers_need_hold_none(db);
	receives.redis = store_redis_open(ctl);
	lost_generations_read(&generations, db, receives.redis, receives.coupon);
	lost_receives_owe(&receives);
	lost_receives_give_up(&receives);
	lost_generations_owe(&generations, receives.young);
	lost_generations_give_up(&generations, db);
	printf("coupon %lld: %lld receives given up by name\n", (long long)receives.coupon,
	       (long long)receives.named);
	lost_generations_fini(&generations);
	redis_client_free(receives.redis);
}
