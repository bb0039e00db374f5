#include "common/postgres/postgres_session.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/resolving.h"
#include "embed.h"

#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_SIZE 512
#define POSITION_SIZE 32
#define STATEMENT "prepared"
#define CHECK "commit_check" /* as SQL prepares it */
#define STEADY_MS 2000       /* a session that lasted this long resets the backoff */
#define LOOK_UP_MS 50        /* between two looks whether the name has been looked up */
#define HOST_MS 2000         /* the limit for one of several hosts; then the next one is tried */
#define LATE_LIMIT_MS 8000   /* at most, by doubling */
#define IDLE_SESSION_TIMEOUT "57P05"
/*
 * For so long after a session was connected, and after the server has read its settings again, a
 * COMMIT is shown by the standbys themselves: a session has new synchronous_standby_names before
 * the checkpointer has told all sessions to wait for them.
 */
#define NEW_NAMES_MS 60000
#define REACHED_AGAIN_MS 5 /* between two looks whether the standbys have reached a COMMIT */

enum state { DOWN, CONNECTING, SETTING, PROBING, CHECKING, PREPARING, IDLE, BUSY };

/* The parts of the pipeline of a statement whose COMMIT is judged; each ends with a Sync. */
enum commit_part { PART_BEFORE, PART_STATEMENT, PART_AFTER, PARTS_N };

struct postgres {
	struct postgres_options options;
	enum state state;
	PGconn *libpq;
	PostgresPollingStatusType polling; /* CONNECTING: what the next step waits for */
	int flushing;                      /* more to write than the socket took */
	const char *tried;                 /* CONNECTING: the host, as libpq has it */
	const char *proved;                /* the host whose pooler keeps sessions apart */
	int64_t probed_ms;                 /* PROBING: when the session was told to end, */
	int is_timely, is_expired;         /* it answered before it could, and it did */
	int64_t deadline_ms;
	PGresult *result;      /* of the last statement; if it was several, the first error */
	int is_in_doubt;       /* the COMMIT is only on this server */
	int is_judged;         /* the COMMIT is judged by the two checks around it */
	enum commit_part part; /* the current one of the pipeline; PARTS_N: it is over */
	struct postgres_commit commit;
	char position[POSITION_SIZE]; /* in the WAL after the COMMIT; "": not read yet */
	int64_t reached_again_ms;     /* the next look at the standbys; 0: none waits */
	enum postgres_failure failure;
	char sqlstate[6];
	char why[WHY_SIZE], why_long[WHY_SIZE];
	/* The session: */
	int64_t lock_timeout_ms;
	const char *application_name;
	int64_t since_ms;
	char loaded[POSTGRES_LOADED_SIZE]; /* when the server has read its settings */
	int64_t new_names_ms;              /* until then the standbys are asked after each COMMIT */
	uint64_t connects_n;
	/* The attempts to connect: */
	char *host; /* the name that another thread looks up; NULL: none */
	struct resolving *resolving;
	size_t hosts_n;   /* how many the URL has */
	size_t host_at;   /* the one that is connected, or with which the next attempt begins */
	int64_t retry_ms; /* no attempt before this time */
	struct backoff backoff;
	size_t late_n;       /* attempts in a row that took too long */
	char told[WHY_SIZE]; /* the reason that was logged last, until it is up again */
};

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

struct postgres *postgres_new(const struct postgres_options *options)
{
	struct postgres *postgres = calloc(1, sizeof(*postgres));

	check(postgres != NULL && (options->reconnects || !options->looks_up));
	postgres->options = *options;
	if (options->looks_up)
		postgres->host = postgres_url_host(options->url);
	postgres->hosts_n = postgres_url_hosts_n(options->url);
	why_keep(postgres, "connecting");
	return postgres;
}

static void result_clear(struct postgres *postgres)
{
	PQclear(postgres->result);
	postgres->result = NULL;
}

