/*
 * Reads the state of coupons in Redis, one page per round trip, and raises their fences. One
 * thread.
 */
#ifndef KEEPER_LOOK_H
#define KEEPER_LOOK_H

#include "common/redis/client.h"
#include "keeper/judge.h"

#include <stddef.h>

/*
 * Reads the state of these coupons. A coupon for which Redis refuses a command is `broken`. 0, or
 * -1: the connection is lost.
 */
int look_coupons(struct redis_client *redis, const struct coupon_row *rows, size_t n,
		 struct coupon_look *looks);

/*
 * Raises the fence of those coupons whose fence is lower. Later writes of an earlier keeper to them
 * are refused. `fence_text` is of keeper_context_fence(). 0, 1 when a coupon has a higher fence or
 * the lock is lost, or -1: the connection is lost.
 */
int look_fence(struct redis_client *redis, const struct coupon_row *rows, size_t n,
	       const struct coupon_look *looks, int64_t fence, const char *fence_text);

/*
 * The number of known receives: of older generations, in flight, with a slot in Redis. 0, or -1 as
 * of redis_client_integer().
 */
int look_known(struct redis_client *redis, int64_t coupon, int64_t *n);

#endif
