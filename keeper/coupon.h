/*
 * What the keeper does for one coupon: load, verify, rebuild, apply new terms. The keeper's
 * thread.
 */
#ifndef KEEPER_COUPON_H
#define KEEPER_COUPON_H

#include "keeper/context.h"
#include "keeper/rebuild/rebuild.h"

/*
 * Keeps the coupon's row in Redis when its terms have changed: what Redis accepts receives for can
 * be made anew if PostgreSQL is put back to an earlier moment. As keeper_coupon_step().
 */
int keeper_coupon_keep(struct keeper_context *context, const struct coupon_row *row,
		       const struct coupon_look *look);

/*
 * Verifies those coupons of a page that need nothing else, together, and says so in `looks`.
 * The others, and those that are refused, are left to keeper_coupon_step(); those with `skip` too.
 * As keeper_coupon_step().
 */
int keeper_coupons_verify(struct keeper_context *context, const struct coupon_row *rows, size_t n,
			  struct coupon_look *looks, const char *skip);

/*
 * Loads and rebuilds together those coupons of a page that Redis does not have, and that have few
 * rows. `states` says which of them are done, or wait for reports; `rows` and `looks` are those
 * after it. The others are left to keeper_coupon_step(); those with `skip` too. As
 * keeper_coupon_step().
 */
int keeper_coupons_rebuild(struct keeper_context *context, struct coupon_row *rows, size_t n,
			   struct coupon_look *looks, const char *skip, enum page_state *states);

/* 0, or -1 when Redis or PostgreSQL failed or another keeper was elected: the round is over. */
int keeper_coupon_step(struct keeper_context *context, const struct coupon_row *row,
		       const struct coupon_look *look);

#endif