void postgres_close(struct postgres *postgres)
{
	result_clear(postgres);
	PQfinish(postgres->libpq);
	postgres->libpq = NULL;
	postgres->proved = NULL;
	resolving_abandon(postgres->resolving);
	postgres->resolving = NULL;
	postgres->state = DOWN;
	postgres->reached_again_ms = 0;
	postgres->failure = POSTGRES_DOWN;
	postgres->sqlstate[0] = '\0';
}

void postgres_free(struct postgres *postgres)
{
	if (!postgres)
		return;
	postgres_close(postgres);
	free(postgres->host);
	free(postgres);
}

/*
 * Begins the pause, and returns how long it is. The next attempt does not begin with the same host:
 * it may be gone, and would take its time again.
 */
static int64_t pause_begin(struct postgres *postgres)
{
	int64_t now_ms = clock_monotonic_ms(), wait_ms = 0;

	postgres->host_at++; /* the next host */
	if (postgres_up(postgres) && now_ms - postgres->since_ms >= STEADY_MS)
		backoff_reset(&postgres->backoff);
	if (postgres->options.reconnects)
		wait_ms = backoff_connect_ms(&postgres->backoff);
	postgres->retry_ms = now_ms + wait_ms;
	return wait_ms;
}

/* Ends the session or the attempt, and logs that. `why` NULL: the reason was kept before. */
static void down(struct postgres *postgres, const char *why)
{
	const char *event;
	int64_t wait_ms;
	int was_up;

	if (why)
		why_keep(postgres, why);
	wait_ms = pause_begin(postgres);
	was_up = postgres_up(postgres);
	event = was_up ? postgres->options.lost_event : postgres->options.unreachable_event;
	if (event && (was_up || strcmp(postgres->told, postgres->why) != 0)) {
		memcpy(postgres->told, postgres->why, sizeof(postgres->told));
		if (wait_ms)
			log_warn(event, LOG_S("why", postgres->why), LOG_I("again_in_ms", wait_ms));
		else
			log_warn(event, LOG_S("why", postgres->why));
	}
	postgres_close(postgres);
}

void postgres_leave(struct postgres *postgres, const char *why)
{
	why_keep(postgres, why);
	pause_begin(postgres);
	postgres_close(postgres);
}

void postgres_lose(struct postgres *postgres, const char *why)
{
	if (postgres_up(postgres))
		down(postgres, why);
}

void postgres_fail(struct postgres *postgres)
{
	if (!postgres_of_coupon(postgres->failure))
		postgres_lose(postgres, NULL);
	else if (postgres->options.refused_event)
		log_warn(postgres->options.refused_event, LOG_S("why", postgres->why));
}

/* Does what down() does, but NULL stands for the reason that libpq gives. */
static enum postgres_event lost(struct postgres *postgres, const char *why)
{
	down(postgres, why ? why : PQerrorMessage(postgres->libpq));
	return POSTGRES_LOST;
}

/*
 * Takes what the server notes; libpq would write it to standard error, between the lines of the
 * log. A COMMIT that is cancelled while it waits for a synchronous standby succeeds, with a
 * warning. Its text depends on lc_messages, and functions may RAISE a WARNING with the same
 * SQLSTATE.
 */
static void notice(void *data, const PGresult *result)
{
	struct postgres *postgres = data;
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY),
		   *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE),
		   *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
	char line[256];

	if (postgres->state == PROBING) {
		postgres->is_expired |= sqlstate && strcmp(sqlstate, IDLE_SESSION_TIMEOUT) == 0;
		return;
	}
	postgres->is_in_doubt |= sqlstate && function && strcmp(sqlstate, "01000") == 0 &&
				 strcmp(function, "SyncRepWaitForLSN") == 0;
	if (postgres->options.notice)
		postgres->options.notice(postgres->options.context, text ? text : "");
	if (!postgres->options.notice_event)
		return;
	snprintf(line, sizeof(line), "%s", PQresultErrorMessage(result));
	line[strcspn(line, "\n")] = '\0';
	log_warn(postgres->options.notice_event, LOG_S("why", line));
}

