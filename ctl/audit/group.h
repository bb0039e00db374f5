/*
 * Coupons that are audited together. Most are judged after one look. Those with receives that are
 * overdue or stalled need several looks with pauses in between: they are kept, and looked at
 * together, so that a pause is for all of them.
 */
#ifndef CTL_AUDIT_GROUP_H
#define CTL_AUDIT_GROUP_H

#include "ctl/audit/context.h"

#include <stddef.h>

#define GROUP_MAX 1000

struct coupon_audit;

struct group {
	struct audit *audit;
	cJSON *coupons; /* the figures of each; NULL: they are printed */
	struct coupon_audit *list[GROUP_MAX];
	size_t n;
	size_t suspects_n;
};

/* Audits a coupon that PostgreSQL has, or keeps it for group_end(). */
void group_audit(struct group *group, int64_t coupon);
/* Judges those that were kept. */
void group_end(struct group *group);

#endif
