#include "worker/settle/database.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/durability.h"
#include "common/log.h"
#include "embed.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATEMENT "settle"
#define CONNECT_TIMEOUT_MS 5000 /* also for each statement that prepares the connection */
#define GRACE_MS 2000           /* the server gives up first */
#define STEADY_MS 2000          /* a connection that lived this long was a good one */

/* LIMITING: the session's lock_timeout is changed for the settle() that follows. */
enum state { DOWN, CONNECTING, SETTING_UP, ASKING, PREPARING, IDLE, LIMITING, SETTLING };

struct database {
	const char *url;
	int64_t settle_timeout_ms;
	enum state state;
	PGconn *connection;
	PostgresPollingStatusType polling; /* CONNECTING: what the next step waits for */
	int flushing;                      /* more to write than the socket took */
	/* DOWN: the next attempt; IDLE: none; else when the peer counts as dead */
	int64_t deadline_ms;
	int64_t connected_ms;
	struct backoff backoff;
	PGresult *result;               /* of the last statement; of several the first error */
	int64_t lock_timeout_ms;        /* the session's; 0: PostgreSQL's own setting */
	const struct settle_args *args; /* LIMITING: what is settled next, only lent */
	char sqlstate[6];
	struct durability durability;
};

struct database *database_new(const char *url, int64_t settle_timeout_ms)
{
	struct database *database = calloc(1, sizeof(*database));

	check(database != NULL);
	database->url = url;
	database->settle_timeout_ms = settle_timeout_ms;
	return database;
}

void database_free(struct database *database)
{
	if (!database)
		return;
	PQclear(database->result);
	PQfinish(database->connection);
	free(database);
}

/* Of libpq's message the first line: behind it come the context and hints. */
static void log_failure(const char *event, const char *message, int64_t again_in_ms)
{
	char line[256];

	snprintf(line, sizeof(line), "%s", message ? message : "");
	line[strcspn(line, "\n")] = '\0';
	log_warn(event, LOG_S("why", line), LOG_I("again_in_ms", again_in_ms));
}

/* libpq would write them to standard error, between our lines. */
static void notice(void *unused, const char *message)
{
	(void)unused;
	log_failure("database_notice", message, 0);
}

static enum database_event lost(struct database *database, const char *why)
{
	enum database_event event = database->state >= LIMITING ? DATABASE_LOST : DATABASE_NOTHING;
	int64_t now_ms = clock_monotonic_ms(), wait_ms;

	if (database->state >= IDLE && now_ms - database->connected_ms >= STEADY_MS)
		backoff_reset(&database->backoff);
	wait_ms = backoff_ms(&database->backoff);
	log_failure(database->state >= IDLE ? "database_lost" : "database_unreachable",
		    why ? why : PQerrorMessage(database->connection), wait_ms);
	PQclear(database->result);
	database->result = NULL;
	PQfinish(database->connection);
	database->connection = NULL;
	database->state = DOWN;
	database->deadline_ms = now_ms + wait_ms;
	return event;
}

static void connect_begin(struct database *database, int64_t now_ms)
{
	const char *const keywords[] = { "dbname",
					 "application_name",
					 "tcp_user_timeout",
					 "keepalives_idle",
					 "keepalives_interval",
					 "keepalives_count",
					 NULL };
	const char *const values[] = {
		database->url, "coupon-worker", "10000", "10", "5", "3", NULL
	};

	database->state = CONNECTING;
	database->deadline_ms = now_ms + CONNECT_TIMEOUT_MS;
	database->polling = PGRES_POLLING_WRITING;
	database->connection = PQconnectStartParams(keywords, values, 1);
	check(database->connection != NULL);
	PQsetNoticeProcessor(database->connection, notice, NULL);
	if (PQstatus(database->connection) == CONNECTION_BAD)
		lost(database, NULL);
}

/* A statement has been handed to libpq (`sent`). */
static void sent(struct database *database, int done, enum state state, int64_t deadline_ms)
{
	database->state = state;
	database->deadline_ms = deadline_ms;
	PQclear(database->result);
	database->result = NULL;
	/* When it failed, the connection says so at the next step. */
	database->flushing = done == 1;
}

