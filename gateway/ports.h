/*
 * The ports of admission and of the waiters, connected to Redis, PostgreSQL, the publisher and the
 * clocks.
 */
#ifndef GATEWAY_PORTS_H
#define GATEWAY_PORTS_H

#include "common/program/config.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/publish/publisher.h"
#include "gateway/publish/waiters.h"
#include "gateway/read/lookup.h"
#include "gateway/redeem/redeem.h"

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
 * move before these are freed.
 */
void ports_connect(struct parts *parts, const struct config *config);

#endif
