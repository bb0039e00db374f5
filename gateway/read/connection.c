#include "gateway/read/connection.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/postgres/connection.h"
#include "common/postgres/url.h"
#include "common/resolving.h"
#include "common/serve/loop.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 50
#define TROUBLE_SIZE 256

#define STATEMENT "prepared"

enum state { DOWN, CONNECTING, PREPARING, READY };

struct read_connection {
	struct read_connection_port port;
	struct read_connection_options options;
	struct event_base *base;
	char *url;
	char *host; /* its one host's name, which another thread looks up; NULL: there is none */
	struct resolving *resolving;
	struct postgres *postgres;
	enum state state;
	int closing;
	int64_t retry_ms;
	struct backoff backoff;
	struct event *socket;  /* of the connection, for what it waits for now */
	struct ticker *ticker; /* while it is not ready, or a statement is in flight */
	char trouble[TROUBLE_SIZE];
	char told[TROUBLE_SIZE]; /* the reason that was logged last, until it is ready again */
	uint64_t connects_n;
};

static void state_set(struct read_connection *connection, enum state state)
{
	static const char *const names[] = { "down", "connecting", "preparing", "ready" };
	static const unsigned allowed[] = {
		[DOWN] = 1u << CONNECTING | 1u << DOWN,
		[CONNECTING] = 1u << PREPARING | 1u << READY | 1u << DOWN,
		[PREPARING] = 1u << READY | 1u << DOWN,
		[READY] = 1u << DOWN,
	};

	check(allowed[connection->state] & 1u << state);
	trace_state(TRACE_LOOKUP, (int64_t)connection->connects_n, names[connection->state],
		    names[state]);
	connection->state = state;
}

static void socket_forget(struct read_connection *connection)
{
	if (connection->socket)
		event_free(connection->socket);
	connection->socket = NULL;
}

static void connection_down(struct read_connection *connection, const char *why)
{
	snprintf(connection->trouble, sizeof(connection->trouble), "%s", why);
	if (!connection->closing &&
	    (connection->state == READY || strcmp(connection->told, connection->trouble) != 0))
		log_warn(connection->options.lost_event, LOG_S("error", connection->trouble));
	memcpy(connection->told, connection->trouble, sizeof(connection->told));
	socket_forget(connection);
	postgres_drop(connection->postgres, NULL);
	state_set(connection, DOWN);
	connection->retry_ms = clock_monotonic_ms() + backoff_connect_ms(&connection->backoff);
	ticker_start(connection->ticker);
	connection->port.lost(connection->port.context);
}

static void on_socket(evutil_socket_t fd, short what, void *data);

/*
 * Made anew each time, because libpq may open another socket under the same number while it
 * connects.
 */
static void socket_watch(struct read_connection *connection)
{
	short events = postgres_poll_events(connection->postgres), what = EV_PERSIST;

	if (events & POLLIN)
		what |= EV_READ;
	if (events & POLLOUT)
		what |= EV_WRITE;
	if (connection->socket && connection->state == READY &&
	    event_get_events(connection->socket) == what)
		return;
	socket_forget(connection);
	connection->socket = event_new(connection->base, postgres_fd(connection->postgres), what,
				       on_socket, connection);
	check(connection->socket != NULL);
	event_add(connection->socket, NULL);
}

void read_connection_send(struct read_connection *connection, const char *sql, int n,
			  const struct postgres_argument *arguments, int64_t deadline_ms)
{
	check(connection->state == READY);
	if (sql == connection->options.prepared)
		postgres_send_prepared(connection->postgres, STATEMENT, n, arguments, deadline_ms);
	else
		postgres_send(connection->postgres, sql, n, arguments, deadline_ms);
	socket_watch(connection);
	ticker_start(connection->ticker);
}

static void connection_ready(struct read_connection *connection)
{
	state_set(connection, READY);
	connection->trouble[0] = connection->told[0] = '\0';
	connection->connects_n++;
	backoff_reset(&connection->backoff);
	log_info(connection->options.ready_event,
		 LOG_S("database", PQdb(postgres_libpq(connection->postgres))));
	connection->port.ready(connection->port.context);
}

static void connection_connected(struct read_connection *connection)
{
	if (!connection->options.prepared) {
		connection_ready(connection);
		return;
	}
	state_set(connection, PREPARING);
	postgres_prepare(connection->postgres, STATEMENT, connection->options.prepared,
			 clock_monotonic_ms() + connection->options.timeout_ms);
}

/*
 * Whether the prepared statement is gone, or its result has another type since the schema changed:
 * it is prepared again over a new connection.
 */
static int statement_is_void(const struct read_connection *connection)
{
	const char *sqlstate = postgres_sqlstate(connection->postgres);

	return connection->state == PREPARING || strcmp(sqlstate, "26000") == 0 ||
	       strcmp(sqlstate, "0A000") == 0;
}

