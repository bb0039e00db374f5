/*
 * Receives that are in flight without progress, and what they wait for. A receive is stalled when
 * it is older than the limit, and either no receive of its coupon got an outcome for as long, or one
 * that was accepted later by more than the limit has an outcome already. A receive of an older
 * generation that Redis has only as a number is stalled when no receive of that generation got an
 * outcome for as long.
 */
#ifndef CTL_AUDIT_STALL_H
#define CTL_AUDIT_STALL_H

#include "ctl/audit/context.h"
#include "ctl/slots.h"

struct pass;

struct stall {
	int64_t n;          /* stalled receives; 0: none, and the rest is unset */
	int64_t unnamed;    /* of these, without a slot */
	struct slot oldest; /* of the others */
	int64_t age_ms;     /* of the oldest */
	int64_t idle_ms;    /* since the last outcome of the coupon; INT64_MAX: none is recorded */

	/* What they wait for. */
	int64_t outbox;            /* receives whose message is in the outbox */
	int keeper;                /* one is elected */
	struct broker_look broker; /* messages of any coupon */
	int64_t locked_ms;         /* another session has held a lock for so long; 0: none */
	int held;                  /* a worker is in a long transaction, or has put off coupons */
};

/* After watch_run(): fills the pass's `stall`. Takes a second when something is stalled. */
void stall_judge(struct pass *pass);

/* Prints the stalled receives, and one line for each thing that they wait for. */
void stall_print(const struct pass *pass);
/* What they wait for: objects with `what` and `text`. */
cJSON *stall_json(const struct pass *pass);

#endif
