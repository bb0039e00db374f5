/*
 * Loads and rebuilds coupons that Redis does not have, and that have few rows, together: each step
 * of rebuild.h is done for all of them in one round trip and one transaction. After a loss of data
 * in Redis most coupons are of this kind. The keeper's thread.
 */
#ifndef KEEPER_REBUILD_PAGE_H
#define KEEPER_REBUILD_PAGE_H

#include "keeper/context.h"

#define PAGE_ROWS_EACH 1000 /* at most, of a coupon */
#define PAGE_ROWS_ALL 10000 /* and of all coupons of a page */

enum page_state {
	PAGE_LEFT,  /* to rebuild_run(), or to the next round */
	PAGE_WAITS, /* as of rebuild_hold_for_reports() */
	PAGE_DONE   /* opened */
};

struct page_coupon {
	struct coupon_row row; /* as it was read; when it is done, as it is after that */
	int64_t redis_generation;
	int is_load; /* for the first time: no gateway can report anything */
	enum page_state state;
};

/*
 * Coupons of which Redis had nothing but a placeholder, in the order of their ids, at most
 * KEEPER_PAGE, without revoked codes. 0, or -1: the round is over. What fails for one coupon leaves
 * that one; where PostgreSQL refuses a statement for one, it leaves all.
 */
int page_rebuild(struct keeper_context *context, struct page_coupon *coupons, size_t n);

#endif
