#include "events/event_log.h"

#include "common/check.h"
#include "common/log/log.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

#define LOCK_NAME "couponmq:events"
#define CONNECT_TIMEOUT_MS 3000
#define STATEMENT_TIMEOUT_MS 20000
#define GRACE_MS 1000 /* the server's timeout expires before ours */

/*
 * A relay that is frozen, or whose machine is gone, must lose its lock: its session ends. A
 * removal that is lost only makes copies, so it does not wait for the disk. The plans must not
 * depend on the size that the log had when it was analyzed.
 */
#define SESSION                                                                              \
	"SET idle_session_timeout = '60s'; SET tcp_keepalives_idle = 10;"                    \
	"SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4;"                     \
	"SET synchronous_commit = off; SET enable_seqscan = off; SET enable_hashjoin = off;" \
	"SET enable_mergejoin = off"

struct event_log {
	struct postgres *postgres;
	struct postgres_patience patience;
	int is_held;
};

struct event_log *event_log_new(const char *url, int (*waiting)(void *context), void *context)
{
	struct event_log *log = calloc(1, sizeof(*log));
	const struct postgres_options options = {
		.url = url,
		.application_name = "coupon-relay",
		.connect_timeout_ms = CONNECT_TIMEOUT_MS,
		.statement_timeout_ms = STATEMENT_TIMEOUT_MS,
		.session = SESSION,
		.notice_event = "relay_database_notice",
	};

	check(log != NULL);
	log->postgres = postgres_new(&options);
	log->patience = (struct postgres_patience){ .timeout_ms = STATEMENT_TIMEOUT_MS + GRACE_MS,
						    .waiting = waiting,
						    .context = context };
	return log;
}

void event_log_free(struct event_log *log)
{
	postgres_free(log->postgres);
	free(log);
}

void event_log_close(struct event_log *log)
{
	postgres_drop(log->postgres, NULL);
	log->is_held = 0;
}

static int failed(struct event_log *log, const char *event)
{
	log_warn(event, LOG_S("why", postgres_why(log->postgres)));
	event_log_close(log);
	return -1;
}

typedef PGresult *query_fn(struct postgres *postgres, const char *sql, int n,
			   const struct postgres_argument *arguments,
			   const struct postgres_patience *patience);

/* postgres_query() or postgres_query_binary(). NULL: failed. */
static PGresult *query(struct event_log *log, query_fn *run, const char *sql, int n,
		       const struct postgres_argument *arguments)
{
	PGresult *result = run(log->postgres, sql, n, arguments, &log->patience);

	if (!result)
		failed(log, "relay_database_lost");
	return result;
}

/* The same where the lock is held. It is lost with its session: nothing runs in another one. */
static PGresult *query_held(struct event_log *log, query_fn *run, const char *sql, int n,
			    const struct postgres_argument *arguments)
{
	return log->is_held ? query(log, run, sql, n, arguments) : NULL;
}

/* The first column of a result of one row, which is a truth value; -1: there is no result. */
static int truth_take(PGresult *result)
{
	int truth = result ? strcmp(PQgetvalue(result, 0, 0), "t") == 0 : -1;

	PQclear(result);
	return truth;
}

static int lock_try(struct event_log *log)
{
	const struct postgres_argument arguments[] = { postgres_text(LOCK_NAME),
						       postgres_text("write") };

	return truth_take(query(log, postgres_query, sql_query_lock_try, 2, arguments));
}

int event_log_open(struct event_log *log)
{
	int locked;

	if (!postgres_up(log->postgres)) {
		log->is_held = 0;
		if (postgres_open(log->postgres))
			return failed(log, "relay_database_unreachable");
	}
	if (log->is_held)
		return 1;
	locked = lock_try(log);
	if (locked > 0)
		log_info("relay_elected", LOG_S("lock", LOCK_NAME));
	log->is_held = locked > 0;
	return locked;
}

int event_log_webhooks(struct event_log *log)
{
	return truth_take(query_held(log, postgres_query, sql_query_event_webhooks, 0, NULL));
}

PGresult *event_log_read(struct event_log *log, int rows_max, int64_t events_max)
{
	const struct postgres_argument arguments[] = { postgres_number(rows_max),
						       postgres_number(events_max) };

	return query_held(log, postgres_query_binary, sql_query_event_log_read, 2, arguments);
}

int event_log_remove(struct event_log *log, const struct event_log_done *done)
{
	const struct postgres_argument arguments[] = {
		postgres_array(&done->ids),
		postgres_array(&done->coupons),
		postgres_array(&done->types),
		postgres_array(&done->events),
	};
	PGresult *result = query_held(log, postgres_query, sql_query_event_log_remove, 4,
				      arguments);

	PQclear(result);
	return result ? 0 : -1;
}

static int64_t number(const PGresult *result, const char *column)
{
	return strtoll(PQgetvalue(result, 0, PQfnumber(result, column)), NULL, 10);
}

int event_log_lag(struct event_log *log, struct event_lag *lag)
{
	PGresult *result = query_held(log, postgres_query, sql_query_event_log_lag, 0, NULL);

	if (!result)
		return -1;
	*lag = (struct event_lag){
		.events = number(result, "events_num"),
		.age_ms = number(result, "age_ms"),
		.size_bytes = number(result, "size_bytes"),
	};
	PQclear(result);
	return 0;
}
