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
#include "gateway/listen/responder.h"

#include <event2/event.h>
#include <stdint.h>
#include <sys/queue.h>

struct http_connections;

enum http_state { HTTP_RECEIVING, HTTP_ANSWERING, HTTP_SENDING };

/* What was read together with a request, and belongs to the next ones. */
struct http_surplus {
	char *bytes; /* NULL: nothing */
	size_t at;   /* consumed until here */
	size_t len;
};

/* Only http_connection.c and http_connections.c use the fields. */
struct http_connection {
	struct responder responder; /* first: a responder is its connection */
	struct http_connections *all;
	int fd;
	struct event *read;
	enum http_state state;
	TAILQ_ENTRY(http_connection) next; /* unless HTTP_ANSWERING */
	int64_t until_ms;                  /* unless HTTP_ANSWERING: the end of the state */
	struct http_request request;
	size_t received; /* bytes of the request so far */
	struct http_surplus surplus;
	struct http_output output;
	int is_reserve; /* not counted by intake */
	int is_unread;  /* `read` is not pending, until the request is answered */
	int is_last;    /* closed after the reply */
	int is_refused;
	int is_held; /* in on_readable: not to be freed */
	int is_closed;
};

/* Takes the socket. */
struct http_connection *http_connection_new(struct http_connections *all, int fd);
/* The next request. */
void http_connection_receive(struct http_connection *connection);
/* Its state lasts too long: the request is refused, or the connection closed. */
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

#endif
