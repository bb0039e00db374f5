/*
 * The exchange codes of a coupon: in PostgreSQL one is used exactly where a user coupon has it, and
 * in Redis exactly where a record of its user has it.
 */
#ifndef CTL_AUDIT_CODES_H
#define CTL_AUDIT_CODES_H

#include "ctl/audit/context.h"

/* Adds what is wrong to the findings. `in_redis`: the coupon is there, and can be compared. */
void codes_audit(struct audit *audit, int64_t coupon, int in_redis);

#endif
