/*
 * What the keeper reads of coupons in Redis, a page of them in one round trip, and the fences that
 * it raises there. One thread.
 */
#ifndef KEEPER_LOOK_H
#define KEEPER_LOOK_H

#include "common/redis/client.h"
#include "keeper/judge.h"

#include <stddef.h>

/*
 * What Redis has of these coupons. Where it refuses a command for a coupon, that one is `broken`.
 * 0, or -1: the connection is lost.
 */
int look_coupons(struct redis_client *redis, const struct coupon_row *rows, size_t n,
		 struct coupon_look *looks);

/*
 * Raises the fence of those whose fence is lower: what an earlier keeper still wants to write to
 * them is refused from then on. 0, 1 when one has a higher fence, or -1: the connection is lost.
 */
int look_fence(struct redis_client *redis, const struct coupon_row *rows, size_t n,
	       const struct coupon_look *looks, int64_t fence);

/*
 * How many receives of older generations have their slot there although they are in flight. 0, or
 * -1 as of redis_client_integer().
 */
int look_known(struct redis_client *redis, int64_t coupon, int64_t *n);

#endif
