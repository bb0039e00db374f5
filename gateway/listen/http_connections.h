/* The HTTP connections of one event loop: accepts them, and ends those that wait too long. */
#ifndef GATEWAY_LISTEN_HTTP_CONNECTIONS_H
#define GATEWAY_LISTEN_HTTP_CONNECTIONS_H

#include "gateway/listen/http_connection.h"

struct http_connections;

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

#endif
