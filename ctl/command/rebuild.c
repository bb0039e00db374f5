/*
 * couponctl rebuild: has the keeper compare a coupon in Redis with PostgreSQL, and fill it anew
 * where anything differs.
 */
#include "common/clock.h"
#include "common/log.h"
#include "ctl/ctl.h"
#include "ctl/postgres.h"
#include "ctl/command/lost.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_S 60
#define WAIT_MAX_S 3600
#define POLL_US 20000

/* The number of this request. */
static int64_t ask(struct db *db, const char *coupon)
{
	PGresult *result = db_query(db, sql_query_rebuild_ask, 1, &coupon);
	int64_t asked;

	if (PQntuples(result) == 0)
		log_fatal("there is nothing to rebuild: coupon %s does not exist, is a draft, or "
			  "is closed and settled",
			  coupon);
	asked = db_int(result, 0, "rebuild_asked");
	PQclear(result);
	return asked;
}

/* 1 when the keeper has answered; the answer is printed. */
static int answer_print(struct db *db, const char *coupon, int64_t asked)
{
	PGresult *result = db_query(db, sql_query_rebuild_state, 1, &coupon);
	int answered = PQntuples(result) == 1 && db_int(result, 0, "rebuild_done") >= asked;

	if (answered)
		printf("coupon %s: %s\n", coupon, db_text(result, 0, "rebuild_told"));
	PQclear(result);
	return answered;
}

static int rebuild_run(struct ctl *ctl)
{
	int64_t wait_s = args_number(&ctl->args, "wait-s", 1, WAIT_MAX_S, WAIT_S);
	const char *coupon = ctl->args.argument;
	int64_t asked, until_ms;
	struct db *db;

	args_coupon(&ctl->args);
	db = db_open("DATABASE_URL", ctl->config.database_url);
	if (args_has(&ctl->args, "release-lost"))
		lost_release(ctl, db);
	asked = ask(db, coupon);
	until_ms = clock_monotonic_ms() + wait_s * 1000;
	while (!answer_print(db, coupon, asked)) {
		if (clock_monotonic_ms() >= until_ms)
			log_fatal("no keeper has answered for coupon %s within %lld s: is a "
				  "coupon-worker running, and Redis there? "
				  "The request stays, and is done when they are",
				  coupon, (long long)wait_s);
		usleep(POLL_US);
	}
	db_close(db);
	return 0;
}

static const struct option rebuild_options[] = {
	OPTION("wait-s", "S", "how long to wait for the keeper, 1 to 3600; default 60"),
	SWITCH("release-lost", "first give up receives that can no longer arrive, naming each"),
	OPTION("older-than-s", "S",
	       "with --release-lost: only receives accepted longer ago, 0 to 31536000; default 60"),
	OPTIONS_END,
};

const struct command rebuild_command = {
	.name = "rebuild",
	.run = rebuild_run,
	.argument = "ID",
	.options = rebuild_options,
	.summary = "compare a coupon in Redis with PostgreSQL, and fill it anew where they differ",
	.detail = "The keeper, a thread of coupon-worker, does it, and clients get unavailable "
		  "meanwhile: a second or so. Where nothing\n"
		  "differs nothing is changed. Receives in flight stay accepted. It may be run at "
		  "any time, and twice at once.\n"
		  "--release-lost: receives without an outcome whose message is neither in the "
		  "outbox nor in a queue are recorded as\n"
		  "rejected (lost), and what they hold can be given out again. Refused while a "
		  "queue holds messages. First make sure that\n"
		  "no worker holds deliveries (rabbitmqctl list_queues messages_unacknowledged): "
		  "one that arrives later stays rejected.",
};
