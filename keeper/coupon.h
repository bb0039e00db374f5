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
 * PAGE_WAITS or PAGE_DONE then is left to keeper_coupon_step(). As keeper_coupon_step().
 */
int keeper_coupons_step(struct keeper_context *context, struct coupon_page *page);

/* Whether the row is kept in Redis. Before that nothing else is done in Redis. Pure. */
int keeper_coupon_is_kept(const struct coupon_row *row, const struct coupon_look *look);
/* 0, or -1 when Redis or PostgreSQL failed or another keeper was elected: the round is over. */
int keeper_coupon_step(struct keeper_context *context, const struct coupon_row *row,
		       const struct coupon_look *look);

/*
 * A coupon is closed this long after its end, so that a clock that is set back slightly does not
 * close it before its last receive.
 */
#define CLOSE_GRACE_MS 1000

/* Whether the coupon's end has passed at Redis' time `now_ms` and it is not closed yet. Pure. */
int close_due(const struct coupon_row *row, int64_t now_ms);
/*
 * Closes the coupon in PostgreSQL. Redis receives this as new terms. 0, or -1 when PostgreSQL
 * failed or another keeper was elected.
 */
int close_ended(struct keeper_context *context, const struct coupon_row *row);

/*
 * Marks a closed coupon as settled, if it is, and sets its keys to expire in `keep_ms`. 1 when
 * both are done, 0 when other work for the coupon may be due, -1 when Redis or PostgreSQL failed
 * or another keeper was elected.
 */
int close_step(struct keeper_context *context, const struct coupon_row *row,
	       const struct coupon_look *look, int64_t keep_ms);
