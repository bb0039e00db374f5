/*
 * One gateway process: the parts wired together around one event loop.
 *
 *	clients ─▶ server, http ─▶ intake ─▶ admission ─▶ redis_pool ═ Redis
 *	                                  ├─▶ status ─▶ lookup ═ PostgreSQL
 *	                                  ├─▶ redeem ─▶ admission, and lookup ═ PostgreSQL
 *	                                  └─▶ coupons, coupon ─▶ lookup ═ PostgreSQL or a replica
 *	admission ─▶ publisher ═ RabbitMQ ═ outcomes of workers ─▶ waiters ─▶ clients
 *
 * Every turn of the loop: the events of the sockets, then admission_flush (the waiting requests
 * become script calls), then redis_pool_flush (one write for all of them).
 */
#pragma once

#include "common/program/config.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/publish/publisher.h"
#include "gateway/publish/waiters.h"
#include "gateway/read/lookup.h"
#include "gateway/redeem/redeem.h"

#define GATEWAY_LISTENERS_MAX 2

/* Sockets that were bound before the fork; -1: none. */
struct gateway_sockets {
	int api[GATEWAY_LISTENERS_MAX]; /* TCP, Unix */
	int http;
};

/*
 * `process` is its number among those of the gateway. Runs until SIGTERM or SIGINT, then finishes
 * the open requests for at most GATEWAY_FINISH_MS.
 */
void gateway_run(const struct config *config, const struct gateway_sockets *sockets,
		 size_t process);

#define GATEWAY_FINISH_MS 10000

/* The parts of a process that the ports connect. */
struct parts {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct lookup *reads; /* of what is only shown to users */
	struct lookup *codes; /* of exchange codes */
	struct publisher *publisher;
	struct waiters *waiters;
	struct admission *admission;
	struct redeem *redeem;
};

/*
 * Makes `waiters`, `admission` and `redeem`; the caller has set the other members. `parts` must not
 * move.
 */
void ports_connect(struct parts *parts, const struct config *config);
