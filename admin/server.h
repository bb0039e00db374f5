/*
 * /admin over HTTP: which part answers which path, and what watches the program.
 */
#pragma once

#include "common/program/config.h"

#include <event2/event.h>

struct server;

/* Takes over the bound socket `fd`. */
struct server *server_new(struct event_base *base, int fd, const struct config *config);
void server_free(struct server *server);

/*
 * Breaks the loop when the commands that change something have ended, at most
 * COUPON_ADMIN_TIMEOUT_MS later; at once if it is called again. Until then nothing new is changed,
 * and what only looks is ended.
 */
void server_stop(struct server *server);
