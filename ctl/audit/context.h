/* What the parts of an audit share. An audit changes nothing in any store. */
#ifndef CTL_AUDIT_CONTEXT_H
#define CTL_AUDIT_CONTEXT_H

#include "ctl/audit/finding.h"
#include "ctl/postgres.h"
#include "ctl/rabbit.h"
#include "coupon/redis_coupon.h"

struct audit {
	struct db *db;
	struct redis_client *redis;
	struct broker *broker;          /* queried only when a receive is overdue */
	char run_id[REDIS_RUN_ID_SIZE]; /* of the Redis process */
	int64_t grace_ms;               /* younger receives without an outcome are in flight */
	int64_t resend_after_ms;        /* of the keeper */
	int64_t stalled_ms;             /* longer in flight without progress: stalled */
	int64_t patience_ms;            /* left to wait for a keeper at work, over all coupons */
	int64_t resolve_ms;             /* the same to wait for outcomes */
	struct findings findings;
	int64_t stalled_n;   /* coupons with stalled receives */
	int64_t undecided_n; /* coupons without a verdict */
	int64_t behind;      /* transactions that PostgreSQL is behind Redis */
};

#endif
