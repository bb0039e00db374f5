/*
 * couponctl rebuild: requests that the keeper compares a coupon in Redis with PostgreSQL, and
 * rebuilds it if anything differs. With --give-up-lost it first gives up receives:
 *
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
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "common/redis/redis_client.h"
#include "common/redis/redis.h"
#include "coupon/copies.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/rabbit.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCAN_COUNT 256
#define OLDER_S 60
#define OLDER_MAX_S 31536000
#define WAIT_S 60
#define WAIT_MAX_S 3600
#define POLL_US 20000
#define PROGRESS_MS 2000

struct lost {
	struct db *db;
	struct redis_client *redis;
	int64_t coupon;
	int64_t before_ms;        /* only receives accepted before this time are given up */
	int64_t current;          /* generation of receives that are not known: the one in Redis */
	struct generations older; /* in the order of their numbers */
	int64_t young;            /* known receives that are too young to be given up */
	int64_t named;            /* receives given up by name */
	int as_json;
};

/* The generation in which a known receive is counted when it is given up. */
static int64_t generation_take(struct lost *lost)
{
	for (size_t i = 0; i < lost->older.n; i++) {
		struct generation *older = &lost->older.list[i];

		if (older->high > older->settled + older->owed) {
			older->settled++;
			return older->number;
		}
	}
	/* receive_lost() counts it where it can. */
	return lost->older.n > 0 ? lost->older.list[lost->older.n - 1].number : lost->current;
}

/*
 * Gives up receives of some users, in one statement, which may be repeated: those that are old
 * enough, are not in the outbox and have no outcome. Counts the known ones that are too young.
 * Malformed records are left to the audit.
 */
static int users_give_up(void *context, const redisReply *users)
{
	struct lost *lost = context;
	struct slots slots = { 0 };
	struct slot_arrays arrays;
	char *sent, *known, text[RECEIVE_SIZE];
	size_t n, kept = 0;

	slots_read(&slots, users);
	slots_sort(&slots);
	n = store_keep_open(lost->db, lost->coupon, slots.list, slots.n);
	sent = checked(calloc(n + 1, 1));
	known = checked(calloc(n + 1, 1));
	store_has(lost->redis, lost->coupon, COUPON_KEY_OUTBOX, slots.list, n, sent);
	store_has(lost->redis, lost->coupon, COUPON_KEY_KNOWN, slots.list, n, known);
	slot_arrays_init(&arrays);
	for (size_t i = 0; i < n; i++) {
		int64_t at_ms = ulid_time_ms(&slots.list[i].batch);

		if (sent[i])
			continue;
		if (at_ms >= lost->before_ms) {
			lost->young += known[i];
			continue;
		}
		postgres_array_add_number(&arrays.generations,
					  known[i] ? generation_take(lost) : lost->current);
		postgres_array_add_number(&arrays.times, at_ms);
		slots.list[kept++] = slots.list[i];
	}
	free(sent);
	free(known);

	n = store_lost_record(lost->db, lost->coupon, slots.list, kept, &arrays);
	if (n > 0)
		log_fatal_status(CTL_UNKNOWN);
	for (size_t i = 0; i < n; i++) {
		cJSON *object = output_object();

		output_text(object, "receive",
			    slot_receive_format(&slots.list[i], lost->coupon, text));
		output_text(object, "user", slots.list[i].user.text);
		output_number(object, "slot", slots.list[i].number);
		output_say(object, "lost: receive {receive}, user {user}, slot {slot}\n",
			   lost->as_json);
	}
	lost->named += (int64_t)n;
	slots_fini(&slots);
	return 0;
}

/*
 * Counts the receives of a message in the outbox, which will arrive. A message that cannot be read
 * will be dead-lettered.
 */
static int message_owe(void *context, const redisReply *batch, const struct message *message,
		       const char *error)
{
	struct lost *lost = context;
	struct slots slots = { 0 };

	(void)batch, (void)error;
	for (size_t i = 0; message && i < lost->older.n; i++) {
		if (lost->older.list[i].number != message->generation)
			continue;
		slots_add_message(&slots, message);
		lost->older.list[i].owed += (int64_t)store_keep_open(lost->db, lost->coupon,
								     slots.list, slots.n);
	}
	slots_fini(&slots);
	return 0;
}

