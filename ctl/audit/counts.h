/* Findings about the counts of a coupon in PostgreSQL and in Redis, and about its terms. */
#ifndef CTL_AUDIT_COUNTS_H
#define CTL_AUDIT_COUNTS_H

#include "ctl/audit/receives.h"

/* Reports the counts that are wrong by more than `explained`. */
void counts_judge(struct pass *pass, const struct explained *explained, enum sum_verdict sum);

#endif
