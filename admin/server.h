/*
 * /admin over HTTP: which part answers which path. The sessions of browsers, the pages of the
 * console, and what watches the program are answered here.
 */
#pragma once

#include "common/program/config.h"

#include <event2/event.h>

struct admin_server;

/* Takes over the bound socket `fd`. */
struct admin_server *server_new(struct event_base *base, int fd, const struct config *config);
void server_free(struct admin_server *server);

/*
 * Breaks the loop when the commands that change something have ended, at most
 * COUPON_ADMIN_TIMEOUT_MS later; at once if it is called again. Until then nothing new is changed,
 * and what only looks is ended.
 */
void server_stop(struct admin_server *server);
