/*
 * The gateway's connections to Redis. Commands go over the least busy one. Event-loop thread only.
 *
 * Calls go in bundles (call.h). One is sent at once while none is in flight, and a full one while
 * few are; otherwise what arrives waits for the others, so that under load the bundles, and the
 * calls of each coupon in them, are as large as they can be.
 *
 * A script call whose reply was lost is never sent again; one that did not run, as Redis replied,
 * is.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/redis_link.h"

struct redis_pool;

struct redis_pool *redis_pool_new(struct event_base *base, const struct config *config);
/* Sets the admission that gets the ends of script calls. Before the first call. */
void redis_pool_bind(struct redis_pool *pool, struct admission *admission);

/*
 * How many requests the next call may have, while so many requests and coupons wait for one; 0:
 * none is sent now, because enough is in flight. After at most 5 ms the loop has a turn in which
 * this may have changed.
 */
size_t redis_pool_room(struct redis_pool *pool, size_t requests, size_t coupons);
/*
 * Sends a call with others at the end of the loop's turn. 0, or -1: no connection is ready, nothing
 * was sent.
 */
int redis_pool_send(struct redis_pool *pool, struct call *call);

/* Tells the keeper that a client asks for the coupon (lua/ask.lua). It may be lost. */
void redis_pool_ask(struct redis_pool *pool, int64_t coupon);

/*
 * Sends a command that only reads, or is repeated. `done` gets the reply, or NULL when Redis is
 * unreachable; then possibly before the function returns.
 */
void redis_pool_query(struct redis_pool *pool, int argc, const char **argv, redis_done_fn *done,
		      void *context);
/* Does what redis_pool_query() does, over a picked connection; NULL: Redis is unreachable. */
void redis_pool_query_over(struct redis_link *link, int argc, const char **argv,
			   redis_done_fn *done, void *context);
/* The connection for the next command, or NULL: none is ready. */
struct redis_link *redis_pool_pick(const struct redis_pool *pool);
/* The number of times that the first connection became ready. */
uint64_t redis_pool_connects(const struct redis_pool *pool);
uint64_t redis_pool_connects_n(const struct redis_pool *pool); /* all of them */
/*
 * The process of Redis that all connections are ready to use; NULL: one is not ready, or they lead
 * to different ones. Then a reply of an earlier process may still arrive over one of them.
 */
const char *redis_pool_run_id(const struct redis_pool *pool);

/*
 * The process that has decided what is answered now, while admission takes the end of a call; else
 * NULL.
 */
const char *redis_pool_decided_by(const struct redis_pool *pool);

/* Sends and writes what was gathered. To be called once at the end of every loop turn. */
void redis_pool_flush(struct redis_pool *pool);

int redis_pool_is_idle(const struct redis_pool *pool); /* nothing is in flight */
/* NULL when all connections are ready, else the reason. */
const char *redis_pool_trouble(const struct redis_pool *pool);
const char *redis_pool_issue_trouble(
	const struct redis_pool *pool); /* redis_link_issue_trouble() */
