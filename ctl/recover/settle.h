/* Brings back receives. */
#ifndef CTL_RECOVER_SETTLE_H
#define CTL_RECOVER_SETTLE_H

#include "ctl/recover/context.h"

/*
 * Settles every receive of the coupon that PostgreSQL has no outcome for, as a worker does, and
 * names those that are rejected.
 */
void receives_settle(struct recover_coupon *coupon);

#endif
