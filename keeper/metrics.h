/*
 * The keeper's metrics, and the sums over a sweep that some of them are. The keeper's thread
 * writes, any thread reads. At most WATCH_CAMPAIGNS single campaigns have metrics of their
 * own: neither the size of the page nor the memory depends on how many campaigns there are.
 */
#pragma once

#include "common/serve/metrics.h"
#include "keeper/coupon_state.h"
#include "keeper/resend.h"

/* The state of a coupon, for couponmq_keeper_coupons{state="…"}. */
#define WATCH_STATES(X)                                                \
	X(WATCH_OPEN, "open")               /* requests are decided */ \
	X(WATCH_NOT_STARTED, "not_started") /* before its begin */     \
	X(WATCH_PAUSED, "paused")                                      \
	X(WATCH_CLOSED, "closed")           /* and not yet settled */  \
	X(WATCH_UNAVAILABLE, "unavailable") /* not loaded, not verified, or behind */

enum watch_state {
#define STATE(name, text) name,
	WATCH_STATES(STATE)
#undef STATE
		WATCH_STATE_COUNT
};

extern const char *const watch_queues[RESEND_QUEUES]; /* the names of the queues */

enum keeper_metric {
	KEEPER_METRIC_BEFORE = METRICS_KEEPER - 1,
#define METRIC(name, text, type, help) name,
#include "keeper/metric_table.h"
#undef METRIC
	KEEPER_METRIC_END,
	KEEPER_METRIC_COUPONS = KEEPER_METRIC_END, /* from here on: by enum watch_state */
	KEEPER_METRIC_QUEUES = KEEPER_METRIC_COUPONS + WATCH_STATE_COUNT, /* by enum resend_queue */
	KEEPER_METRIC_PLACES = KEEPER_METRIC_QUEUES + RESEND_QUEUES
};

struct watch_sums {
	int64_t states[WATCH_STATE_COUNT];
	int64_t of[KEEPER_METRIC_END]; /* of the metrics from UNEQUAL to OUTBOX */
};

#define WATCH_LOOKS 3       /* consecutive mismatches of a coupon before it is logged */
#define WATCH_SUSPECTS 1024 /* entries; of two coupons that share one the first is kept */

struct watch_suspect {
	int64_t coupon;
	int64_t sweep; /* the last in which its numbers did not add up */
	int looks;     /* consecutive mismatches */
};

#define WATCH_CAMPAIGNS 20  /* few enough that the label adds no more than 80 series */
#define WATCH_IDLE_MS 60000 /* after which a campaign gives its place to one that is busy */

/* The metrics of a single campaign. */
#define CAMPAIGN_VALUES(X)                                                                      \
	X(CAMPAIGN_OFFERED, "keeper_coupon_offered", "Total of the campaign.")                  \
	X(CAMPAIGN_STOCK, "keeper_coupon_stock", "Stock of the campaign that Redis still has.") \
	X(CAMPAIGN_ISSUED, "keeper_coupon_issued",                                              \
	  "Issued coupons of the campaign in PostgreSQL.")                                      \
	X(CAMPAIGN_IN_FLIGHT, "keeper_coupon_in_flight",                                        \
	  "Accepted receives of the campaign without an outcome in PostgreSQL.")

enum campaign_value {
#define VALUE(name, text, help) name,
	CAMPAIGN_VALUES(VALUE)
#undef VALUE
		CAMPAIGN_VALUE_COUNT
};

struct watch_campaign {
	int64_t coupon;
	int64_t sweep;   /* the last that has seen it */
	int64_t busy_ms; /* when something of it was in flight, by Redis' clock */
	int64_t values[CAMPAIGN_VALUE_COUNT];
};

struct keeper_watch {
	int64_t sweep;
	struct watch_sums sums; /* of this sweep, so far */
	struct watch_suspect suspects[WATCH_SUSPECTS];
	struct watch_campaign campaigns[WATCH_CAMPAIGNS]; /* those that were busy last */
	size_t campaigns_n;
};

void keeper_metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */

/* Begins a sweep. */
void keeper_watch_begin(struct keeper_watch *watch);
/*
 * Adds one coupon of the sweep, on this process of Redis, at Redis' time `now_ms`. 0, or -1 when
 * Redis is lost.
 */
int keeper_watch_add(struct keeper_watch *watch, struct redis_client *redis, const char *run_id,
		     const struct coupon_row *row, const struct coupon_look *look, int64_t now_ms);
/* Sets the metrics to what was found, at the end of a sweep over all coupons. */
void keeper_watch_publish(struct keeper_watch *watch);
/* Sets all of them to 0, while this worker is not the keeper. */
void keeper_watch_none(void);
