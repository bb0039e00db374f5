/*
 * The gateway's connections to Redis. Commands go over the least busy one: script calls, and with
 * them the removal of confirmed batches from their outbox. Event-loop thread only.
 *
 * A script call whose reply was lost is never sent again; one that did not run, as Redis replied,
 * is.
 */
#ifndef GATEWAY_ADMIT_REDIS_POOL_H
#define GATEWAY_ADMIT_REDIS_POOL_H

#include "common/redis/link.h"
#include "gateway/admit/admission.h"

struct redis_pool;

struct redis_pool *redis_pool_new(struct event_base *base, const char *url, size_t connections,
				  int64_t timeout_ms);
void redis_pool_free(struct redis_pool *pool);
/* Sets the admission that gets the ends of script calls. Before the first call. */
void redis_pool_bind(struct redis_pool *pool, struct admission *admission);

/* Sends a script call. 0, or -1: no connection is ready, nothing was sent. */
int redis_pool_send(struct redis_pool *pool, struct call *call);

/*
 * Removes a confirmed batch from its outbox, with the next write or at the next tick. While Redis
 * is unreachable the entry stays; the keeper sends it again, which is harmless.
 */
void redis_pool_outbox_remove(struct redis_pool *pool, int64_t coupon, const struct ulid *batch);

/*
 * Reports to Redis the highest seq seen of a generation (lua/report.lua). The report may be
 * lost.
 */
void redis_pool_report(struct redis_pool *pool, int64_t coupon, int64_t generation, int64_t seq);

/* The connection for the next command, or NULL: none is ready. */
struct redis_link *redis_pool_pick(const struct redis_pool *pool);
/* The number of times that the first connection became ready. */
uint64_t redis_pool_connects(const struct redis_pool *pool);

/* Writes the gathered commands. To be called once at the end of every loop turn. */
void redis_pool_flush(struct redis_pool *pool);
/* Sends the removals that no write took along. To be called every few milliseconds. */
void redis_pool_tick(struct redis_pool *pool);

int redis_pool_is_idle(const struct redis_pool *pool); /* nothing in flight, nothing to be sent */
/* NULL when all connections are ready, else the reason. */
const char *redis_pool_trouble(const struct redis_pool *pool);

#endif
