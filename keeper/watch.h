/*
 * The metrics of all coupons: sums over a sweep, and the coupons whose numbers do not add up. Its
 * memory does not grow with their number.
 */
#ifndef KEEPER_WATCH_H
#define KEEPER_WATCH_H

#include "keeper/coupon.h"
#include "keeper/metrics.h"

#define WATCH_LOOKS 3       /* in a row that a coupon's numbers do not add up: then it is logged */
#define WATCH_SUSPECTS 1024 /* at a time; of two that share a place the first is kept */

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
	int looks;     /* so many in a row */
};

struct keeper_watch {
	int64_t sweep;
	struct watch_sums sums; /* of this sweep, so far */
	struct watch_suspect suspects[WATCH_SUSPECTS];
};

/* A sweep begins. */
void keeper_watch_begin(struct keeper_watch *watch);
/* One coupon of it, at Redis' time `now_ms`. 0, or -1 when Redis is lost. */
int keeper_watch_add(struct keeper_watch *watch, struct keeper_context *context,
		     const struct coupon_row *row, const struct coupon_look *look, int64_t now_ms);
/* It has seen all coupons: the metrics are set. */
void keeper_watch_end(const struct keeper_watch *watch);
/* This is not the keeper (any more): all sums are 0. */
void keeper_watch_none(void);

/*
 * Whether stock + taken + reserved + lost = total (P4) by the counts: taken are what is
 * issued, what is in flight of this generation (`seq` - settled), and `known` receives of older
 * ones. Each side is read at one moment, and neither settling nor issuing changes the difference;
 * so it need not be the same moment. Pure.
 */
int keeper_watch_equal(const struct coupon_row *row, const struct coupon_look *look, int64_t known);

#endif
