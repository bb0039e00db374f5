/*
 * The HTTP connections of one event loop and their limits. libevent's evhttp parses; it does not
 * limit the number of connections, the number of headers, the time that a request takes to arrive,
 * or the size of all requests together.
 *
 *	               ┌────── replied ──────┐
 *	accepted ─▶ RECEIVING ─ request ─▶ ANSWERING      any ─ closed by evhttp ─▶ freed
 *	               └─ too many, too slow, too large ─▶ REFUSED
 *
 * A connection counts with those of the socket API. Beyond their limit a few more are served, for
 * /healthz, /readyz and /metrics only.
 */
#ifndef GATEWAY_LISTEN_HTTP_CONNECTIONS_H
#define GATEWAY_LISTEN_HTTP_CONNECTIONS_H

#include "common/program/config.h"
#include "gateway/listen/intake.h"

#include <event2/event.h>

struct bufferevent;
struct evhttp_request;
struct http_connection;
struct http_connections;

/* How a request on a connection is to be answered. */
enum http_admit {
	HTTP_ADMIT_ALL,
	HTTP_ADMIT_MONITORING, /* health and metrics, then the connection is closed */
	HTTP_ADMIT_NONE        /* it is refused; http_connection_refuse() answers */
};

struct http_connections *http_connections_new(struct event_base *base, const struct config *config,
					      struct intake *intake);
/* After evhttp has freed its connections. */
void http_connections_free(struct http_connections *connections);

/* The socket of a connection that was just accepted; to be given to evhttp. */
struct bufferevent *http_connection_open(struct http_connections *connections);

/* A complete request has arrived. */
enum http_admit http_connection_request(struct http_connections *connections,
					struct evhttp_request *request);
/* Answers a request that is not admitted. Its connection is closed after the reply. */
void http_connection_refuse(struct http_connections *connections, struct evhttp_request *request);
/* The reply is sent; evhttp still has the connection. */
void http_connection_replied(struct http_connections *connections, struct evhttp_request *request);

#endif
