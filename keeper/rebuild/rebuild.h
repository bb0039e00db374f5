/*
 * Fills a coupon in Redis from PostgreSQL, under a new generation, without draining: receives in
 * flight are counted, and settle as usual. docs/about/lifecycle.md describes the state after a
 * failure at each step. The keeper's thread.
 */
#pragma once

#include "keeper/context.h"

/*
 * Stops the issuing of a coupon: lua/hold.lua. 0; 1 until it has been held for `wait_ms`; -1. Where
 * Redis has lost data, gateways are refused for REBUILD_REPORTS_MS, and report the numbers that
 * they have seen.
 */
#define REBUILD_REPORTS_MS 1000
int rebuild_hold(struct keeper_context *context, const struct coupon_row *row, int64_t wait_ms);
/* Appends the call of the script with context->fence_text, for redis_client_next(). */
void rebuild_hold_append(struct keeper_context *context, const struct coupon_row *row,
			 int64_t wait_ms);
/* Records the result, if couponctl requested the rebuild. 0, or -1 when PostgreSQL failed. */
int rebuild_answer(struct keeper_context *context, const struct coupon_row *row,
		   const char *answer);

/*
 * `why` is for the log, a constant; NULL: it is loaded for the first time. 0, or -1 when Redis or
 * PostgreSQL failed, another keeper was elected, or the snapshot has newer terms than `row`: the
 * round is over. The rebuild of a coupon of more than REBUILD_BIG_ROWS user coupons is only begun,
 * unless another one has not ended.
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

/*
 * Loads and rebuilds coupons that Redis does not have, and that have few rows, together:
 * each step is done for all of them in one round trip and one transaction. After a loss of data in
 * Redis most coupons are of this kind.
 */
#define PAGE_ROWS_EACH 1000 /* at most, of a coupon */
#define PAGE_ROWS_ALL 10000 /* and of all coupons of a page */

/*
 * Rebuilds the coupons whose state is PAGE_CHOSEN, in the order of their ids. Redis has nothing but
 * a placeholder of them, and they have no revoked codes. 0, or -1: the round is over. What fails
 * for one coupon leaves that one; where PostgreSQL refuses a statement for one, it leaves all.
 */
int page_rebuild(struct keeper_context *context, struct coupon_page *coupons);

/*
 * In compare.c. For couponctl rebuild: compares a coupon slot by slot while it is open, and puts
 * its numbers right; where it changes all the time or anything else differs, it is held and
 * compared again, and rebuilt if that is so. 0, or -1 when Redis or PostgreSQL failed or another
 * keeper was elected: the round is over.
 */
int compare_run(struct keeper_context *context, const struct coupon_row *row,
		const struct coupon_look *look);
