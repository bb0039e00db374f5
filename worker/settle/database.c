#include "worker/settle/database.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/postgres/session.h"
#include "common/program/durability.h"
#include "embed.h"

#include <stdlib.h>

/* As sql/query/audit_workers.sql reads them. */
#define DATABASE_NAME "coupon-worker"
#define DATABASE_NAME_PUT_OFF "coupon-worker put off"
#define SETUP_TIMEOUT_MS 5000 /* to connect, and for each statement but settle() */
#define GRACE_MS 2000         /* so that the server's own limit ends a statement first */

/* LIMITING: the session is changed for the settle() that follows. */
enum state { DOWN, READING_SETTINGS, IDLE, LIMITING, SETTLING, LOOKING, COUNTING };

struct database {
	struct postgres *postgres;
	int64_t settle_timeout_ms;
	enum state state;
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
		.prepared = sql_query_settle,
		.reconnects = 1,
		.lost_event = "database_lost",
		.unreachable_event = "database_unreachable",
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

/* Whether what was in flight took effect is unknown, unless it only read. */
static enum database_event lost(struct database *database)
{
	int in_flight = database->state >= LIMITING && database->state != COUNTING;

	database->state = DOWN;
	return in_flight ? DATABASE_LOST : DATABASE_NOTHING;
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
	postgres_send(database->postgres, sql_query_settle, SETTLE_ARGS_N, arguments,
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

/* Of a statement that only reads: without a result after a failure. */
static enum database_event read_ended(struct database *database, const char *failed_event,
				      enum database_event event)
{
	database->state = IDLE;
	if (postgres_failure(database->postgres) != POSTGRES_OK)
		log_warn(failed_event, LOG_S("why", postgres_why(database->postgres)));
	return event;
}

static enum database_event limited(struct database *database, int64_t now_ms)
{
	if (postgres_failure(database->postgres) == POSTGRES_OK) {
		settle_send(database, database->args, now_ms);
		return DATABASE_NOTHING;
	}
	postgres_lose(database->postgres, NULL);
	return lost(database);
}

static enum database_event settings_ended(struct database *database)
{
	settings_read(database);
	database->state = IDLE;
	log_info("database_connected",
		 LOG_I("backend", PQbackendPID(postgres_libpq(database->postgres))));
	return DATABASE_NOTHING;
}

static enum database_event statement_ended(struct database *database, int64_t now_ms)
{
	switch (database->state) {
	case READING_SETTINGS:
		return settings_ended(database);
	case LIMITING:
		return limited(database, now_ms);
	case SETTLING:
		return settle_ended(database);
	case LOOKING:
		return read_ended(database, "lock_look_failed", DATABASE_LOOKED);
	case COUNTING:
		return read_ended(database, "change_count_failed", DATABASE_COUNTED);
	case DOWN:
	case IDLE:
		break;
	}
	return DATABASE_NOTHING;
}

enum database_event database_step(struct database *database, int64_t now_ms)
{
	switch (postgres_step(database->postgres, now_ms)) {
	case POSTGRES_NOTHING:
		break;
	case POSTGRES_CONNECTED:
		database->state = READING_SETTINGS;
		postgres_send(database->postgres, sql_query_durability, 0, NULL,
			      now_ms + SETUP_TIMEOUT_MS);
		break;
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
	const char *name = put_off ? DATABASE_NAME_PUT_OFF : DATABASE_NAME;

	check(database_ready(database) && lock_timeout_ms > 0);
	database->args = args;
	if (postgres_set(database->postgres, lock_timeout_ms, name, now_ms + SETUP_TIMEOUT_MS))
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

struct postgres *database_postgres(const struct database *database)
{
	return database->postgres;
}
