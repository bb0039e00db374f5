/* The rejected receives of a coupon. */
#ifndef CTL_RECOVER_REJECTED_H
#define CTL_RECOVER_REJECTED_H

#include "ctl/recover/context.h"

/*
 * Records in PostgreSQL those that Redis has: they must never be issued. One that still holds its
 * slot in Redis is left for the keeper to release.
 */
void rejected_restore(struct recover_coupon *coupon);

#endif
