#include "common/postgres/connection.h"

#include "common/check.h"
#include "common/log/log.h"

#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum postgres_failure postgres_classify(const char *sqlstate)
{
	static const struct {
		const char *prefix; /* a whole SQLSTATE, or its class */
		enum postgres_failure failure;
	} table[] = {
		{ .prefix = "55P03", .failure = POSTGRES_BLOCKED },
		{ .prefix = "57014", .failure = POSTGRES_CANCELLED },
		{ .prefix = "22", .failure = POSTGRES_REFUSED },
		{ .prefix = "23", .failure = POSTGRES_REFUSED },
		{ .prefix = "40001", .failure = POSTGRES_AGAIN },
		{ .prefix = "40P01", .failure = POSTGRES_AGAIN },
	};

	if (!sqlstate || !*sqlstate)
		return POSTGRES_DOWN;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strncmp(sqlstate, table[i].prefix, strlen(table[i].prefix)) == 0)
			return table[i].failure;
	return POSTGRES_UNFIT;
}

int postgres_of_coupon(enum postgres_failure failure)
{
	switch (failure) {
	case POSTGRES_BLOCKED:
	case POSTGRES_CANCELLED:
	case POSTGRES_REFUSED:
	case POSTGRES_AGAIN:
		return 1;
	case POSTGRES_OK:
	case POSTGRES_UNFIT:
	case POSTGRES_DOWN:
		return 0;
	}
	return 0;
}

#define WHY_SIZE 512

enum state { DOWN, CONNECTING, SETTING, IDLE, BUSY };

struct postgres {
	struct postgres_options options;
	enum state state;
	PGconn *libpq;
	PostgresPollingStatusType polling; /* CONNECTING: what the next step waits for */
	int flushing;                      /* more to write than the socket took */
	int64_t deadline_ms;
	struct postgres_session session; /* its present settings */
	PGresult *result;                /* of the last statement; of several the first error */
	enum postgres_failure failure;
	char sqlstate[6];
	char why[WHY_SIZE], why_long[WHY_SIZE];
};

struct postgres *postgres_new(const struct postgres_options *options)
{
	struct postgres *postgres = calloc(1, sizeof(*postgres));

	check(postgres != NULL);
	postgres->options = *options;
	return postgres;
}

static void result_clear(struct postgres *postgres)
{
	PQclear(postgres->result);
	postgres->result = NULL;
}

