/*
 * What the keeper does for one coupon: load, verify, rebuild, apply new terms. The keeper's
 * thread.
 */
#ifndef KEEPER_COUPON_H
#define KEEPER_COUPON_H

#include "keeper/context.h"
#include "keeper/rebuild/rebuild.h"

/*
 * Does together what some coupons of a page need, but for those with `skip`: keeps the rows of
 * those whose terms have changed; verifies those that need nothing else; loads and rebuilds those
 * that Redis does not have, and that have few rows. `rows` and `looks` are those after it; `states`
 * says which are loaded or rebuilt, or wait for reports. The others, and those that are refused,
 * are left to keeper_coupon_step(). As keeper_coupon_step().
 */
int keeper_coupons_step(struct keeper_context *context, struct coupon_page *page,
			enum page_state states[KEEPER_PAGE]);

/* Whether the row is kept in Redis. Before that nothing else is done in Redis. Pure. */
int keeper_coupon_is_kept(const struct coupon_row *row, const struct coupon_look *look);
/* 0, or -1 when Redis or PostgreSQL failed or another keeper was elected: the round is over. */
int keeper_coupon_step(struct keeper_context *context, const struct coupon_row *row,
		       const struct coupon_look *look);

#endif
