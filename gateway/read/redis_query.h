/*
 * Queries to Redis of the read operations and of the check of settings. Event-loop thread only.
 *
 * `done` gets the reply, or NULL when Redis is unreachable; then possibly before the function
 * returns.
 */
#ifndef GATEWAY_READ_REDIS_QUERY_H
#define GATEWAY_READ_REDIS_QUERY_H

#include "gateway/admit/redis_pool.h"

/* What is read, and the highest that this process has seen of it, as in a call. */
struct redis_read {
	int64_t coupon;
	const struct user_id *user; /* not for redis_query_coupon() */
	int64_t seen_generation;
	int64_t seen_seq;
};

/* lua/user_state.lua */
void redis_query_user(struct redis_pool *pool, const struct redis_read *read, redis_done_fn *done,
		      void *context);
/* lua/coupon_state.lua */
void redis_query_coupon(struct redis_pool *pool, const struct redis_read *read, redis_done_fn *done,
			void *context);
/* The copy of PostgreSQL's numbers: see common/changes.h. */
void redis_query_changes(struct redis_pool *pool, redis_done_fn *done, void *context);
/* lua/changes.lua: gives Redis the id of this installation, if it has none. */
void redis_query_claim(struct redis_pool *pool, const char *installation, redis_done_fn *done,
		       void *context);
/* CONFIG GET of one setting. */
void redis_query_config(struct redis_pool *pool, const char *setting, redis_done_fn *done,
			void *context);

#endif