/* Ends the process if receives without an outcome may still arrive. */
static void arrivals_refuse(const char *amqp_url, struct db *db, struct redis_client *redis)
{
	struct broker broker = { .url = amqp_url };
	struct locks locks = { .n = 0 };
	char text[STORE_GATEWAYS_SIZE];
	struct broker_look look;
	cJSON *gateways;

	broker_look(&broker, &look);
	if (!look.ok)
		log_fatal_as(CTL_AWAY, "RabbitMQ, which AMQP_URL names, cannot be queried: %s",
			     broker.error);
	if (look.ready > 0 || look.dead > 0)
		log_fatal("the receive queue holds %lld messages and the dead-letter queue %lld: "
			  "these messages can still arrive",
			  (long long)look.ready, (long long)look.dead);
	rabbit_connection_close(broker.connection);

	/* If a lock or a time-out stops settling, workers hold receives that no queue shows. */
	locks_look(&locks, db, clock_monotonic_ms());
	for (int i = 0; i < 6 && locks.n > 0; i++) {
		usleep(200000);
		if (locks_look(&locks, db, clock_monotonic_ms()) > 0)
			log_fatal("another session has a transaction open that holds locks on "
				  "coupons or receives: receives that wait for it can still be "
				  "settled");
	}
	if (locks_workers_hold(db))
		log_fatal("a worker has put off receives that it could not settle yet, or is in "
			  "a long transaction: these receives can still be settled");

	/* A gateway writes what it has to the outbox again, as soon as it can. */
	gateways = store_gateways_lacking(db, redis);
	if (cJSON_GetArraySize(gateways) > 0)
		log_fatal("gateways may have receives that neither RabbitMQ nor Redis has: %s. "
			  "Wait until they have written them again. One that does not run any "
			  "more counts for %d s after it was last heard of",
			  store_gateways_text(gateways, text), COPIES_SILENT_S);
	cJSON_Delete(gateways);
}

/* Gives up the receives of the coupon that can no longer arrive. */
static void give_up(struct ctl *ctl, struct db *db, struct redis_client *redis)
{
	int64_t older_s = args_number(&ctl->args, "older-than-s", 0, OLDER_MAX_S, OLDER_S), young;
	struct lost lost = { .db = db,
			     .redis = redis,
			     .coupon = args_id_argument(&ctl->args),
			     .before_ms = clock_wall_ms() - older_s * 1000,
			     .as_json = args_has(&ctl->args, "json") };
	struct generation *older;
	cJSON *object;
	PGresult *row, *page;
	redisReply *hash;
	struct postgres_array numbers = { .type = POSTGRES_INT4 },
			      highs = { .type = POSTGRES_INT8 };
	struct generations generations = { 0 };
	struct redis_coupon in_redis;

	arrivals_refuse(ctl->config.amqp_url, db, redis);

	/* Store in PostgreSQL the highest numbers that only Redis has, and read all generations. */
	row = store_coupon_row(lost.db, sql_query_coupon_show, lost.coupon);
	hash = store_reply(lost.redis, coupon_call(lost.redis, lost.coupon, "HGETALL",
						   COUPON_KEY_COUPON, NULL));
	lost.current = column_number(row, 0, "postgresql.generation");
	PQclear(row);
	redis_coupon_parse(&in_redis, hash);
	if (in_redis.generation > 0 && in_redis.generation < lost.current)
		lost.current = in_redis.generation;

	generations_raise(&generations, hash, NULL);
	freeReplyObject(hash);
	generations_arrays(&generations, &numbers, &highs);
	generations_fini(&generations);
	db_do(lost.db, sql_query_generation_seen, postgres_number(lost.coupon),
	      postgres_array(&numbers), postgres_array(&highs));
	postgres_array_fini(&numbers);
	postgres_array_fini(&highs);

	page = db_ask(lost.db, sql_query_coupon_generation_page, postgres_number(lost.coupon));
	for (int i = 0; i < PQntuples(page); i++)
		generation_add_row(&lost.older, page, i, 0);
	PQclear(page);

	store_redis_check(redis, outbox_scan(redis, lost.coupon, message_owe, &lost) == 0);
	store_redis_check(redis, coupon_scan(redis, lost.coupon, COUPON_KEY_USERS, SCAN_COUNT,
					     users_give_up, &lost) == 0);

	/*
	 * Receives that are too young are of the latest generations: their numbers stay in flight.
	 */
	young = lost.young;
	for (size_t i = lost.older.n; i > 0 && young > 0; i--) {
		int64_t room, taken;

		older = &lost.older.list[i - 1];
		room = older->high - older->settled - older->owed;
		taken = room < young ? room : young;
		if (taken > 0) {
			older->owed += taken;
			young -= taken;
		}
	}

	/* The numbers that are left, except those that are owed, are given up. */
	for (size_t i = 0; i < lost.older.n; i++) {
		PGresult *result;

		older = &lost.older.list[i];
		db_run(db, "BEGIN");
		db_do(db, sql_query_coupon_lock, postgres_number(lost.coupon));
		result = db_ask(db, sql_query_generation_lost, postgres_number(lost.coupon),
				postgres_number(older->number), postgres_number(0),
				postgres_number(older->owed));
		db_run(db, "COMMIT");
		if (PQntuples(result) == 1) {
			object = output_object();
			output_number(object, "lost", column_number(result, 0, "lost_num"));
			output_number(object, "generation", older->number);
			output_say(object,
				   "lost: {lost} receives of generation {generation} that nothing "
				   "names\n",
				   lost.as_json);
		}
		PQclear(result);
	}

	object = output_object();
	output_id(object, "coupon", lost.coupon);
	output_number(object, "given_up", lost.named);
	output_say(object, "coupon {coupon}: {given_up} receives given up by name\n", lost.as_json);
	generations_fini(&lost.older);
}

