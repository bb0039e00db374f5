/*
 * The lease of a master that Redis Sentinel has chosen: outside of it gateways issue nothing there,
 * so that one that was cut off has stopped before the next one opens.
 *
 * It is a record in Redis, FROM:UNTIL by that master's own clock (lua/master_lease.lua). Any
 * gateway and any worker extends it, for as long as a majority of the Sentinels, asked after FROM
 * was read, names that master. One that has ended is never extended: a new one begins under the
 * next term, so that each coupon is first compared with PostgreSQL again, and not before a majority
 * has named the master, without a break, for MASTER_LEASE_WAIT_MS by the monotonic clock of the
 * process that begins it. That is twice the lease, since the clock of the other master may have
 * been set back within its lease, and a tenth for clocks that run at different rates. Clocks of two
 * machines are never compared.
 *
 * Without Sentinels there is no lease.
 */
#pragma once

#include "common/redis/redis.h"

#include <stdint.h>

#define MASTER_LEASE_MS 1800
#define MASTER_LEASE_WAIT_MS 3800

/* Keeps it, in a thread of this process until it ends, if the URL has Sentinels. */
void master_lease_keep(const char *redis_url);
