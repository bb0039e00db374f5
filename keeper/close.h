/*
 * The end of a campaign: the keeper closes it when its end has passed, marks it as settled when
 * nothing of it is in flight any more, and then lets its keys in Redis expire. The keeper's thread.
 *
 *	published, paused ──end──▶ closed ──all settled──▶ settled_at ──expire.lua──▶ expires_at
 *
 * What is recorded in between is done again by the next look: nothing of it does harm twice.
 */
#ifndef KEEPER_CLOSE_H
#define KEEPER_CLOSE_H

#include "keeper/coupon.h"

/*
 * After the end, so that it never comes before the last receive by a clock that is set back a
 * little.
 */
#define CLOSE_GRACE_MS 1000

/* Whether it is over at Redis' time `now_ms` and PostgreSQL does not say so yet. Pure. */
int close_due(const struct coupon_row *row, int64_t now_ms);
/*
 * Closes it in PostgreSQL. Redis gets that as it gets any new terms. 0, or -1 when PostgreSQL
 * failed or another keeper was elected.
 */
int close_ended(struct keeper_context *context, const struct coupon_row *row);

/*
 * Whether PostgreSQL has an outcome for every receive that Redis has given out, as far as one
 * look shows. Receives of older generations and pending releases are checked when the coupon is
 * marked. Pure.
 */
int close_settles(const struct coupon_row *row, const struct coupon_look *look, const char *run_id);
/*
 * A closed coupon: marks it as settled, and lets its keys expire in `keep_ms`, if that can be. 1
 * when there is nothing else to be done for it, 0 when there may be, -1 when Redis or PostgreSQL
 * failed or another keeper was elected.
 */
int close_step(struct keeper_context *context, const struct coupon_row *row,
	       const struct coupon_look *look, int64_t keep_ms);

#endif
