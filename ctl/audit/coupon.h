/* The audit of one coupon. */
#ifndef CTL_AUDIT_COUPON_H
#define CTL_AUDIT_COUPON_H

#include "ctl/audit/context.h"

/*
 * Audits a coupon that PostgreSQL has. Its figures are appended to `coupons`, or printed when that
 * is NULL.
 */
void audit_coupon(struct audit *audit, int64_t coupon, cJSON *coupons);

#endif
