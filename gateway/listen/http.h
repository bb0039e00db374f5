/*
 * The operations over HTTP (docs/protocol.md, "HTTP"), and /healthz, /readyz and /metrics. Once the
 * intake is stopped, requests on open connections are answered unavailable. Belongs to one event
 * loop.
 */
#ifndef GATEWAY_LISTEN_HTTP_H
#define GATEWAY_LISTEN_HTTP_H

#include "common/program/config.h"
#include "gateway/listen/intake.h"

#include <event2/event.h>

struct http;

/* Writes {"ready":…,"redis":"ok",…} into a new tree and returns whether all parts are ready. */
typedef int http_ready_fn(void *context, cJSON **body);

struct http *http_new(struct event_base *base, const struct config *config, struct intake *intake,
		      http_ready_fn *ready, void *context);
void http_accept(void *http, int fd);         /* intake_accept_fn */
size_t http_sending(const struct http *http); /* replies that are not yet in the kernel */

#endif