static void setup_begin(struct database *database, int64_t now_ms)
{
	char statement[64];

	PQsetnonblocking(database->connection, 1);
	database->lock_timeout_ms = 0; /* each settle() brings its own */
	snprintf(statement, sizeof(statement), "SET statement_timeout = %" PRId64,
		 database->settle_timeout_ms);
	sent(database, PQsendQuery(database->connection, statement), SETTING_UP,
	     now_ms + CONNECT_TIMEOUT_MS);
}

static void prepare_begin(struct database *database, int64_t now_ms)
{
	Oid types[SETTLE_ARGS_N];

	for (int i = 0; i < SETTLE_ARGS_N; i++)
		types[i] = settle_args_type(i);
	sent(database,
	     PQsendPrepare(database->connection, STATEMENT, sql_query_settle, SETTLE_ARGS_N, types),
	     PREPARING, now_ms + CONNECT_TIMEOUT_MS);
}

/* How the server is set: a weak setting is a warning, never a reason not to settle. */
static void settings_read(struct database *database)
{
	const PGresult *rows = database->result;

	durability_begin(&database->durability, DURABILITY_POSTGRESQL);
	if (PQresultStatus(rows) != PGRES_TUPLES_OK)
		durability_unknown(&database->durability, DURABILITY_POSTGRESQL,
				   PQresultErrorMessage(rows));
	for (int row = 0; row < PQntuples(rows); row++)
		durability_tell(&database->durability, DURABILITY_POSTGRESQL,
				PQgetvalue(rows, row, 0), PQgetvalue(rows, row, 1));
}

static void connect_step(struct database *database, int64_t now_ms)
{
	struct pollfd pollfd = { .fd = PQsocket(database->connection),
				 .events = database_poll_events(database) };

	if (poll(&pollfd, 1, 0) <= 0)
		return;
	database->polling = PQconnectPoll(database->connection);
	if (database->polling == PGRES_POLLING_FAILED)
		lost(database, NULL);
	else if (database->polling == PGRES_POLLING_OK)
		setup_begin(database, now_ms);
}

/*
 * 1 when the statement has ended (database->result: its result, or its first error), 0 not yet, -1
 * connection lost.
 */
static int results_read(struct database *database)
{
	PGresult *result;

	if (database->flushing) {
		database->flushing = PQflush(database->connection);
		if (database->flushing < 0)
			return -1;
	}
	if (!PQconsumeInput(database->connection))
		return -1;
	while (!PQisBusy(database->connection)) {
		result = PQgetResult(database->connection);
		if (!result)
			return PQstatus(database->connection) == CONNECTION_OK ? 1 : -1;
		/* COMMIT comes after the rows: its failure is an error behind a good result. */
		if (database->result && PQresultStatus(result) != PGRES_FATAL_ERROR) {
			PQclear(result);
			continue;
		}
		PQclear(database->result);
		database->result = result;
	}
	return 0;
}

static void settle_send(struct database *database, const struct settle_args *args, int64_t now_ms)
{
	const char *values[SETTLE_ARGS_N];
	int lengths[SETTLE_ARGS_N], formats[SETTLE_ARGS_N];

	for (int i = 0; i < SETTLE_ARGS_N; i++) {
		values[i] = args->arrays[i].data;
		lengths[i] = (int)args->arrays[i].len;
		formats[i] = 1;
	}
	sent(database,
	     PQsendQueryPrepared(database->connection, STATEMENT, SETTLE_ARGS_N, values, lengths,
				 formats, 0),
	     SETTLING, now_ms + database->settle_timeout_ms + GRACE_MS);
}

/* 55P03: a lock took longer than lock_timeout. 57014: the statement, than statement_timeout. */
static int is_blocked(const char *sqlstate)
{
	return strcmp(sqlstate, "55P03") == 0 || strcmp(sqlstate, "57014") == 0;
}

static enum database_event settle_ended(struct database *database)
{
	const char *sqlstate;

