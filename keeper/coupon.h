/*
 * What the keeper does for one coupon: load, verify, rebuild, give it newer terms. The keeper's
 * thread.
 */
#ifndef KEEPER_COUPON_H
#define KEEPER_COUPON_H

#include "keeper/context.h"

/*
 * A Redis process that is new must be known so long before a coupon is opened on it: gateways have
 * connected by then (they wait at most 2 s), and told what they have seen.
 */
#define KEEPER_VERIFY_AFTER_MS 2500

/* 0, or -1 when Redis or PostgreSQL failed or another keeper was elected: the round is over. */
int keeper_coupon_step(struct keeper_context *context, const struct coupon_row *row,
		       const struct coupon_look *look);

#endif
