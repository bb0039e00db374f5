/*
 * What the gateway asks of Redis, over a few connections: script calls, the removal of confirmed
 * batches from their outbox, and what the reading operations look at. Event-loop thread only.
 *
 * A script call whose reply was lost is never sent again; one that Redis says did not run is.
 */
#ifndef GATEWAY_ADMIT_REDIS_POOL_H
#define GATEWAY_ADMIT_REDIS_POOL_H

#include "gateway/admit/admission.h"
#include "gateway/admit/redis_link.h"

struct redis_pool;

struct redis_pool *redis_pool_new(struct event_base *base, const char *url, size_t connections,
				  int64_t timeout_ms);
void redis_pool_free(struct redis_pool *pool);
/* Where the ends of script calls are told; before the first call. */
void redis_pool_bind(struct redis_pool *pool, struct admission *admission);

/* Sends a script call. 0, or -1: no connection is ready, nothing was sent. */
int redis_pool_send(struct redis_pool *pool, struct call *call);

/*
 * Removes a confirmed batch from its outbox, with the next write or at the next tick. When Redis is
 * away the entry stays; the keeper sends it again, harmlessly.
 */
void redis_pool_outbox_remove(struct redis_pool *pool, int64_t coupon, const struct ulid *batch);

/* Tells Redis the highest number seen of a generation: lua/report.lua. Nobody waits for it. */
void redis_pool_report(struct redis_pool *pool, int64_t coupon, int64_t generation, int64_t seq);

/* What lua/user_state.lua is asked. */
struct redis_user {
	int64_t coupon;
	int64_t user;
	int64_t seen_generation; /* as in a call */
	int64_t seen_seq;
};

/*
 * What lua/user_state.lua and lua/coupon_state.lua return. `done` gets NULL, maybe at once, when
 * Redis is away.
 */
void redis_pool_user(struct redis_pool *pool, const struct redis_user *asked, redis_done_fn *done,
		     void *context);
void redis_pool_coupon(struct redis_pool *pool, int64_t coupon, redis_done_fn *done, void *context);

/* CONFIG GET of one setting. `done` gets NULL, maybe at once, when Redis is away. */
void redis_pool_config(struct redis_pool *pool, const char *setting, redis_done_fn *done,
		       void *context);
uint64_t redis_pool_connects(
	const struct redis_pool *pool); /* how often the first connection became ready */

void redis_pool_flush(
	struct redis_pool *pool); /* writes what has gathered: once at the end of every loop turn */
void redis_pool_tick(
	struct redis_pool *pool); /* every few milliseconds: removals that nothing took along */

int redis_pool_is_idle(const struct redis_pool *pool); /* nothing in flight, nothing to be sent */
const char *redis_pool_trouble(
	const struct redis_pool *pool); /* NULL when all connections are ready, else why not */

#endif
