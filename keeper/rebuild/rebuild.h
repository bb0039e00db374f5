/*
 * Fills a coupon in Redis from PostgreSQL, under a new generation, without draining: receives in
 * flight are counted, and settle as usual. docs/lifecycle.md describes the state after a failure at
 * each step. The keeper's thread.
 */
#ifndef KEEPER_REBUILD_REBUILD_H
#define KEEPER_REBUILD_REBUILD_H

#include "keeper/context.h"

/* Stops the issuing of a coupon: lua/hold.lua. 0, or -1. */
int rebuild_hold(struct keeper_context *context, const struct coupon_row *row);
/*
 * The same, where Redis has lost data. 1 until the coupon has been held for REBUILD_REPORTS_MS:
 * gateways are refused meanwhile, and report the numbers that they have seen.
 */
int rebuild_hold_for_reports(struct keeper_context *context, const struct coupon_row *row);
#define REBUILD_REPORTS_MS 1000
/* Appends the call of the script, for redis_client_next(). `fence` is of keeper_context_fence(). */
void rebuild_hold_append(struct keeper_context *context, const struct coupon_row *row,
			 int64_t wait_ms, const char *fence);
/* Records the result, if couponctl requested the rebuild. 0, or -1 when PostgreSQL failed. */
int rebuild_answer(struct keeper_context *context, const struct coupon_row *row,
		   const char *answer);

/* Logs that a coupon is in place; `reply` is that of lua/place.lua. */
void rebuild_placed_log(int64_t coupon, int64_t generation, int64_t issued, const redisReply *reply,
			const char *why, int64_t ms);

/*
 * `why` is for the log, a constant. 0, or -1 when Redis or PostgreSQL failed or another keeper was
 * elected: the round is over. The rebuild of a coupon of more than REBUILD_BIG_ROWS user coupons is
 * only begun, unless another one has not ended.
 */
int rebuild_run(struct keeper_context *context, const struct coupon_row *row,
		const struct coupon_look *look, const char *why);
#define REBUILD_BIG_ROWS 20000

/* The big coupon whose rebuild was begun and has not ended; 0: none. */
int64_t rebuild_big(const struct keeper_context *context);
/* Whether the rebuild of this coupon has to wait until that one has ended. */
int rebuild_big_waits(const struct keeper_context *context, const struct coupon_row *row);
/* Continues it for about so long. As rebuild_run(). */
int rebuild_big_step(struct keeper_context *context, int64_t for_ms);
/* Gives it up. */
void rebuild_big_stop(struct keeper_context *context);

#endif
