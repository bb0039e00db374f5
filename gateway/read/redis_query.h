/*
 * Queries to Redis of the read operations and of the check of settings. Event-loop thread only.
 *
 * `done` gets the reply, or NULL when Redis is unreachable; then possibly before the function
 * returns.
 */
#ifndef GATEWAY_READ_REDIS_QUERY_H
#define GATEWAY_READ_REDIS_QUERY_H

#include "gateway/admit/redis_pool.h"

/* The arguments of lua/user_state.lua. */
struct redis_user {
	int64_t coupon;
	const struct user_id *user;
	int64_t seen_generation; /* as in a call */
	int64_t seen_seq;
};

/* lua/user_state.lua */
void redis_query_user(struct redis_pool *pool, const struct redis_user *user, redis_done_fn *done,
		      void *context);
/* lua/coupon_state.lua */
void redis_query_coupon(struct redis_pool *pool, int64_t coupon, redis_done_fn *done,
			void *context);
/* The copy of PostgreSQL's numbers: see common/changes.h. */
void redis_query_changes(struct redis_pool *pool, redis_done_fn *done, void *context);
/* CONFIG GET of one setting. */
void redis_query_config(struct redis_pool *pool, const char *setting, redis_done_fn *done,
			void *context);

#endif
