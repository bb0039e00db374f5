/*
 * The HTTP connections of one event loop, and their limits: how many there are, how long a request
 * and a reply may take, and how large all requests together may be.
 *
 *	               ┌────────────── sent ───────────────┐
 *	accepted ─▶ RECEIVING ─ request ─▶ ANSWERING ─ reply ─▶ SENDING
 *	               └─ too slow, too large, no HTTP: refused and closed
 *
 * A connection counts with those of the socket API. Beyond their limit a few more are served, for
 * monitoring only.
 */
#ifndef GATEWAY_LISTEN_HTTP_CONNECTIONS_H
#define GATEWAY_LISTEN_HTTP_CONNECTIONS_H

#include "common/program/config.h"
#include "gateway/listen/http_request.h"
#include "gateway/listen/intake.h"

#include <event2/event.h>

struct http_connection;
struct http_connections;

/* Answers a complete request, now or later, by its responder or by http_connection_reply(). */
typedef void http_handle_fn(void *context, struct http_connection *connection,
			    struct http_request *request);

struct http_connections *http_connections_new(struct event_base *base, const struct config *config,
					      struct intake *intake, http_handle_fn *handle,
					      void *context);
/* Requires that every request has been answered. */
void http_connections_free(struct http_connections *connections);

/* Takes the socket of a connection that was just accepted. */
void http_connection_open(struct http_connections *connections, int fd);
/* From now on each connection is closed after its reply. */
void http_connections_stop(struct http_connections *connections);
size_t http_connections_sending(const struct http_connections *connections);

/* It may only be used for monitoring; http_connection_refuse_full() answers everything else. */
int http_connection_is_reserve(const struct http_connection *connection);
void http_connection_refuse_full(struct http_connection *connection);

/* To answer a request of the intake. */
struct responder *http_connection_responder(struct http_connection *connection);
/* Any other reply, with a body of that type. */
void http_connection_reply(struct http_connection *connection, int status, const char *type,
			   const char *body, size_t len);
/* JSON, and a newline after it. */
void http_connection_reply_json(struct http_connection *connection, int status, const char *text,
				size_t len);

#endif
