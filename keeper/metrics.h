/*
 * The keeper's metrics. The keeper's thread writes, any thread reads. No metric has a label per
 * coupon, so the size of the page does not depend on their number.
 */
#ifndef KEEPER_METRICS_H
#define KEEPER_METRICS_H

#include <stdint.h>

struct evbuffer;

enum keeper_metric {
#define METRIC(name, text, type, help) name,
#include "keeper/metric_table.h"
#undef METRIC
	KEEPER_METRIC_COUNT
};

/* The state of a coupon, for couponmq_keeper_coupons{state="…"}. */
#define COUPON_STANDS(X)                                               \
	X(STAND_OPEN, "open")               /* requests are decided */ \
	X(STAND_NOT_STARTED, "not_started") /* before its begin */     \
	X(STAND_PAUSED, "paused")                                      \
	X(STAND_CLOSED, "closed")           /* and not yet settled */  \
	X(STAND_UNAVAILABLE, "unavailable") /* not loaded, not verified, or behind */

enum coupon_stand {
#define STAND(name, text) name,
	COUPON_STANDS(STAND)
#undef STAND
		STAND_COUNT
};

void keeper_metrics_add(enum keeper_metric metric, int64_t amount);
void keeper_metrics_set(enum keeper_metric metric, int64_t value);
int64_t keeper_metrics_get(enum keeper_metric metric);
void keeper_metrics_coupons(const int64_t counts[STAND_COUNT]);

void keeper_metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */

#endif
