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
#include "ctl/postgres.h"

/*
 * After the watch. The search is made twice, with a pause in between, for any number of passes:
 * what was just on its way has an outcome then, and a lock is seen to stay.
 *
 *	stall_search() of each ── stall_pause() ── stall_confirm() of those that found something
 */
int stall_search(struct pass *pass); /* whether something is stalled */
/* Takes a second. `locks` is all zero at first. */
void stall_pause(struct audit *audit, struct locks *locks);
/* Fills the pass's `stall`. */
void stall_confirm(struct pass *pass, struct locks *locks);

/* Prints the stalled receives, and one line for each thing that they wait for. */
void stall_print(const struct pass *pass);
/* What they wait for: objects with `what` and `text`. */
cJSON *stall_json(const struct pass *pass);

#endif