static int rebuild_run(struct ctl *ctl)
{
	int64_t wait_s = args_number(&ctl->args, "wait-s", 1, WAIT_MAX_S, WAIT_S);
	const char *coupon = ctl->args.argument;
	int64_t id = args_id_argument(&ctl->args), asked, until_ms, progress_ms;
	struct redis_filled filled;
	struct redis_client *redis;
	PGresult *row;
	cJSON *object;
	struct db *db;

	if (args_has(&ctl->args, "older-than-s") && !args_has(&ctl->args, "give-up-lost"))
		args_fail("--older-than-s is \"%s\": allowed only with --give-up-lost",
			  args_text(&ctl->args, "older-than-s"));
	db = store_postgres_open(ctl);
	store_by_set(db, ctl);
	redis = store_redis_open(ctl);
	behind_refuse(db, redis);
	if (args_has(&ctl->args, "give-up-lost"))
		give_up(ctl, db, redis);

	row = db_ask(db, sql_query_rebuild_ask, postgres_text(coupon));
	if (PQntuples(row) == 0)
		log_fatal("there is nothing to rebuild: coupon %s does not exist, is a draft, or "
			  "is closed and settled",
			  coupon);
	asked = column_number(row, 0, "rebuild_asked");
	PQclear(row);

	/* Waits until the keeper has done the request. */
	until_ms = clock_monotonic_ms() + wait_s * 1000;
	progress_ms = clock_monotonic_ms() + PROGRESS_MS;
	for (;;) {
		row = db_ask(db, sql_query_rebuild_state, postgres_text(coupon));
		if (PQntuples(row) == 1 && column_number(row, 0, "rebuild_done") >= asked)
			break;
		PQclear(row);
		if (clock_monotonic_ms() >= until_ms)
			log_fatal_as(CTL_UNKNOWN,
				     "no keeper has rebuilt coupon %s within %lld s: check that a "
				     "coupon-worker and Redis run. The request remains in place",
				     coupon, (long long)wait_s);
		if (clock_monotonic_ms() >= progress_ms) {
			progress_ms = clock_monotonic_ms() + PROGRESS_MS;
			if (redis_client_open(redis) == 0 &&
			    redis_coupon_filled(redis, id, &filled))
				fprintf(stderr, "%lld of %lld user coupons, about %lld s left\n",
					(long long)filled.filled, (long long)filled.rows,
					(long long)filled.left_s);
		}
		usleep(POLL_US);
	}

	object = output_object();
	output_text(object, "coupon", coupon);
	output_text(object, "result", column_text(row, 0, "rebuild_told"));
	output_say(object, "coupon {coupon}: {result}\n", args_has(&ctl->args, "json"));
	PQclear(row);
	redis_client_free(redis);
	db_close(db);
	return 0;
}

const struct command rebuild_command = {
	.name = "rebuild",
	.run = rebuild_run,
	.argument = "ID",
	.options = OPTIONS(
		OPTION("wait-s", "S", "time to wait for the keeper, 1 to 3600 s; default 60"),
		SWITCH("give-up-lost",
		       "first give up receives that can no longer arrive, and name each"),
		OPTION("older-than-s", "S",
		       "with --give-up-lost: give up only receives that were accepted longer ago, "
		       "0 to "
		       "31536000 s; default 60"),
		BY_OPTION),
	.summary = "compare a coupon in Redis with PostgreSQL, and correct it",
	.detail =
		"The keeper, a thread of coupon-worker, does the work. Meanwhile clients get\n"
		"unavailable: some seconds for a million user coupons. If a rebuild takes longer,\n"
		"this command prints its progress every 2 s, and couponctl show prints it too. If\n"
		"nothing differs, nothing is changed. Receives in flight stay accepted. The\n"
		"command may run at any time, and concurrent runs are safe.\n"
		"\n"
		"--give-up-lost records receives as rejected (lost) that have no outcome, and\n"
		"whose message is neither in the outbox nor in a queue; their coupons can be\n"
		"issued again. It is refused while a queue has messages, and while gateways may\n"
		"have receives that they have not written to Redis again. First check that no\n"
		"worker holds messages (rabbitmqctl list_queues name messages_unacknowledged): a\n"
		"receive that arrives later stays rejected.",
};
