/* Brings receives back, or gives them up. */
#ifndef CTL_RECOVER_RECEIVES_H
#define CTL_RECOVER_RECEIVES_H

#include "ctl/recover/context.h"

/*
 * Settles every receive of the coupon that PostgreSQL has no outcome for, as a worker does, and
 * names those that are rejected.
 */
void receives_settle(struct recover_coupon *coupon);

/*
 * Names each receive of the coupon without an outcome whose message is gone, and records it as
 * lost. Counts the others that have no outcome as owed.
 */
void receives_give_up(struct recover_coupon *coupon);
/* Names every receive of a coupon that PostgreSQL does not have. Their messages are rejected. */
void receives_name(struct recover_coupon *coupon);

#endif
