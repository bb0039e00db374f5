/*
 * What GET /metrics tells of this worker. The loop and the keeper's thread write, each its own metrics; any thread reads.
 * Nothing here has a label for each coupon: what is told does not grow with their number.
 */
#ifndef WORKER_METRICS_H
#define WORKER_METRICS_H

#include "worker/outcome.h"
#include "worker/stats.h"

#include <stddef.h>
#include <stdint.h>

struct evbuffer;

enum metric {
#define METRIC(name, text, type, help) name,
#include "worker/metric_table.h"
#undef METRIC
	METRIC_COUNT
};

/* How a coupon stands, for couponmq_keeper_coupons{state="…"}. */
#define COUPON_STANDS(X)                                                                                               \
	X(STAND_OPEN, "open")               /* requests are decided */                                                 \
	X(STAND_NOT_STARTED, "not_started") /* its begin is to come */                                                 \
	X(STAND_PAUSED, "paused")                                                                                      \
	X(STAND_CLOSED, "closed")           /* and not yet settled */                                                  \
	X(STAND_UNAVAILABLE, "unavailable") /* not loaded, not verified, or behind */

enum coupon_stand {
#define STAND(name, text) name,
	COUPON_STANDS(STAND)
#undef STAND
	STAND_COUNT
};

void metrics_add(enum metric metric, int64_t amount);
void metrics_set(enum metric metric, int64_t value);
int64_t metrics_get(enum metric metric);
void metrics_stats(const struct stats *stats);
void metrics_rejected(enum outcome_reason reason);
void metrics_coupons(const int64_t counts[STAND_COUNT]);

void metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */

#endif