/* The first line is the message; context and hints follow. */
static void why_keep(struct postgres *postgres, const char *message)
{
	size_t n;

	snprintf(postgres->why, WHY_SIZE, "%s", message);
	postgres->why[strcspn(postgres->why, "\n")] = '\0';
	snprintf(postgres->why_long, WHY_SIZE, "%s", message);
	n = strlen(postgres->why_long);
	while (n > 0 && strchr(" \n", postgres->why_long[n - 1]))
		postgres->why_long[--n] = '\0';
	for (char *p = postgres->why_long; *p; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
}

void postgres_drop(struct postgres *postgres, const char *why)
{
	if (why)
		why_keep(postgres, why);
	result_clear(postgres);
	PQfinish(postgres->libpq);
	postgres->libpq = NULL;
	postgres->state = DOWN;
	postgres->failure = POSTGRES_DOWN;
	postgres->sqlstate[0] = '\0';
}

void postgres_free(struct postgres *postgres)
{
	if (!postgres)
		return;
	postgres_drop(postgres, NULL);
	free(postgres);
}

static enum postgres_event lost(struct postgres *postgres, const char *why)
{
	postgres_drop(postgres, why ? why : PQerrorMessage(postgres->libpq));
	return POSTGRES_LOST;
}

/* libpq would write them to standard error, between the lines of the log. */
static void notice(void *data, const PGresult *result)
{
	const struct postgres *postgres = data;
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	char line[256];

	if (postgres->options.notice)
		postgres->options.notice(postgres->options.notice_context, text ? text : "");
	if (!postgres->options.notice_event)
		return;
	snprintf(line, sizeof(line), "%s", PQresultErrorMessage(result));
	line[strcspn(line, "\n")] = '\0';
	log_warn(postgres->options.notice_event, LOG_S("why", line));
}

int postgres_connect(struct postgres *postgres, const char *address, int64_t now_ms)
{
	/* The URL is expanded in place; keywords after it override its own. */
	const char *const keywords[] = { "dbname",
					 "application_name",
					 "tcp_user_timeout",
					 "keepalives_idle",
					 "keepalives_interval",
					 "keepalives_count",
					 address ? "hostaddr" : NULL,
					 NULL };
	const char *const values[] = { postgres->options.url,
				       postgres->options.application_name,
				       "10000",
				       "10",
				       "5",
				       "3",
				       address,
				       NULL };

	check(postgres->state == DOWN);
	postgres->libpq = PQconnectStartParams(keywords, values, 1);
	check(postgres->libpq != NULL);
	PQsetNoticeReceiver(postgres->libpq, notice, postgres);
	postgres->polling = PGRES_POLLING_WRITING;
	postgres->state = CONNECTING;
	postgres->deadline_ms = now_ms + postgres->options.connect_timeout_ms;
	if (PQstatus(postgres->libpq) != CONNECTION_BAD)
		return 0;
	lost(postgres, NULL);
	return -1;
}

/* A statement was handed to libpq; `done` is what that returned. */
static void sent(struct postgres *postgres, int done, enum state state, int64_t deadline_ms)
{
	result_clear(postgres);
	postgres->state = state;
	postgres->deadline_ms = deadline_ms;
	postgres->failure = POSTGRES_OK;
	postgres->sqlstate[0] = '\0';
	/* When it failed, the connection reports that at the next step. */
	postgres->flushing = done == 1;
}

/*
 * The settings of the session: without limits it would wait indefinitely for a lock that is never
 * released. Statements are short, but their estimated cost is not always: then PostgreSQL would
 * compile them first, for a quarter of a second in each new session.
 */
static void session_set(struct postgres *postgres)
{
	const struct postgres_options *options = &postgres->options;
	char sql[512];

	PQsetnonblocking(postgres->libpq, 1);
	postgres->session = (struct postgres_session){
		.lock_timeout_ms = options->lock_timeout_ms,
		.application_name = options->application_name,
	};
	check((size_t)snprintf(sql, sizeof(sql),
			       "SET statement_timeout = %" PRId64 "; SET lock_timeout = %" PRId64
			       "; SET jit = off; %s",
			       options->statement_timeout_ms, options->lock_timeout_ms,
			       options->session ? options->session : "") < sizeof(sql));
	sent(postgres, PQsendQuery(postgres->libpq, sql), SETTING, postgres->deadline_ms);
}

static enum postgres_event connect_step(struct postgres *postgres)
{
	struct pollfd pollfd = { .fd = PQsocket(postgres->libpq),
				 .events = postgres_poll_events(postgres) };

	if (poll(&pollfd, 1, 0) <= 0)
		return POSTGRES_NOTHING;
	postgres->polling = PQconnectPoll(postgres->libpq);
	if (postgres->polling == PGRES_POLLING_FAILED)
		return lost(postgres, NULL);
	if (postgres->polling == PGRES_POLLING_OK)
		session_set(postgres);
	return POSTGRES_NOTHING;
}

/* 1 when the statement has ended, 0 when it has not, -1 when the connection is lost. */
static int results_read(struct postgres *postgres)
{
	PGresult *result;

	if (postgres->flushing) {
		postgres->flushing = PQflush(postgres->libpq);
		if (postgres->flushing < 0)
			return -1;
	}
	if (!PQconsumeInput(postgres->libpq))
		return -1;
	while (!PQisBusy(postgres->libpq)) {
		result = PQgetResult(postgres->libpq);
		if (!result)
			return PQstatus(postgres->libpq) == CONNECTION_OK ? 1 : -1;
		/* COMMIT follows the rows: its failure is an error after a good result. */
		if (postgres->result && PQresultStatus(postgres->result) == PGRES_FATAL_ERROR) {
			PQclear(result);
			continue;
		}
		PQclear(postgres->result);
		postgres->result = result;
	}
	return 0;
}

static void failure_read(struct postgres *postgres)
{
	ExecStatusType status = PQresultStatus(postgres->result);
	const char *sqlstate;

	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY)
		return;
	sqlstate = PQresultErrorField(postgres->result, PG_DIAG_SQLSTATE);
	snprintf(postgres->sqlstate, sizeof(postgres->sqlstate), "%s", sqlstate ? sqlstate : "");
	postgres->failure = postgres_classify(sqlstate);
	why_keep(postgres, PQresultErrorMessage(postgres->result));
}

static void version_log(const PGconn *libpq)
{
	const char *version = PQparameterStatus(libpq, "server_version");

	service_version_log(SERVICE_POSTGRESQL, "PostgreSQL", version ? version : "");
}

static enum postgres_event statement_step(struct postgres *postgres, int64_t now_ms)
{
	int ended = results_read(postgres), setting = postgres->state == SETTING;

	if (ended < 0)
		return lost(postgres, NULL);
	if (!ended)
		return now_ms < postgres->deadline_ms ? POSTGRES_NOTHING
						      : lost(postgres, "no answer in time");
	failure_read(postgres);
	if (setting && postgres->failure != POSTGRES_OK)
		return lost(postgres, PQresultErrorMessage(postgres->result));
	postgres->state = IDLE;
	if (setting)
		version_log(postgres->libpq);
	return setting ? POSTGRES_CONNECTED : POSTGRES_ENDED;
}

/* Input at this point is a notice, a notification, or the end of the connection. */
static enum postgres_event idle_step(struct postgres *postgres)
{
	if (!PQconsumeInput(postgres->libpq) || PQstatus(postgres->libpq) != CONNECTION_OK)
		return lost(postgres, NULL);
	return POSTGRES_NOTHING;
}

