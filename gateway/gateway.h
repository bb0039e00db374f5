/*
 * One gateway process: the parts wired together around one event loop.
 *
 *	clients ─▶ lines, http ──▶ intake ─▶ admission ─▶ redis_pool ═ Redis
 *	                                  ├─▶ status ─▶ lookup ═ PostgreSQL
 *	                                  ├─▶ use_requests ─▶ publisher
 *	                                  ├─▶ claim ─▶ admission, and lookup ═ PostgreSQL
 *	                                  └─▶ coupons, coupon ─▶ lookup ═ PostgreSQL or a replica
 *	admission ─▶ publisher ═ RabbitMQ ═ outcomes of workers ─▶ waiters, use_requests ─▶ clients
 *
 * Every turn of the loop: the events of the sockets, then admission_flush (the waiting requests
 * become script calls), then redis_pool_flush (one write for all of them).
 */
#pragma once

#include "common/program/config.h"

#include <signal.h>

#define GATEWAY_LISTENERS_MAX 2

/* Sockets that were bound before the fork; -1: none. */
struct gateway_sockets {
	int api[GATEWAY_LISTENERS_MAX]; /* TCP, Unix */
	int http;
	int are_given; /* some by systemd, where clients wait for the next process */
};

/*
 * `process` is its number among those of the gateway. Takes the TCP sockets. Runs until it has
 * ended:
 *
 *	       SIGTERM, SIGINT       COUPON_DRAIN_S
 *	serves ───────────────▶ drains ──────────▶ finishes ──▶ waits ──▶ ended
 *
 * While it drains, everything is served, but /readyz says 503. It finishes the open requests for at
 * most GATEWAY_FINISH_MS. Then it waits for up to COUPON_STOP_WAIT_S while it has accepted receives
 * that neither RabbitMQ nor Redis is known to have; what is left at the end is named in the log.
 * GATEWAY_FINISH lets it finish at once, GATEWAY_GIVE_UP ends the wait; so do a second and a third
 * signal to the only process. One of several may get each signal twice, from its parent and from
 * who tells all processes of a service to end.
 *
 * Before it finishes, it closes its listeners. If some are given by systemd, it serves what it has
 * accepted for half a second more: others wait for the next process, and nobody is refused.
 */
void gateway_run(const struct config *config, const struct gateway_sockets *sockets,
		 size_t process);

#define GATEWAY_FINISH_MS 10000
/* Until the process has ended after that: connections are closed, and the stores told. */
#define GATEWAY_STOP_GRACE_MS 3000
/* All of it at most, after SIGTERM. */
int64_t gateway_stop_ms(const struct config *config);
#define GATEWAY_FINISH SIGUSR1
#define GATEWAY_GIVE_UP SIGUSR2
