/*
 * couponctl rebuild: requests that the keeper compare a coupon in Redis with PostgreSQL, and
 * rebuild it if anything differs. With --give-up-lost it first gives up receives:
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
#include "common/redis/client.h"
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
	int64_t before_ms;        /* only receives accepted before */
	int64_t current;          /* generation of receives that are not known: the one in Redis */
	struct generations older; /* in the order of their numbers */
	int64_t young;            /* known receives that are too young to be given up */
	int64_t named;            /* receives given up */
	int as_json;
};

/* Stores in PostgreSQL the highest numbers of older generations that only Redis has. */
static void highs_store(struct lost *lost)
{
	redisReply *hash = store_reply(lost->redis,
				       coupon_call(lost->redis, lost->coupon, "HGETALL",
						   COUPON_KEY_COUPON, NULL));
	struct postgres_array numbers = { .type = POSTGRES_INT4 },
			      highs = { .type = POSTGRES_INT8 };
	struct generations generations = { 0 };
	struct redis_coupon in_redis;

	redis_coupon_parse(&in_redis, hash);
	if (in_redis.generation > 0 && in_redis.generation < lost->current)
		lost->current = in_redis.generation;
	generations_raise(&generations, hash, NULL);
	freeReplyObject(hash);
	generations_arrays(&generations, &numbers, &highs);
	generations_fini(&generations);
	db_do(lost->db, sql_query_generation_seen, postgres_number(lost->coupon),
	      postgres_array(&numbers), postgres_array(&highs));
	postgres_array_fini(&numbers);
	postgres_array_fini(&highs);
}

static void generations_read(struct lost *lost)
{
	PGresult *row = store_coupon_row(lost->db, sql_query_coupon_show, lost->coupon), *page;

	lost->current = column_number(row, 0, "postgresql.generation");
	PQclear(row);
	highs_store(lost);
	page = db_ask(lost->db, sql_query_coupon_generation_page, postgres_number(lost->coupon));
	for (int i = 0; i < PQntuples(page); i++)
		generation_add_row(&lost->older, page, i, 0);
	PQclear(page);
}

/* The generation to count a known receive in that is given up. */
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

/* Receives that are too young belong to the latest generations: their numbers stay in flight. */
static void young_owe(struct lost *lost)
{
	int64_t n = lost->young;

	for (size_t i = lost->older.n; i > 0 && n > 0; i--) {
		struct generation *older = &lost->older.list[i - 1];
		int64_t room = older->high - older->settled - older->owed;
		int64_t taken = room < n ? room : n;

		if (taken > 0) {
			older->owed += taken;
			n -= taken;
		}
	}
}

/* Gives up the numbers that are left, except those that are owed. */
static void numbers_give_up(const struct lost *lost)
{
	for (size_t i = 0; i < lost->older.n; i++) {
		const struct generation *older = &lost->older.list[i];
		PGresult *result;

		db_run(lost->db, "BEGIN");
		db_do(lost->db, sql_query_coupon_lock, postgres_number(lost->coupon));
		result = db_ask(lost->db, sql_query_generation_lost, postgres_number(lost->coupon),
				postgres_number(older->number), postgres_number(0),
				postgres_number(older->owed));
		db_run(lost->db, "COMMIT");
		if (PQntuples(result) == 1) {
			cJSON *object = output_object();

			output_number(object, "lost", column_number(result, 0, "lost_num"));
			output_number(object, "generation", older->number);
			output_say(object,
				   "lost: {lost} receives of generation {generation} that nothing "
				   "names\n",
				   lost->as_json);
		}
		PQclear(result);
	}
}

/*
 * Gives up those that are not in the outbox. Of the others that are too young the known ones are
 * counted. Returns how many are given up; they come first.
 */
