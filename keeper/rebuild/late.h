/*
 * Reports to Redis the outcomes of receives of older generations, which Redis counts as reserved
 * after a rebuild. Each outcome is counted once, in the order of their numbers. The elected
 * keeper's thread.
 */
#ifndef KEEPER_REBUILD_LATE_H
#define KEEPER_REBUILD_LATE_H

#include "common/backoff.h"
#include "keeper/context.h"

#define LATE_PAGE 128 /* outcomes in a step */

/* The next step starts after this number of this coupon. Both 0: at the first. */
struct late {
	int64_t coupon, number;
	struct put_off put_off; /* coupons whose outcomes are locked in PostgreSQL */
};

/*
 * Reports the next page. 1 when there may be more, 0 when this was the last page and the next step
 * starts at the first, -1 when Redis or PostgreSQL failed.
 */
int late_step(struct late *late, struct keeper_context *context);

#endif
