/*
 * couponctl rebuild: requests that the keeper compare a coupon in Redis with PostgreSQL, and
 * rebuild it if anything differs.
 */
#include "common/clock.h"
#include "common/log/log.h"
#include "ctl/lost.h"
#include "coupon/redis_coupon.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_S 60
#define WAIT_MAX_S 3600
#define POLL_US 20000
#define PROGRESS_MS 2000

/* Records the request. Returns its number. */
static int64_t request_add(struct db *db, const char *coupon)
{
	PGresult *result = db_ask(db, sql_query_rebuild_ask, postgres_text(coupon));
	int64_t asked;

	if (PQntuples(result) == 0)
		log_fatal("there is nothing to rebuild: coupon %s does not exist, is a draft, or "
			  "is closed and settled",
			  coupon);
	asked = db_int(result, 0, "rebuild_asked");
	PQclear(result);
	return asked;
}

/* 1 when the keeper has done the request: then its result is printed. */
static int result_print(struct db *db, const char *coupon, int64_t asked)
{
	PGresult *result = db_ask(db, sql_query_rebuild_state, postgres_text(coupon));
	int is_done = PQntuples(result) == 1 && db_int(result, 0, "rebuild_done") >= asked;

	if (is_done)
		printf("coupon %s: %s\n", coupon, db_text(result, 0, "rebuild_told"));
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
			(long long)filled.filled, (long long)filled.rows,
			(long long)redis_filled_left_s(&filled));
}

static int rebuild_run(struct ctl *ctl)
{
	int64_t wait_s = args_number(&ctl->args, "wait-s", 1, WAIT_MAX_S, WAIT_S);
	const char *coupon = ctl->args.argument;
	struct redis_client *redis;
	int64_t id = args_coupon(&ctl->args), asked, until_ms, progress_ms;
	struct db *db;

	if (args_has(&ctl->args, "older-than-s") && !args_has(&ctl->args, "release-lost"))
		args_fail("--older-than-s is \"%s\": allowed only with --release-lost",
			  args_text(&ctl->args, "older-than-s"));
	db = store_postgres_open(ctl);
	redis = store_redis_open(ctl);
	behind_refuse(db, redis);
	if (args_has(&ctl->args, "release-lost"))
		lost_release(ctl, db, redis);
	asked = request_add(db, coupon);
	until_ms = clock_monotonic_ms() + wait_s * 1000;
	progress_ms = clock_monotonic_ms() + PROGRESS_MS;
	while (!result_print(db, coupon, asked)) {
		if (clock_monotonic_ms() >= until_ms)
			log_fatal("no keeper has rebuilt coupon %s within %lld s: check that a "
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
		SWITCH("release-lost",
		       "first give up receives that can no longer arrive, and name each"),
		OPTION("older-than-s", "S",
		       "with --release-lost: only receives accepted longer ago, 0 to 31536000; "
		       "default 60")),
	.summary = "compare a coupon in Redis with PostgreSQL, and rebuild it if they differ",
	.detail = "The keeper, a thread of coupon-worker, does it; clients get unavailable\n"
		  "meanwhile: some seconds for a million user coupons. If it takes longer,\n"
		  "show says how far it is, and so does a line every 2 s here. If nothing\n"
		  "differs, nothing is changed. Receives in flight stay accepted. It may run at\n"
		  "any time; concurrent runs are safe.\n"
		  "\n"
		  "--release-lost records receives without an outcome whose message is neither\n"
		  "in the outbox nor in a queue as rejected (lost); their coupons can be issued\n"
		  "again. It is refused while a queue has messages. First check that no worker\n"
		  "holds messages (rabbitmqctl list_queues name messages_unacknowledged): a\n"
		  "receive that arrives later stays rejected.",
};