static size_t list_give_up(struct lost *lost, struct slot *list, size_t n)
{
	char *sent = calloc(n + 1, 1), *known = calloc(n + 1, 1);
	struct slot_arrays arrays;
	size_t kept = 0;

	check(sent != NULL && known != NULL);
	store_has(lost->redis, lost->coupon, COUPON_KEY_OUTBOX, list, n, sent);
	store_has(lost->redis, lost->coupon, COUPON_KEY_KNOWN, list, n, known);
	slot_arrays_init(&arrays);
	for (size_t i = 0; i < n; i++) {
		int64_t at_ms = ulid_time_ms(&list[i].batch);

		if (sent[i])
			continue;
		if (at_ms >= lost->before_ms) {
			lost->young += known[i];
			continue;
		}
		postgres_array_add_number(&arrays.generations,
					  known[i] ? generation_take(lost) : lost->current);
		postgres_array_add_number(&arrays.times, at_ms);
		list[kept++] = list[i];
	}
	free(sent);
	free(known);
	kept = store_lost_record(lost->db, lost->coupon, list, kept, &arrays);
	if (kept > 0)
		log_fatal_status(CTL_UNKNOWN);
	return kept;
}

/* In a statement of some users, which may be repeated. Malformed records are left to the audit. */
static int users_give_up(void *context, const redisReply *users)
{
	struct lost *lost = context;
	struct slots slots = { 0 };
	char text[RECEIVE_SIZE];
	size_t n;

	slots_read(&slots, users);
	slots_sort(&slots);
	n = store_keep_open(lost->db, lost->coupon, slots.list, slots.n);
	n = list_give_up(lost, slots.list, n);
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

/* Receives in the outbox will arrive. Messages that cannot be read will be dead-lettered. */
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

static void queues_need_empty(const char *url)
{
	struct broker broker = { .url = url };
	struct broker_look look;

	broker_look(&broker, &look);
	if (!look.ok)
		log_fatal_as(CTL_AWAY, "RabbitMQ, which AMQP_URL names, cannot be queried: %s",
			     broker.error);
	if (look.ready > 0 || look.dead > 0)
		log_fatal("the receive queue holds %lld messages and the dead-letter queue %lld: "
			  "these messages can still arrive",
			  (long long)look.ready, (long long)look.dead);
	rabbit_connection_close(broker.connection);
}

/* Where a lock or a time-out stops settling, workers hold receives that no queue shows. */
static void workers_need_hold_none(struct db *db)
{
	struct locks locks = { .n = 0 };

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
}

/* A gateway writes what it has to the outbox again, when it can. */
static void gateways_need_lack_none(struct db *db, struct redis_client *redis)
{
	cJSON *gateways = store_gateways_lacking(db, redis);
	char text[STORE_GATEWAYS_SIZE];

	if (cJSON_GetArraySize(gateways) > 0)
		log_fatal("gateways may have receives that neither RabbitMQ nor Redis has: %s. "
			  "Wait until they have written them again. One that does not run any "
			  "more counts for %d s after it was last heard of",
			  store_gateways_text(gateways, text), COPIES_SILENT_S);
	cJSON_Delete(gateways);
}

/* Ends the process when a queue still has messages, or a gateway may have some. */
static void give_up(struct ctl *ctl, struct db *db, struct redis_client *redis)
{
	int64_t older_s = args_number(&ctl->args, "older-than-s", 0, OLDER_MAX_S, OLDER_S);
	struct lost lost = { .db = db,
			     .redis = redis,
			     .coupon = args_coupon(&ctl->args),
			     .before_ms = clock_wall_ms() - older_s * 1000,
			     .as_json = args_has(&ctl->args, "json") };
	cJSON *object = output_object();

	queues_need_empty(ctl->config.amqp_url);
	workers_need_hold_none(db);
	gateways_need_lack_none(db, redis);
	generations_read(&lost);
	store_redis_check(lost.redis,
			  outbox_scan(lost.redis, lost.coupon, message_owe, &lost) == 0);
	store_redis_check(lost.redis, coupon_scan(lost.redis, lost.coupon, COUPON_KEY_USERS,
						  SCAN_COUNT, users_give_up, &lost) == 0);
	young_owe(&lost);
	numbers_give_up(&lost);
	output_id(object, "coupon", lost.coupon);
	output_number(object, "given_up", lost.named);
	output_say(object, "coupon {coupon}: {given_up} receives given up by name\n", lost.as_json);
	generations_fini(&lost.older);
}

/* Records the request. Returns its number. */
static int64_t request_add(struct db *db, const char *coupon)
{
	PGresult *result = db_ask(db, sql_query_rebuild_ask, postgres_text(coupon));
	int64_t asked;

	if (PQntuples(result) == 0)
		log_fatal("there is nothing to rebuild: coupon %s does not exist, is a draft, or "
			  "is closed and settled",
			  coupon);
	asked = column_number(result, 0, "rebuild_asked");
	PQclear(result);
	return asked;
}

/* 1 when the keeper has done the request: then its result is printed. */
static int result_print(struct db *db, const char *coupon, int64_t asked, int as_json)
{
	PGresult *result = db_ask(db, sql_query_rebuild_state, postgres_text(coupon));
	int is_done = PQntuples(result) == 1 && column_number(result, 0, "rebuild_done") >= asked;

	if (is_done) {
		cJSON *object = output_object();

		output_text(object, "coupon", coupon);
		output_text(object, "result", column_text(result, 0, "rebuild_told"));
		output_say(object, "coupon {coupon}: {result}\n", as_json);
	}
	PQclear(result);
	return is_done;
}

/* A line on standard error from time to time, when the rebuild takes longer. */
static void progress_print(struct redis_client *redis, int64_t coupon, int64_t *due_ms)
{
	struct redis_filled filled;

	if (clock_monotonic_ms() < *due_ms)
		return;
	*due_ms = clock_monotonic_ms() + PROGRESS_MS;
	if (redis_client_open(redis) == 0 && redis_coupon_filled(redis, coupon, &filled))
		fprintf(stderr, "%lld of %lld user coupons, about %lld s left\n",
			(long long)filled.filled, (long long)filled.rows, (long long)filled.left_s);
}

static int rebuild_run(struct ctl *ctl)
{
	int64_t wait_s = args_number(&ctl->args, "wait-s", 1, WAIT_MAX_S, WAIT_S);
	const char *coupon = ctl->args.argument;
	struct redis_client *redis;
	int64_t id = args_coupon(&ctl->args), asked, until_ms, progress_ms;
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
	asked = request_add(db, coupon);
	until_ms = clock_monotonic_ms() + wait_s * 1000;
	progress_ms = clock_monotonic_ms() + PROGRESS_MS;
	while (!result_print(db, coupon, asked, args_has(&ctl->args, "json"))) {
		if (clock_monotonic_ms() >= until_ms)
			log_fatal_as(CTL_UNKNOWN,
				     "no keeper has rebuilt coupon %s within %lld s: check that a "
				     "coupon-worker and Redis run. The request remains in place",
				     coupon, (long long)wait_s);
		progress_print(redis, id, &progress_ms);
		usleep(POLL_US);
	}
	redis_client_free(redis);
	db_close(db);
	return 0;
}

const struct command rebuild_command = {
	.name = "rebuild",
	.run = rebuild_run,
	.argument = "ID",
	.options = OPTIONS(
		OPTION("wait-s", "S", "time to wait for the keeper, 1 to 3600; default 60"),
		SWITCH("give-up-lost",
		       "first give up receives that can no longer arrive, and name each"),
		OPTION("older-than-s", "S",
		       "with --give-up-lost: only receives accepted longer ago, 0 to 31536000; "
		       "default 60"),
		BY_OPTION),
	.summary = "compare a coupon in Redis with PostgreSQL, and rebuild it if they differ",
	.detail = "The keeper, a thread of coupon-worker, does it; clients get unavailable\n"
		  "meanwhile: some seconds for a million user coupons. If it takes longer,\n"
		  "show says how far it is, and so does a line every 2 s here. If nothing\n"
		  "differs, nothing is changed. Receives in flight stay accepted. It may run at\n"
		  "any time; concurrent runs are safe.\n"
		  "\n"
		  "--give-up-lost records receives without an outcome whose message is neither\n"
		  "in the outbox nor in a queue as rejected (lost); their coupons can be issued\n"
		  "again. It is refused while a queue has messages, and while gateways may have\n"
		  "some that they have not written to Redis again. First check that no worker\n"
		  "holds messages (rabbitmqctl list_queues name messages_unacknowledged): a\n"
		  "receive that arrives later stays rejected.",
};
