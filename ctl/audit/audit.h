/* The audit of one coupon, for other commands. */
#ifndef CTL_AUDIT_AUDIT_H
#define CTL_AUDIT_AUDIT_H

#include "ctl/ctl.h"

/*
 * The verdict that couponctl audit would print: PASS, FAIL, UNKNOWN or STALLED. The coupon exists.
 * Ends the process when a store cannot be read.
 */
const char *audit_coupon(struct ctl *ctl, int64_t coupon);

#endif