enum postgres_event postgres_step(struct postgres *postgres, int64_t now_ms)
{
	switch (postgres->state) {
	case DOWN:
		return POSTGRES_NOTHING;
	case CONNECTING:
		return now_ms < postgres->deadline_ms ? connect_step(postgres)
						      : lost(postgres, "no connection in time");
	case SETTING:
	case BUSY:
		return statement_step(postgres, now_ms);
	case IDLE:
		return idle_step(postgres);
	}
	return POSTGRES_NOTHING;
}

/* The arguments as libpq takes them. */
struct libpq_arguments {
	char numbers[POSTGRES_ARGUMENTS_MAX][NUMBER_SIZE];
	const char *values[POSTGRES_ARGUMENTS_MAX];
	int lengths[POSTGRES_ARGUMENTS_MAX];
	int formats[POSTGRES_ARGUMENTS_MAX];
};

static void arguments_fill(struct libpq_arguments *to, int n,
			   const struct postgres_argument *arguments)
{
	check(n <= POSTGRES_ARGUMENTS_MAX);
	for (int i = 0; i < n; i++)
		to->values[i] = postgres_argument_value(&arguments[i], to->numbers[i],
							&to->lengths[i], &to->formats[i]);
}

void postgres_send(struct postgres *postgres, const char *sql, int n,
		   const struct postgres_argument *arguments, int64_t deadline_ms)
{
	struct libpq_arguments a;
	int done;

	check(postgres->state == IDLE);
	arguments_fill(&a, n, arguments);
	done = n == 0 ? PQsendQuery(postgres->libpq, sql)
		      : PQsendQueryParams(postgres->libpq, sql, n, NULL, a.values, a.lengths,
					  a.formats, 0);
	sent(postgres, done, BUSY, deadline_ms);
}

void postgres_send_binary(struct postgres *postgres, const char *sql, int n,
			  const struct postgres_argument *arguments, int64_t deadline_ms)
{
	struct libpq_arguments a;

	check(postgres->state == IDLE && n > 0);
	arguments_fill(&a, n, arguments);
	sent(postgres,
	     PQsendQueryParams(postgres->libpq, sql, n, NULL, a.values, a.lengths, a.formats, 1),
	     BUSY, deadline_ms);
}

void postgres_prepare(struct postgres *postgres, const char *name, const char *sql,
		      int64_t deadline_ms)
{
	check(postgres->state == IDLE);
	sent(postgres, PQsendPrepare(postgres->libpq, name, sql, 0, NULL), BUSY, deadline_ms);
}

void postgres_send_prepared(struct postgres *postgres, const char *name, int n,
			    const struct postgres_argument *arguments, int64_t deadline_ms)
{
	struct libpq_arguments a;

	check(postgres->state == IDLE);
	arguments_fill(&a, n, arguments);
	sent(postgres,
	     PQsendQueryPrepared(postgres->libpq, name, n, a.values, a.lengths, a.formats, 0), BUSY,
	     deadline_ms);
}

int postgres_set_session(struct postgres *postgres, const struct postgres_session *session,
			 int64_t deadline_ms)
{
	char sql[160];

	if (session->lock_timeout_ms == postgres->session.lock_timeout_ms &&
	    strcmp(session->application_name, postgres->session.application_name) == 0)
		return 0;
	check((size_t)snprintf(sql, sizeof(sql),
			       "SET lock_timeout = %" PRId64 "; SET application_name = '%s'",
			       session->lock_timeout_ms, session->application_name) < sizeof(sql));
	postgres_send(postgres, sql, 0, NULL, deadline_ms);
	postgres->session = *session;
	return 1;
}

enum postgres_failure postgres_failure(const struct postgres *postgres)
{
	return postgres->failure;
}

const char *postgres_sqlstate(const struct postgres *postgres)
{
	return postgres->sqlstate;
}

const PGresult *postgres_result(const struct postgres *postgres)
{
	return postgres->result;
}

PGresult *postgres_result_take(struct postgres *postgres)
{
	PGresult *result = postgres->result;

	postgres->result = NULL;
	return result;
}

const char *postgres_why(const struct postgres *postgres)
{
	return postgres->why;
}

const char *postgres_why_long(const struct postgres *postgres)
{
	return postgres->why_long;
}

int postgres_up(const struct postgres *postgres)
{
	return postgres->state >= IDLE;
}

int postgres_idle(const struct postgres *postgres)
{
	return postgres->state == IDLE;
}

PGconn *postgres_libpq(struct postgres *postgres)
{
	return postgres->libpq;
}

int postgres_fd(const struct postgres *postgres)
{
	return postgres->libpq ? PQsocket(postgres->libpq) : -1;
}

short postgres_poll_events(const struct postgres *postgres)
{
	if (postgres->state == CONNECTING)
		return postgres->polling == PGRES_POLLING_READING ? POLLIN : POLLOUT;
	return postgres->flushing ? POLLIN | POLLOUT : POLLIN;
}

int64_t postgres_deadline_ms(const struct postgres *postgres)
{
	return postgres->state == IDLE || postgres->state == DOWN ? INT64_MAX
								  : postgres->deadline_ms;
}