#define OWN_KEYWORDS 5
#define HOST_KEYWORDS 3
#define TEXT(number) #number
#define STRING(constant) TEXT(constant)

/*
 * Limits the time of the host that libpq has come to: libpq does not. When many processes connect
 * at once, for instance after a restart of PostgreSQL, connecting may take all of them longer than
 * the limit. Attempts that are broken off and repeated only add to that load, so the limit doubles
 * with each round of the hosts that took too long.
 */
static void host_begin(struct postgres *postgres, int64_t now_ms)
{
	int64_t limit_ms = postgres->options.connect_timeout_ms;
	size_t rounds_n = postgres->late_n / postgres->hosts_n;

	if (postgres->hosts_n > 1 && limit_ms > HOST_MS)
		limit_ms = HOST_MS;
	for (; rounds_n > 0 && limit_ms * 2 <= LATE_LIMIT_MS; rounds_n--)
		limit_ms *= 2;
	postgres->tried = PQhost(postgres->libpq);
	postgres->deadline_ms = now_ms + limit_ms;
}

/* To be called when libpq has begun to connect. 0, or -1. */
static int connecting_begin(struct postgres *postgres, int64_t now_ms)
{
	char why[WHY_SIZE];

	postgres->polling = PGRES_POLLING_WRITING;
	postgres->state = CONNECTING;
	host_begin(postgres, now_ms);
	if (PQstatus(postgres->libpq) == CONNECTION_BAD)
		lost(postgres, NULL);
	else if (postgres_files_check(postgres->libpq, why, sizeof(why)))
		lost(postgres, why);
	else
		return 0;
	return -1;
}

/* `address` is the address of the URL's host; with NULL libpq looks it up, and blocks meanwhile. */
static int connect_start(struct postgres *postgres, const char *address, int64_t now_ms)
{
	static const char *const lists[HOST_KEYWORDS] = { "host", "hostaddr", "port" };
	/* The URL is expanded in place; keywords after it override its own. NULL ends them. */
	const char *keywords[OWN_KEYWORDS + HOST_KEYWORDS + 1] = {
		"dbname",          "application_name",    "tcp_user_timeout",
		"keepalives_idle", "keepalives_interval", address ? "hostaddr" : NULL
	};
	const char *values[OWN_KEYWORDS + HOST_KEYWORDS + 1] = {
		postgres->options.url,   postgres->options.application_name,
		STRING(SILENCE_MS),      STRING(SILENCE_IDLE_S),
		STRING(SILENCE_PROBE_S), address
	};
	char *rotated[HOST_KEYWORDS] = { NULL };
	PQconninfoOption *options = NULL;
	size_t n = 0;

	/* Begin with another host than the last attempt. */
	if (!address)
		options = checked(PQconninfoParse(postgres->options.url, NULL));
	for (size_t i = 0; options && i < HOST_KEYWORDS; i++) {
		rotated[n] = postgres_list_rotate(postgres_option(options, lists[i]),
						  postgres->host_at);
		if (!rotated[n])
			continue;
		keywords[OWN_KEYWORDS + n] = lists[i];
		values[OWN_KEYWORDS + n] = rotated[n];
		n++;
	}
	PQconninfoFree(options);

	postgres->libpq = checked(PQconnectStartParams(keywords, values, 1));
	for (size_t i = 0; i < n; i++)
		free(rotated[i]);
	PQsetNoticeReceiver(postgres->libpq, notice, postgres);
	return connecting_begin(postgres, now_ms);
}

