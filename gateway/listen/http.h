/*
 * The operations over HTTP (docs/reference/http.md), and /healthz, /readyz and
 * /metrics. Once the intake is stopped, requests on open connections are answered unavailable.
 * Belongs to one event loop.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/listen/http_request.h"
#include "gateway/listen/intake.h"

#include <event2/event.h>

struct http;

/* Writes {"ready":…,"degraded":[…],"redis":"ok",…} into a tree; returns whether it is ready. */
typedef int http_ready_fn(void *context, cJSON **body);

/* `body_limit_bytes`: a longer body is answered too_large. */
struct http *http_new(struct event_base *base, const struct config *config, struct intake *intake,
		      size_t body_limit_bytes, http_ready_fn *ready, void *context);
void http_accept(void *http, const struct arrival *arrival); /* arrival_fn */

/* What follows is between the connections and what answers their requests. */

/*
 * The ids of requests that bring none: 64 random bits of the process and a number, as text. The
 * number is counted there, digit by digit, because each reply has an id.
 */
struct http_ids {
	char text[16 + 1 + 14 + 1];
};

void http_ids_init(struct http_ids *ids);

/* The connections of an event loop. */
struct http {
	struct event_base *base;
	const struct config *config;
	struct intake *intake;
	size_t body_limit_bytes;
	http_ready_fn *ready;
	void *context;
	const struct timeval *waits[2];        /* common timeouts; [1] for the reserve */
	const struct timeval *linger;          /* another one */
	TAILQ_HEAD(, http_connection) reserve; /* the oldest first */
	size_t reserve_n;
	size_t received; /* bytes of requests, together */
	struct http_ids ids;
};

enum http_state { HTTP_RECEIVING, HTTP_ANSWERING, HTTP_SENDING, HTTP_LINGERING };

struct http_connection {
	/* First. Its input belongs to the next requests; it holds what the kernel did not take. */
	struct connection base;
	struct http *http;
	TAILQ_ENTRY(http_connection) next; /* in the reserve */
	struct event *timer; /* it has waited for its client too long, unless ANSWERING */
	enum http_state state;
	struct http_request request;
	size_t received; /* bytes of the request so far, and the input */
	int is_last;     /* closed after the reply */
	int is_refused;  /* the same, and what of the request has not been read is dropped */
	size_t dropped;  /* bytes, while LINGERING */
};

/* Answers a complete request, now or later, by its responder or by one of the functions below. */
void http_handle(struct http_connection *connection);

/*
 * Replies with a body of that type; NULL: a line of JSON, whose end is appended. `extra`: one more
 * header, or NULL. The status 204 has no body.
 */
void http_connection_reply(struct http_connection *connection, int status, const char *type,
			   const char *extra, const char *body, size_t len);
/*
 * Replies with the line of an answer, or the problem (RFC 9457) that it is, where the client asked
 * for that. `request` is NULL where none was parsed. `extra` as above; 429 and 503 have Retry-After
 * there.
 */
void http_connection_answer(struct http_connection *connection, const struct request *request,
			    int status, enum answer answer, const char *extra, const char *line,
			    size_t len);
/* Refuses, with the answer of that status, or bad_request. */
void http_connection_refuse(struct http_connection *connection, int status, const char *extra,
			    const char *message);

/* X-Request-Id, if the client gave one that is an id; NULL: the gateway makes one. */
const char *http_request_name(const struct http_request *request);

#define HTTP_HEAD_SIZE 2048 /* the longest id, origin and limits fit */
#define HTTP_PROBLEM "application/problem+json"
/* Longer than coupons wait for the reports of gateways after a restart of Redis. */
#define HTTP_RETRY_UNAVAILABLE "Retry-After: 3"

/* Writes the head of a reply and the empty line, without a NUL, and returns the length. */
size_t http_head_write(struct http_connection *connection, int status, const char *type,
		       const char *extra, size_t len, char out[HTTP_HEAD_SIZE]);
