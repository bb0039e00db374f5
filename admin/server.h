/*
 * /admin over HTTP: who may do what, and each operation a command of couponctl.
 *
 *	request ──▶ access ──▶ route ──▶ words ──▶ child ──▶ outcome ──▶ reply
 *	                                   └─▶ job: 202, and the client asks for its result
 */
#pragma once

#include "common/program/config.h"

#include <event2/event.h>

#define COMMANDS_RUNNING_MAX 8
#define COMMANDS_WAITING_MAX 64

struct server;

/* Takes over the bound socket `fd`. */
struct server *server_new(struct event_base *base, int fd, const struct config *config);
void server_free(struct server *server);
