#include "worker/settle/database.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/program/durability.h"
#include "common/log/log.h"
#include "common/postgres/connection.h"
#include "embed.h"

#include <stdlib.h>

#define STATEMENT "settle"
/* As the statement audit_workers of couponctl reads them. */
#define DATABASE_NAME "coupon-worker"
#define DATABASE_NAME_PUT_OFF "coupon-worker put off"
#define SETUP_TIMEOUT_MS 5000 /* to connect, and for each statement but settle() */
#define GRACE_MS 2000         /* so that the server's own limit ends a statement first */
#define STEADY_MS 2000        /* a connection that lasted this long resets the backoff */

/* LIMITING: the session is changed for the settle() that follows. */
enum state {
	DOWN,
	CONNECTING,
	READING_SETTINGS,
	PREPARING,
	IDLE,
	LIMITING,
	SETTLING,
	LOOKING,
	COUNTING
};

struct database {
	struct postgres *postgres;
	int64_t settle_timeout_ms;
	enum state state;
	int64_t retry_ms; /* DOWN: the next attempt */
	int64_t connected_ms;
	struct backoff backoff;
	const struct settle_args *args; /* LIMITING: of the settle() that follows, lent */
	struct durability durability;
};

struct database *database_new(const char *url, int64_t settle_timeout_ms)
{
	struct database *database = calloc(1, sizeof(*database));
	const struct postgres_options options = {
		.url = url,
		.application_name = DATABASE_NAME,
		.connect_timeout_ms = SETUP_TIMEOUT_MS,
		.statement_timeout_ms = settle_timeout_ms,
		.notice_event = "database_notice",
	};

	check(database != NULL);
	database->postgres = postgres_new(&options);
	database->settle_timeout_ms = settle_timeout_ms;
	return database;
}

void database_free(struct database *database)
{
	if (!database)
		return;
	postgres_free(database->postgres);
	free(database);
}

static enum database_event lost(struct database *database)
{
	int in_flight = database->state >= LIMITING && database->state != COUNTING;
	enum database_event event = in_flight ? DATABASE_LOST : DATABASE_NOTHING;
	int64_t now_ms = clock_monotonic_ms(), wait_ms;

	if (database->state >= IDLE && now_ms - database->connected_ms >= STEADY_MS)
		backoff_reset(&database->backoff);
	wait_ms = backoff_connect_ms(&database->backoff);
	log_warn(database->state >= IDLE ? "database_lost" : "database_unreachable",
		 LOG_S("why", postgres_why(database->postgres)), LOG_I("again_in_ms", wait_ms));
	postgres_drop(database->postgres, NULL);
	database->state = DOWN;
	database->retry_ms = now_ms + wait_ms;
	return event;
}

/* Reads the server's durability settings. A weak setting is logged; it does not stop settling. */
static void settings_read(struct database *database)
{
	const PGresult *rows = postgres_result(database->postgres);

	durability_begin(&database->durability, DURABILITY_POSTGRESQL);
	if (postgres_failure(database->postgres) != POSTGRES_OK)
		durability_unknown(&database->durability, DURABILITY_POSTGRESQL,
				   postgres_why(database->postgres));
	for (int row = 0; row < PQntuples(rows); row++)
		durability_tell(&database->durability, DURABILITY_POSTGRESQL,
				PQgetvalue(rows, row, 0), PQgetvalue(rows, row, 1));
}

static void settle_send(struct database *database, const struct settle_args *args, int64_t now_ms)
{
	struct postgres_argument arguments[SETTLE_ARGS_N];

	settle_args_arguments(args, arguments);
	database->state = SETTLING;
	postgres_send_prepared(database->postgres, STATEMENT, SETTLE_ARGS_N, arguments,
			       now_ms + database->settle_timeout_ms + GRACE_MS);
}

static enum database_event settle_ended(struct database *database)
{
	const char *why = postgres_why(database->postgres);

	database->state = IDLE;
	switch (postgres_failure(database->postgres)) {
	case POSTGRES_OK:
		return DATABASE_SETTLED;
	case POSTGRES_BLOCKED:
		log_warn("settle_blocked", LOG_S("why", why));
		return DATABASE_BLOCKED;
	case POSTGRES_CANCELLED:
		log_warn("settle_cancelled", LOG_S("why", why));
		return DATABASE_CANCELLED;
	case POSTGRES_REFUSED:
		log_warn("settle_refused", LOG_S("why", why));
		return DATABASE_REFUSED;
	case POSTGRES_AGAIN:
	case POSTGRES_UNFIT:
	case POSTGRES_DOWN:
		log_warn("settle_refused", LOG_S("why", why));
		return DATABASE_FAILED;
	}
	return DATABASE_FAILED;
}

