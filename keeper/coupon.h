/*
 * What the keeper does for one coupon: load, verify, rebuild, apply new terms. At the end of a
 * campaign it closes the coupon, marks it as settled when none of its receives is in flight, and
 * lets its keys in Redis expire:
 *
 *	published, paused ──end──▶ closed ──all settled──▶ settled_at ──expire.lua──▶ expires_at
 *
 * A step that was interrupted is repeated by the next sweep. Each step may be repeated. The
 * keeper's thread.
 */
#pragma once

#include "keeper/rebuild/rebuild.h"

/*
 * Reads the state of the page's coupons in Redis, and raises the fence of those whose fence is
 * lower: later writes of an earlier keeper to them are refused. 0, or -1: the round is over.
 */
int keeper_coupons_look(struct keeper_context *context, struct coupon_page *page);
/*
 * Does together what some coupons of a page need, of those that are PAGE_LEFT: keeps the rows of
 * those whose terms have changed; verifies those that need nothing else; loads and rebuilds those
 * that Redis does not have, and that have few rows. The page is as it is after that. What is not
 * PAGE_WAITS or PAGE_DONE then is left to keeper_coupon_step(). 0, or -1: the round is over.
 */
int keeper_coupons_step(struct keeper_context *context, struct coupon_page *page);

/*
 * Does what the coupon needs next, at Redis' time `now_ms`. If it is closed and settled, its keys
 * are set to expire in `keep_ms`. 1 when it is settled now, or was not in Redis and something is
 * done or awaited for it; 0; -1 when Redis or PostgreSQL failed or another keeper was elected: the
 * round is over.
 */
int keeper_coupon_step(struct keeper_context *context, const struct coupon_row *row,
		       const struct coupon_look *look, int64_t now_ms, int64_t keep_ms);

/*
 * A coupon is closed this long after its end, so that a clock that is set back slightly does not
 * close it before its last receive.
 */
#define CLOSE_GRACE_MS 1000

/* Whether the coupon's end has passed at Redis' time `now_ms` and it is not closed yet. Pure. */
int close_due(const struct coupon_row *row, int64_t now_ms);