int postgres_connect(struct postgres *postgres, int64_t now_ms)
{
	char address[RESOLVED_SIZE], error[WHY_SIZE];
	int found;

	check(postgres->state == DOWN);
	if (now_ms < postgres->retry_ms)
		return -1;
	if (postgres_service_check(postgres->options.url, error, sizeof(error))) {
		lost(postgres, error);
		return -1;
	}
	if (!postgres->host)
		return connect_start(postgres, NULL, now_ms);
	found = resolving_step(&postgres->resolving, postgres->host, address, error, sizeof(error));
	if (found > 0)
		return connect_start(postgres, address, now_ms);
	if (found < 0) {
		lost(postgres, error);
		return -1;
	}
	why_keep(postgres, error);
	postgres->retry_ms = now_ms + LOOK_UP_MS;
	return 0;
}

/* To be called when a statement was handed to libpq; `done` is what that returned. */
static void sent(struct postgres *postgres, int done, enum state state, int64_t deadline_ms)
{
	result_clear(postgres);
	postgres->state = state;
	postgres->deadline_ms = deadline_ms;
	postgres->failure = POSTGRES_OK;
	postgres->is_in_doubt = postgres->is_judged = 0;
	postgres->part = PARTS_N;
	postgres->reached_again_ms = 0;
	postgres->sqlstate[0] = '\0';
	/* When it failed, the connection reports that at the next step. */
	postgres->flushing = done == 1;
}

/*
 * How the server reads statements and writes results. The environment, the connection string, the
 * role and the database may each have settings that change what is stored: with another encoding
 * the bytes of a text are taken for other characters, with another search_path tables are made, or
 * looked for, in another schema. Below NOTICE the server would not tell of a COMMIT that is only on
 * itself.
 */
#define OWN_SETTINGS                                                                         \
	"SET client_encoding = 'UTF8'; SET search_path = public, pg_temp;"                   \
	" SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres';" \
	" SET standard_conforming_strings = on; SET bytea_output = 'hex';"                   \
	" SET client_min_messages = 'notice'"

static enum postgres_event connect_step(struct postgres *postgres, int64_t now_ms)
{
	const struct postgres_options *options = &postgres->options;
	struct pollfd pollfd = { .fd = PQsocket(postgres->libpq),
				 .events = postgres_poll_events(postgres) };
	char sql[4096];

	if (poll(&pollfd, 1, 0) <= 0)
		return POSTGRES_NOTHING;
	postgres->polling = PQconnectPoll(postgres->libpq);
	if (postgres->polling == PGRES_POLLING_FAILED)
		return lost(postgres, NULL);
	if (postgres->tried != PQhost(postgres->libpq)) {
		postgres->host_at++;
		host_begin(postgres, now_ms);
	}
	if (postgres->polling != PGRES_POLLING_OK)
		return POSTGRES_NOTHING;

	/*
	 * Set the session. Without limits it would wait indefinitely for a lock that is never
	 * released. Statements are short, but their estimated cost is not always: then PostgreSQL
	 * would compile them first, for a quarter of a second in each new session.
	 */
	PQsetnonblocking(postgres->libpq, 1);
	postgres->lock_timeout_ms = options->lock_timeout_ms;
	postgres->application_name = options->application_name;
	check((size_t)snprintf(
		      sql, sizeof(sql),
		      OWN_SETTINGS
		      "; SET statement_timeout = %" PRId64 "; SET lock_timeout = %" PRId64
		      "; SET jit = off; SET default_transaction_isolation = 'read committed'; %s"
		      "%s%s; SELECT pg_backend_pid()",
		      options->statement_timeout_ms, options->lock_timeout_ms,
		      options->session ? options->session : "",
		      options->is_synchronous ? "; PREPARE " CHECK " AS " : "",
		      options->is_synchronous ? sql_query_commit_check : "") < sizeof(sql));
	sent(postgres, PQsendQuery(postgres->libpq, sql), SETTING, postgres->deadline_ms);
	return POSTGRES_NOTHING;
}

