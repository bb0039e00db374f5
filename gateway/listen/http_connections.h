/*
 * The HTTP connections of one event loop, and their limits: how many there are, how long a request
 * and a reply may take, and how large all requests together may be.
 *
 * A connection counts with those of the socket API. Beyond their limit a few more are served, for
 * monitoring only.
 */
#ifndef GATEWAY_LISTEN_HTTP_CONNECTIONS_H
#define GATEWAY_LISTEN_HTTP_CONNECTIONS_H

#include "common/program/config.h"
#include "gateway/listen/http_connection.h"
#include "gateway/listen/intake.h"

TAILQ_HEAD(http_connection_queue, http_connection);

/* Answers a complete request, now or later, by its responder or by http_connection_reply(). */
typedef void http_handle_fn(void *context, struct http_connection *connection,
			    struct http_request *request);

/* Only http_connections.c and http_connection.c use the fields. */
struct http_connections {
	const struct config *config;
	struct intake *intake;
	struct event_base *base;
	http_handle_fn *handle;
	void *context;
	struct event *tick;
	/* By the time when their state ends; those of the reserve have less time. */
	struct http_connection_queue counted;
	struct http_connection_queue reserve;
	size_t n;
	size_t reserve_n;
	size_t sending;
	size_t received; /* sum */
	int stopped;
};

struct http_connections *http_connections_new(struct event_base *base, const struct config *config,
					      struct intake *intake, http_handle_fn *handle,
					      void *context);
/* Requires that every request has been answered. */
void http_connections_free(struct http_connections *all);

/* Takes the socket of a connection that was just accepted. */
void http_connections_accept(struct http_connections *all, int fd);
/* From now on each connection is closed after its reply. */
void http_connections_stop(struct http_connections *all);
size_t http_connections_sending(const struct http_connections *all);

/* For http_connection.c: a state that may last too long begins, and ends. */
void http_connections_wait(struct http_connection *connection);
void http_connections_wait_end(struct http_connection *connection);
/* It is closed. */
void http_connections_leave(struct http_connection *connection);

#endif
