/*
 * Receives that are in flight without progress, and what they wait for. A receive is stalled when
 * it is older than the limit, and either no receive of its coupon got an outcome for as long, or
 * one that was accepted later by more than the limit has an outcome already. A receive of an older
 * generation that Redis has only as a number is stalled when no receive of that generation got an
 * outcome for as long.
 */
#ifndef CTL_AUDIT_STALL_H
#define CTL_AUDIT_STALL_H

#include "ctl/audit/pass.h"

/* After watch_run(): fills the pass's `stall`. Takes a second when something is stalled. */
void stall_judge(struct pass *pass);

/* Prints the stalled receives, and one line for each thing that they wait for. */
void stall_print(const struct pass *pass);
/* What they wait for: objects with `what` and `text`. */
cJSON *stall_json(const struct pass *pass);

#endif