/* Any other error that the server reports fails this statement alone. */
static void statement_ended(struct read_connection *connection)
{
	int good = postgres_failure(connection->postgres) == POSTGRES_OK;
	PGresult *rows;

	if (good && connection->state == PREPARING) {
		connection_ready(connection);
		return;
	}
	if (!good && statement_is_void(connection)) {
		connection_down(connection, postgres_why(connection->postgres));
		return;
	}
	rows = postgres_result_take(connection->postgres);
	if (!good)
		log_warn(connection->options.refused_event,
			 LOG_S("error", postgres_why(connection->postgres)));
	connection->port.ended(connection->port.context, good ? rows : NULL);
	PQclear(rows);
}

static void connection_step(struct read_connection *connection)
{
	switch (postgres_step(connection->postgres, clock_monotonic_ms())) {
	case POSTGRES_NOTHING:
		break;
	case POSTGRES_CONNECTED:
		connection_connected(connection);
		break;
	case POSTGRES_ENDED:
		statement_ended(connection);
		break;
	case POSTGRES_LOST:
		connection_down(connection, postgres_why(connection->postgres));
		break;
	}
	if (connection->state != DOWN)
		socket_watch(connection);
}

static void on_socket(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	connection_step(data);
}

/*
 * The host's address: 0, or -1: it is still being looked up, or there is none and the connection is
 * down again.
 */
static int connection_resolve(struct read_connection *connection, char address[RESOLVED_SIZE])
{
	char error[TROUBLE_SIZE];
	int rc;

	if (!connection->resolving) {
		connection->resolving = resolving_begin(connection->host);
		snprintf(connection->trouble, sizeof(connection->trouble),
			 "the name of its host is being looked up");
	}
	if (!resolving_done(connection->resolving))
		return -1;
	rc = resolving_take(connection->resolving, address, error, sizeof(error));
	connection->resolving = NULL;
	if (rc)
		connection_down(connection, error);
	return rc;
}

static void connection_connect(struct read_connection *connection)
{
	char address[RESOLVED_SIZE] = "";

	if (connection->host && connection_resolve(connection, address))
		return;
	state_set(connection, CONNECTING);
	if (postgres_connect(connection->postgres, connection->host ? address : NULL,
			     clock_monotonic_ms()))
		connection_down(connection, postgres_why(connection->postgres));
	else
		socket_watch(connection);
}

static int on_tick(void *context)
{
	struct read_connection *connection = context;
	int64_t now_ms = clock_monotonic_ms();

	if (connection->state == DOWN && now_ms >= connection->retry_ms)
		connection_connect(connection);
	else if (connection->state != DOWN && now_ms >= postgres_deadline_ms(connection->postgres))
		connection_step(connection);
	return connection->state != READY ||
	       postgres_deadline_ms(connection->postgres) != INT64_MAX;
}

static struct postgres *session_new(const struct read_connection_options *options)
{
	return postgres_new(&(struct postgres_options){
		.url = options->database_url,
		.application_name = options->application_name,
		.connect_timeout_ms = options->timeout_ms,
		.statement_timeout_ms = options->timeout_ms,
		/* fails this statement, before the connection and what waits behind it */
		.lock_timeout_ms = options->timeout_ms / 4 + 1,
		.session = options->session,
		.notice_event = "database_notice",
	});
}

struct read_connection *read_connection_new(struct event_base *base,
					    const struct read_connection_options *options,
					    const struct read_connection_port *port)
{
	struct read_connection *connection = calloc(1, sizeof(*connection));

	check(connection != NULL);
	connection->host = postgres_url_host(options->database_url);
	connection->port = *port;
	connection->base = base;
	connection->options = *options;
	connection->url = strdup(options->database_url);
	check(connection->url != NULL);
	connection->options.database_url = connection->url;
	connection->postgres = session_new(&connection->options);
	connection->ticker = ticker_new(base, TICK_MS, on_tick, connection);
	ticker_start(connection->ticker);
	snprintf(connection->trouble, sizeof(connection->trouble), "connecting");
	connection_connect(connection);
	return connection;
}

void read_connection_free(struct read_connection *connection)
{
	if (!connection)
		return;
	connection->closing = 1;
	connection_down(connection, "closing");
	resolving_abandon(connection->resolving);
	ticker_free(connection->ticker);
	postgres_free(connection->postgres);
	free(connection->host);
	free(connection->url);
	free(connection);
}

int read_connection_ready(const struct read_connection *connection)
{
	return connection->state == READY;
}

uint64_t read_connection_connects_n(const struct read_connection *connection)
{
	return connection->connects_n;
}

const char *read_connection_trouble(const struct read_connection *connection)
{
	return connection->trouble;
}
