/*
 * The metrics of all coupons: sums over a sweep, and the coupons whose numbers do not add up. Its
 * memory does not depend on the number of coupons.
 */
#ifndef KEEPER_WATCH_H
#define KEEPER_WATCH_H

#include "keeper/coupon.h"
#include "keeper/metrics.h"

#define WATCH_LOOKS 3       /* consecutive mismatches of a coupon before it is logged */
#define WATCH_SUSPECTS 1024 /* entries; of two coupons that share one the first is kept */

struct watch_sums {
	int64_t stands[STAND_COUNT];
	int64_t unequal;
	int64_t in_flight;
	int64_t reserved;
	int64_t unreleased; /* coupons */
	int64_t lost;
	int64_t outbox;
};

struct watch_suspect {
	int64_t coupon;
	int64_t sweep; /* the last in which its numbers did not add up */
	int looks;     /* consecutive mismatches */
};

struct keeper_watch {
	int64_t sweep;
	struct watch_sums sums; /* of this sweep, so far */
	struct watch_suspect suspects[WATCH_SUSPECTS];
};

/* Begins a sweep. */
void keeper_watch_begin(struct keeper_watch *watch);
/* Adds one coupon of the sweep, at Redis' time `now_ms`. 0, or -1 when Redis is lost. */
int keeper_watch_add(struct keeper_watch *watch, struct keeper_context *context,
		     const struct coupon_row *row, const struct coupon_look *look, int64_t now_ms);
/* Ends a sweep over all coupons: sets the metrics. */
void keeper_watch_end(const struct keeper_watch *watch);
/* Sets all sums to 0, while this worker is not the keeper. */
void keeper_watch_none(void);

/*
 * Whether stock + taken + reserved + lost = total (P4) by the counts. Taken are the issued
 * receives, those in flight of this generation (`seq` - settled), and `known` receives of older
 * ones. Each store is read atomically, and neither settling nor issuing changes the difference, so
 * the two stores need not be read at the same time. Pure.
 */
int keeper_watch_equal(const struct coupon_row *row, const struct coupon_look *look, int64_t known);

#endif