static enum database_event look_ended(struct database *database)
{
	database->state = IDLE;
	if (postgres_failure(database->postgres) != POSTGRES_OK)
		log_warn("lock_look_failed", LOG_S("why", postgres_why(database->postgres)));
	return DATABASE_LOOKED;
}

static enum database_event count_ended(struct database *database)
{
	database->state = IDLE;
	if (postgres_failure(database->postgres) != POSTGRES_OK)
		log_warn("change_count_failed", LOG_S("why", postgres_why(database->postgres)));
	return DATABASE_COUNTED;
}

static void connected(struct database *database, int64_t now_ms)
{
	database->state = READING_SETTINGS;
	postgres_send(database->postgres, sql_query_durability, 0, NULL, now_ms + SETUP_TIMEOUT_MS);
}

static enum database_event statement_ended(struct database *database, int64_t now_ms)
{
	if (database->state == SETTLING)
		return settle_ended(database);
	if (database->state == LOOKING)
		return look_ended(database);
	if (database->state == COUNTING)
		return count_ended(database);
	if (database->state == READING_SETTINGS) {
		settings_read(database);
		database->state = PREPARING;
		postgres_prepare(database->postgres, STATEMENT, sql_query_settle,
				 now_ms + SETUP_TIMEOUT_MS);
		return DATABASE_NOTHING;
	}
	if (postgres_failure(database->postgres) != POSTGRES_OK)
		return lost(database);
	if (database->state == LIMITING) {
		settle_send(database, database->args, now_ms);
		return DATABASE_NOTHING;
	}
	database->state = IDLE;
	database->connected_ms = now_ms;
	log_info("database_connected",
		 LOG_I("backend", PQbackendPID(postgres_libpq(database->postgres))));
	return DATABASE_NOTHING;
}

static void down_step(struct database *database, int64_t now_ms)
{
	if (now_ms < database->retry_ms)
		return;
	database->state = CONNECTING;
	if (postgres_connect(database->postgres, NULL, now_ms))
		lost(database);
}

enum database_event database_step(struct database *database, int64_t now_ms)
{
	if (database->state == DOWN)
		down_step(database, now_ms);
	switch (postgres_step(database->postgres, now_ms)) {
	case POSTGRES_NOTHING:
		return DATABASE_NOTHING;
	case POSTGRES_CONNECTED:
		connected(database, now_ms);
		return DATABASE_NOTHING;
	case POSTGRES_ENDED:
		return statement_ended(database, now_ms);
	case POSTGRES_LOST:
		return lost(database);
	}
	return DATABASE_NOTHING;
}

int database_up(const struct database *database)
{
	return database->state >= IDLE;
}

int database_ready(const struct database *database)
{
	return database->state == IDLE;
}

void database_settle(struct database *database, const struct settle_args *args,
		     int64_t lock_timeout_ms, int put_off, int64_t now_ms)
{
	const struct postgres_session session = {
		.lock_timeout_ms = lock_timeout_ms,
		.application_name = put_off ? DATABASE_NAME_PUT_OFF : DATABASE_NAME,
	};

	check(database_ready(database) && lock_timeout_ms > 0);
	database->args = args;
	if (postgres_set_session(database->postgres, &session, now_ms + SETUP_TIMEOUT_MS))
		database->state = LIMITING;
	else
		settle_send(database, args, now_ms);
}

void database_look(struct database *database, const struct postgres_array *coupons, int64_t now_ms)
{
	struct postgres_argument argument = postgres_array(coupons);

	check(database_ready(database));
	database->state = LOOKING;
	postgres_send(database->postgres, sql_query_coupon_locked, 1, &argument,
		      now_ms + SETUP_TIMEOUT_MS);
}

void database_count(struct database *database, int64_t now_ms)
{
	check(database_ready(database));
	database->state = COUNTING;
	postgres_send(database->postgres, sql_query_change_counts, 0, NULL,
		      now_ms + SETUP_TIMEOUT_MS);
}

int64_t database_connected_ms(const struct database *database)
{
	return database->connected_ms;
}

const PGresult *database_result(const struct database *database)
{
	return postgres_result(database->postgres);
}

const char *database_sqlstate(const struct database *database)
{
	return postgres_sqlstate(database->postgres);
}

int database_fd(const struct database *database)
{
	return postgres_fd(database->postgres);
}

short database_poll_events(const struct database *database)
{
	return postgres_poll_events(database->postgres);
}

int64_t database_deadline_ms(const struct database *database)
{
	return database->state == DOWN ? database->retry_ms
				       : postgres_deadline_ms(database->postgres);
}