/* Takes what a check has returned, before the statement or after it. */
static void check_read(struct postgres *postgres, const PGresult *rows)
{
	struct postgres_commit *commit = &postgres->commit;
	int64_t now_ms = clock_monotonic_ms();
	const char *loaded, *why;

	if (PQresultStatus(rows) != PGRES_TUPLES_OK) {
		snprintf(commit->why, sizeof(commit->why), "%s", PQresultErrorMessage(rows));
		commit->why[strcspn(commit->why, "\n")] = '\0';
		return;
	}
	why = column_text(rows, 0, "why");
	if (!*commit->why)
		snprintf(commit->why, sizeof(commit->why), "%s", why);
	loaded = column_text(rows, 0, "loaded");
	snprintf(postgres->part == PART_BEFORE ? commit->before : commit->after,
		 POSTGRES_LOADED_SIZE, "%s", loaded);
	if (strcmp(postgres->loaded, loaded) != 0) {
		snprintf(postgres->loaded, sizeof(postgres->loaded), "%s", loaded);
		postgres->new_names_ms = now_ms + NEW_NAMES_MS;
	}
	commit->is_new |= now_ms < postgres->new_names_ms;
	if (!*postgres->position)
		snprintf(postgres->position, POSITION_SIZE, "%s", column_text(rows, 0, "position"));
	commit->is_reached = *column_text(rows, 0, "is_reached") == 't';
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
	if (postgres_input_read(postgres->libpq))
		return -1;
	while (!PQisBusy(postgres->libpq)) {
		result = PQgetResult(postgres->libpq);
		if (!result && PQstatus(postgres->libpq) != CONNECTION_OK)
			return -1;
		if (!result && postgres->part == PARTS_N)
			return 1;
		if (!result)
			continue;
		if (PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
			PQclear(result);
			if (++postgres->part == PARTS_N)
				return PQexitPipelineMode(postgres->libpq) == 1 ? 1 : -1;
			continue;
		}
		if (postgres->is_judged && postgres->part != PART_STATEMENT) {
			check_read(postgres, result);
			PQclear(result);
			continue;
		}
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

#define UNMIGRATED_TEXT "the database is not migrated to this version, run couponctl migrate: "

static void notifications_pass(struct postgres *postgres)
{
	PGnotify *notify;

	while ((notify = PQnotifies(postgres->libpq))) {
		if (postgres->options.notified)
			postgres->options.notified(postgres->options.context, notify->extra);
		PQfreemem(notify);
	}
}

static enum postgres_event connected(struct postgres *postgres)
{
	const char *version = PQparameterStatus(postgres->libpq, "server_version");

	postgres->state = IDLE;
	postgres->since_ms = clock_monotonic_ms();
	postgres->new_names_ms = postgres->since_ms + NEW_NAMES_MS;
	postgres->connects_n++;
	postgres->late_n = 0;
	postgres->told[0] = '\0';
	service_version_log(SERVICE_POSTGRESQL, "PostgreSQL", version ? version : "");
	if (postgres->options.notified)
		postgres->options.notified(postgres->options.context, NULL);
	return POSTGRES_CONNECTED;
}

#define PROBE_MS 100
#define PROBE "SET idle_session_timeout = " STRING(PROBE_MS)
#define POOLER_TEXT \
	"pool_mode of the pooler is not session: each transaction may run in another session"

/*
 * A pooler is probed: PostgreSQL ends this session once it is idle. If the pooler has kept it for
 * this connection, that ends with it, and another one is opened. If not, the connection goes on
 * with other sessions: without its settings, and maybe of another server, which was not compared.
 *
 * The end counts if the answer came before it can have been sent: else a pooler that was slow may
 * have passed on both before it took the session back.
 */
static enum postgres_event probe_step(struct postgres *postgres, int64_t now_ms)
{
	int rc = results_read(postgres);

	postgres->is_timely |= rc > 0 && clock_monotonic_ms() - postgres->probed_ms < PROBE_MS;
	if (postgres->is_timely && postgres->is_expired) {
		postgres->proved = PQhost(postgres->libpq);
		PQresetStart(postgres->libpq);
		return connecting_begin(postgres, now_ms) ? POSTGRES_LOST : POSTGRES_NOTHING;
	}
	if (rc < 0)
		return lost(postgres, NULL);
	return now_ms < postgres->deadline_ms ? POSTGRES_NOTHING : lost(postgres, POOLER_TEXT);
}

/* `position` is the argument of commit_check. Returns 1, or 0, as libpq does. */
static int check_send(struct postgres *postgres, const char *position)
{
	return PQsendQueryPrepared(postgres->libpq, CHECK, 1, &position, NULL, NULL, 0);
}

static enum postgres_event statement_ended(struct postgres *postgres, int64_t now_ms)
{
	const struct postgres_options *options = &postgres->options;
	struct postgres_commit *commit = &postgres->commit;
	ExecStatusType status = PQresultStatus(postgres->result);
	char why[WHY_SIZE];
	const char *sqlstate;
	int is_void, is_unmigrated;

	if (postgres->is_in_doubt)
		return lost(postgres, POSTGRES_IN_DOUBT_TEXT);
	if (postgres->state == CHECKING && *commit->why)
		return lost(postgres, commit->why);

	/* Take the failure of the statement, if it has failed. */
	if (postgres->state != CHECKING && status != PGRES_COMMAND_OK &&
	    status != PGRES_TUPLES_OK && status != PGRES_EMPTY_QUERY) {
		sqlstate = PQresultErrorField(postgres->result, PG_DIAG_SQLSTATE);
		postgres->failure = postgres_classify(sqlstate);
		sqlstate = sqlstate ? sqlstate : "";
		snprintf(postgres->sqlstate, sizeof(postgres->sqlstate), "%s", sqlstate);
		/* No such table, column or function: all statements are those of the program. */
		is_unmigrated = strcmp(sqlstate, "42P01") == 0 || strcmp(sqlstate, "42703") == 0 ||
				strcmp(sqlstate, "42883") == 0;
		snprintf(why, sizeof(why), "%s%s", is_unmigrated ? UNMIGRATED_TEXT : "",
			 PQresultErrorMessage(postgres->result));
		why_keep(postgres, why);
	}

	/* After an error there was no COMMIT; a look-up without rows has seen none. */
	if (postgres->state == BUSY && postgres->is_judged && postgres->failure == POSTGRES_OK &&
	    (!options->judged || PQntuples(postgres->result) > 0)) {
		switch (postgres_commit_judge(commit)) {
		case POSTGRES_SHOWN:
			break;
		case POSTGRES_AWAITED:
			postgres->reached_again_ms = now_ms + REACHED_AGAIN_MS;
			return POSTGRES_NOTHING;
		case POSTGRES_UNSHOWN:
			snprintf(why, sizeof(why), POSTGRES_UNSHOWN_TEXT ": %s", commit->why);
			if (!options->judged)
				return lost(postgres, why);
			/* A session that only looks something up goes on: the look-up fails. */
			why_keep(postgres, why);
			result_clear(postgres);
			postgres->failure = POSTGRES_UNFIT;
			postgres->state = IDLE;
			return POSTGRES_ENDED;
		}
	}

	/* The prepared statement may be gone, or its result may have another type. */
	is_void = options->prepared && (strcmp(postgres->sqlstate, "26000") == 0 ||
					strcmp(postgres->sqlstate, "0A000") == 0);
	if (postgres->failure != POSTGRES_OK && (postgres->state != BUSY || is_void)) {
		down(postgres, NULL);
		return POSTGRES_LOST;
	}

	/* Probe what has a connection of its own to PostgreSQL: something is between. */
	if (postgres->state == SETTING &&
	    number_at(postgres->result, 0, 0) != PQbackendPID(postgres->libpq) &&
	    postgres->proved != PQhost(postgres->libpq)) {
		postgres->probed_ms = clock_monotonic_ms();
		postgres->is_timely = postgres->is_expired = 0;
		sent(postgres, PQsendQuery(postgres->libpq, PROBE), PROBING, postgres->deadline_ms);
		return POSTGRES_NOTHING;
	}
	/*
	 * Check whether the server waits for a standby at each COMMIT, and this role sees which it
	 * is. While no standby is waited for, nothing begins: there is no session.
	 */
	if (postgres->state == SETTING && options->is_synchronous && !options->judged) {
		sent(postgres, check_send(postgres, NULL), CHECKING,
		     now_ms + options->connect_timeout_ms);
		*commit = (struct postgres_commit){ .is_new = 1 };
		postgres->is_judged = 1;
		return POSTGRES_NOTHING;
	}
	if (postgres->state != BUSY && postgres->state != PREPARING && options->prepared) {
		sent(postgres,
		     PQsendPrepare(postgres->libpq, STATEMENT, options->prepared, 0, NULL),
		     PREPARING, now_ms + options->connect_timeout_ms);
		return POSTGRES_NOTHING;
	}
	if (postgres->state != BUSY)
		return connected(postgres);
	postgres->is_judged = 0;
	postgres->state = IDLE;
	notifications_pass(postgres);
	return POSTGRES_ENDED;
}

static enum postgres_event statement_step(struct postgres *postgres, int64_t now_ms)
{
	int ended;

	/* Ask whether each synchronous standby has what this server had after the COMMIT. */
	if (postgres->reached_again_ms > 0 && now_ms < postgres->deadline_ms) {
		if (now_ms < postgres->reached_again_ms)
			return POSTGRES_NOTHING;
		postgres->reached_again_ms = 0;
		postgres->flushing = check_send(postgres, postgres->position) == 1;
	}
	ended = postgres->reached_again_ms > 0 ? 0 : results_read(postgres);
	if (ended < 0)
		return lost(postgres, NULL);
	if (ended)
		return statement_ended(postgres, now_ms);
	if (now_ms < postgres->deadline_ms)
		return POSTGRES_NOTHING;
	/* Each part of the pipeline has ended, and the standbys were asked. */
	if (postgres->state == BUSY && postgres->is_judged && postgres->part == PARTS_N)
		return lost(postgres, POSTGRES_UNSHOWN_TEXT ": " POSTGRES_NOT_REACHED_TEXT);
	postgres->late_n += postgres->state != BUSY;
	return lost(postgres, "no answer in time");
}

enum postgres_event postgres_step(struct postgres *postgres, int64_t now_ms)
{
	switch (postgres->state) {
	case DOWN:
		if (!postgres->options.reconnects || now_ms < postgres->retry_ms)
			return POSTGRES_NOTHING;
		return postgres_connect(postgres, now_ms) ? POSTGRES_LOST : POSTGRES_NOTHING;
	case CONNECTING:
		if (now_ms < postgres->deadline_ms)
			return connect_step(postgres, now_ms);
		postgres->late_n++;
		return lost(postgres, "no connection in time");
	case PROBING:
		return probe_step(postgres, now_ms);
	case SETTING:
	case CHECKING:
	case PREPARING:
	case BUSY:
		return statement_step(postgres, now_ms);
	case IDLE: /* input is a notice, a notification, or the end of the connection */
		if (postgres_input_read(postgres->libpq) ||
		    PQstatus(postgres->libpq) != CONNECTION_OK)
			return lost(postgres, NULL);
		notifications_pass(postgres);
		return POSTGRES_NOTHING;
	}
	return POSTGRES_NOTHING;
}

/* Whether the statement's COMMIT is judged: within a transaction only that of COMMIT itself. */
static int is_to_be_judged(const struct postgres *postgres, const char *sql)
{
	const struct postgres_options *options = &postgres->options;

	if (!options->is_synchronous || options->judged)
		return options->is_synchronous && sql == options->judged;
	if (PQtransactionStatus(postgres->libpq) == PQTRANS_IDLE)
		return strncmp(sql, "BEGIN", 5) != 0;
	return PQtransactionStatus(postgres->libpq) == PQTRANS_INTRANS &&
	       strncmp(sql, "COMMIT", 6) == 0;
}

void postgres_send(struct postgres *postgres, const char *sql, int n,
		   const struct postgres_argument *arguments, int64_t deadline_ms)
{
	char numbers[POSTGRES_ARGUMENTS_MAX][NUMBER_SIZE];
	const char *values[POSTGRES_ARGUMENTS_MAX];
	int lengths[POSTGRES_ARGUMENTS_MAX], formats[POSTGRES_ARGUMENTS_MAX], done = 1, is_new;
	int is_judged;

	check(postgres->state == IDLE && n <= POSTGRES_ARGUMENTS_MAX);
	is_judged = is_to_be_judged(postgres, sql);
	is_new = clock_monotonic_ms() < postgres->new_names_ms;
	for (int i = 0; i < n; i++)
		values[i] = postgres_argument_value(&arguments[i], numbers[i], &lengths[i],
						    &formats[i]);
	if (is_judged)
		done = PQenterPipelineMode(postgres->libpq) && check_send(postgres, NULL) &&
		       PQpipelineSync(postgres->libpq);
	if (sql == postgres->options.prepared)
		done &= PQsendQueryPrepared(postgres->libpq, STATEMENT, n, values, lengths, formats,
					    0);
	else if (n == 0 && sql != postgres->options.binary && !is_judged)
		done &= PQsendQuery(postgres->libpq, sql);
	else
		done &= PQsendQueryParams(postgres->libpq, sql, n, NULL, values, lengths, formats,
					  sql == postgres->options.binary);
	if (is_judged)
		done &= PQpipelineSync(postgres->libpq) &&
			check_send(postgres, is_new ? "" : NULL) && PQpipelineSync(postgres->libpq);
	sent(postgres, done, BUSY, deadline_ms);
	if (!is_judged)
		return;
	postgres->is_judged = 1;
	postgres->part = PART_BEFORE;
	postgres->commit = (struct postgres_commit){ .is_new = is_new };
	postgres->position[0] = '\0';
}

void postgres_judge(struct postgres *postgres)
{
	postgres->options.judged = NULL;
}

int postgres_set(struct postgres *postgres, int64_t lock_timeout_ms, const char *application_name,
		 int64_t deadline_ms)
{
	char sql[160];

	if (lock_timeout_ms == postgres->lock_timeout_ms &&
	    strcmp(application_name, postgres->application_name) == 0)
		return 0;
	check((size_t)snprintf(sql, sizeof(sql),
			       "SET lock_timeout = %" PRId64 "; SET application_name = '%s'",
			       lock_timeout_ms, application_name) < sizeof(sql));
	check(postgres->state == IDLE);
	sent(postgres, PQsendQuery(postgres->libpq, sql), BUSY, deadline_ms);
	postgres->lock_timeout_ms = lock_timeout_ms;
	postgres->application_name = application_name;
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

size_t postgres_tries_n(const struct postgres *postgres)
{
	return postgres->options.reconnects ? 1 : postgres->hosts_n;
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

int64_t postgres_since_ms(const struct postgres *postgres)
{
	return postgres->since_ms;
}

uint64_t postgres_connects_n(const struct postgres *postgres)
{
	return postgres->connects_n;
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
	if (postgres->state == DOWN)
		return postgres->options.reconnects ? postgres->retry_ms : INT64_MAX;
	if (postgres->reached_again_ms > 0 && postgres->reached_again_ms < postgres->deadline_ms)
		return postgres->reached_again_ms;
	return postgres->state == IDLE ? INT64_MAX : postgres->deadline_ms;
}
