/*
 * The end of a campaign: the keeper closes a coupon when its end has passed, marks it as settled
 * when none of its receives is in flight, and then lets its keys in Redis expire. The keeper's
 * thread.
 *
 *	published, paused ──end──▶ closed ──all settled──▶ settled_at ──expire.lua──▶ expires_at
 *
 * A step that was interrupted is repeated by the next sweep. Each step may be repeated.
 */
#ifndef KEEPER_CLOSE_H
#define KEEPER_CLOSE_H

#include "keeper/coupon.h"

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

#endif
