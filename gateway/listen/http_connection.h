/*
 * One HTTP connection: its requests, one after the other, and their replies.
 *
 *	               ┌────────────── sent ───────────────┐
 *	accepted ─▶ RECEIVING ─ request ─▶ ANSWERING ─ reply ─▶ SENDING
 *	               └─ too slow, too large, no HTTP: refused and closed
 */
#ifndef GATEWAY_LISTEN_HTTP_CONNECTION_H
#define GATEWAY_LISTEN_HTTP_CONNECTION_H

#include "gateway/listen/http_output.h"
#include "gateway/listen/http_request.h"
#include "gateway/listen/request.h"

#include <event2/event.h>
#include <stdint.h>

/* Answers a complete request, now or later, by its responder or by http_connection_reply(). */
typedef void http_handle_fn(void *context, struct http_connection *connection,
			    struct http_request *request);

/* What the connections of a loop share. */
struct http_shared {
	struct event_base *base;
	struct http_limits limits;
	http_handle_fn *handle;
	void *context;
	size_t sending; /* connections whose reply is not yet written */
};

/* Takes the socket, and waits for the first request. */
void http_connection_open(struct http_shared *shared, int fd);
/* It waits too long: the request is refused, or the connection closed. */
void http_connection_expire(struct http_connection *connection);
void http_connection_close(struct http_connection *connection);

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
/* The JSON of a refusal. */
void http_connection_reply_refusal(struct http_connection *connection, int status,
				   enum answer answer, const char *message);
/* 405: the path takes only the methods of this list. */
void http_connection_reply_methods(struct http_connection *connection, const char *allowed);
/* JSON that the client may keep by its tag; 304 without it, where the client has it already. */
void http_connection_reply_tagged(struct http_connection *connection, const char *tag,
				  const char *text, size_t len);

#endif
