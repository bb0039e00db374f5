/* What the parts of an audit share. An audit changes nothing, anywhere. */
#ifndef CTL_AUDIT_AUDIT_H
#define CTL_AUDIT_AUDIT_H

#include "ctl/audit/finding.h"
#include "ctl/redis.h"
#include "ctl/postgres.h"

#define AUDIT_NO_VERDICT 4 /* exit status: it could not be asked, or could not be told */

struct broker;

struct audit {
	struct db *db;
	struct cache *cache;
	struct broker *broker; /* RabbitMQ, which is asked only when something is overdue */
	char run_id[CACHE_RUN_ID_SIZE]; /* of the Redis process */
	int64_t grace_ms;               /* younger receives without an outcome are on their way */
	/* how long to wait for a keeper that is at work; used up over all coupons */
	int64_t patience_ms;
	struct findings findings;
	int64_t undecided_n; /* coupons of which something could not be told */
};

/*
 * Audits one coupon that PostgreSQL has. Its figures go to `coupons`, or are printed when that is
 * NULL.
 */
void audit_coupon(struct audit *audit, int64_t coupon, cJSON *coupons);

/* Whatever ends here ends the process: Redis did not answer. */
void audit_redis_need(const struct audit *audit, int ok);

#endif
