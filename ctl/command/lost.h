/*
 * couponctl rebuild --release-lost: receives that were accepted and can no longer arrive are given
 * up. Each is named, and recorded as rejected (lost); the keeper then gives back what it holds in
 * Redis.
 */
#ifndef CTL_COMMAND_LOST_H
#define CTL_COMMAND_LOST_H

#include "ctl/ctl.h"
#include "ctl/postgres.h"

/*
 * Of the coupon of the command line. Ends the process when the queues still hold messages, or
 * something cannot be asked.
 */
void lost_release(struct ctl *ctl, struct db *db);

#endif
