/*
 * /admin over HTTP: which part answers which path. The sessions of browsers, the pages of the
 * console, and what watches the program are answered here.
 */
#pragma once

#include "common/program/config.h"

#include <event2/event.h>

struct admin_server;

/* Takes over the bound socket `fd`; `is_given`: by systemd, and other clients may wait there. */
struct admin_server *server_new(struct event_base *base, int fd, int is_given,
				const struct config *config);
void server_free(struct admin_server *server);
void server_reload(struct admin_server *server); /* the files of certificates, now */
/* Whether /readyz says so; else why not. */
int server_is_ready(const struct admin_server *server, const char **why);

/*
 * Breaks the loop when the commands that change something have ended, at most
 * COUPON_ADMIN_TIMEOUT_MS later; at once if it is called again. Until then nothing new is changed,
 * and what only looks is ended. Before that, what was accepted on a socket of systemd is served for
 * half a second: others wait for the next process.
 */
void server_stop(struct admin_server *server);