	database->state = IDLE;
	if (PQresultStatus(database->result) == PGRES_TUPLES_OK)
		return DATABASE_SETTLED;
	sqlstate = PQresultErrorField(database->result, PG_DIAG_SQLSTATE);
	snprintf(database->sqlstate, sizeof(database->sqlstate), "%s", sqlstate ? sqlstate : "");
	if (is_blocked(database->sqlstate)) {
		log_failure("settle_blocked", PQresultErrorMessage(database->result), 0);
		return DATABASE_BLOCKED;
	}
	log_failure("settle_refused", PQresultErrorMessage(database->result), 0);
	return DATABASE_REFUSED;
}

static enum database_event statement_step(struct database *database, int64_t now_ms)
{
	int ended = results_read(database);
	ExecStatusType status;

	if (ended < 0)
		return lost(database, NULL);
	if (!ended)
		return now_ms >= database->deadline_ms ? lost(database, "no answer in time")
						       : DATABASE_NOTHING;
	if (database->state == SETTLING)
		return settle_ended(database);
	if (database->state == ASKING) {
		settings_read(database);
		prepare_begin(database, now_ms);
		return DATABASE_NOTHING;
	}
	status = PQresultStatus(database->result);
	if (status != PGRES_COMMAND_OK)
		return lost(database, PQresultErrorMessage(database->result));
	if (database->state == LIMITING) {
		settle_send(database, database->args, now_ms);
		return DATABASE_NOTHING;
	}
	if (database->state == SETTING_UP) {
		sent(database, PQsendQuery(database->connection, sql_query_durability), ASKING,
		     now_ms + CONNECT_TIMEOUT_MS);
		return DATABASE_NOTHING;
	}
	database->state = IDLE;
	database->connected_ms = now_ms;
	log_info("database_connected", LOG_I("backend", PQbackendPID(database->connection)));
	return DATABASE_NOTHING;
}

/* Nothing is asked: what arrives is a notice, or the end of the connection. */
static void idle_step(struct database *database)
{
	if (!PQconsumeInput(database->connection) ||
	    PQstatus(database->connection) != CONNECTION_OK)
		lost(database, NULL);
}

enum database_event database_step(struct database *database, int64_t now_ms)
{
	switch (database->state) {
	case DOWN:
		if (now_ms >= database->deadline_ms)
			connect_begin(database, now_ms);
		return DATABASE_NOTHING;
	case CONNECTING:
		if (now_ms >= database->deadline_ms)
			return lost(database, "no connection in time");
		connect_step(database, now_ms);
		return DATABASE_NOTHING;
	case SETTING_UP:
	case ASKING:
	case PREPARING:
	case LIMITING:
	case SETTLING:
		return statement_step(database, now_ms);
	case IDLE:
		idle_step(database);
		return DATABASE_NOTHING;
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
		     int64_t lock_timeout_ms, int64_t now_ms)
{
	char statement[64];

	check(database_ready(database) && lock_timeout_ms > 0);
	if (lock_timeout_ms == database->lock_timeout_ms) {
		settle_send(database, args, now_ms);
		return;
	}
	snprintf(statement, sizeof(statement), "SET lock_timeout = %" PRId64, lock_timeout_ms);
	database->lock_timeout_ms = lock_timeout_ms; /* a failure loses the connection */
	database->args = args;
	sent(database, PQsendQuery(database->connection, statement), LIMITING,
	     now_ms + CONNECT_TIMEOUT_MS);
}

const PGresult *database_result(const struct database *database)
{
	return database->result;
}

const char *database_sqlstate(const struct database *database)
{
	return database->sqlstate;
}

int database_fd(const struct database *database)
{
	return database->connection ? PQsocket(database->connection) : -1;
}

short database_poll_events(const struct database *database)
{
	if (database->state == CONNECTING)
		return database->polling == PGRES_POLLING_READING ? POLLIN : POLLOUT;
	return database->flushing ? POLLIN | POLLOUT : POLLIN;
}

int64_t database_deadline_ms(const struct database *database)
{
	return database->state == IDLE ? INT64_MAX : database->deadline_ms;
}
