/*
 * The gateway's connection to PostgreSQL in the event loop: the name of its host is looked up in
 * another thread, and it is reconnected with backoff. One statement at a time. Event-loop thread
 * only.
 */
#ifndef GATEWAY_READ_CONNECTION_H
#define GATEWAY_READ_CONNECTION_H

#include "common/postgres/argument.h"

#include <event2/event.h>
#include <libpq-fe.h>
#include <stdint.h>

struct read_connection;

/* The callbacks of the connection. None is called within read_connection_send(). */
struct read_connection_port {
	void *context;
	void (*ready)(void *context);                       /* a statement can be sent */
	void (*ended)(void *context, const PGresult *rows); /* the rows are lent; NULL: refused */
	void (*lost)(void *context); /* with the statement in flight; or an attempt failed */
};

/* Texts are lent for as long as the connection is there. */
struct read_connection_options {
	const char *database_url; /* copied */
	int64_t timeout_ms;
	const char *application_name;
	const char *session;     /* further SET statements; NULL: none */
	const char *prepared;    /* the statement that is sent most often; NULL: none */
	const char *ready_event; /* for the log, as the next two */
	const char *lost_event;
	const char *refused_event;
};

struct read_connection *read_connection_new(struct event_base *base,
					    const struct read_connection_options *options,
					    const struct read_connection_port *port);
void read_connection_free(struct read_connection *connection); /* calls lost() first */

/*
 * While ready, and after the end of the previous statement. Lost when it does not end in time. The
 * text of the prepared statement is not parsed and planned again.
 */
void read_connection_send(struct read_connection *connection, const char *sql, int n,
			  const struct postgres_argument *arguments, int64_t deadline_ms);

int read_connection_ready(const struct read_connection *connection);
/* The number of times it was connected. */
uint64_t read_connection_connects_n(const struct read_connection *connection);
/* The reason why it is not ready. */
const char *read_connection_trouble(const struct read_connection *connection);

#endif
