/*
 * couponctl rebuild --release-lost: gives up accepted receives that can no longer arrive. Each is
 * named and recorded as rejected (lost); the keeper then releases its slot in Redis.
 */
#ifndef CTL_LOST_H
#define CTL_LOST_H

#include "ctl/ctl.h"
#include "ctl/postgres.h"

/* For the coupon on the command line. Ends the process when a queue still has messages. */
void lost_release(struct ctl *ctl, struct db *db);

#endif
