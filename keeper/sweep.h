/*
 * The keeper's way through all watched coupons. A sweep looks at each of them once; a round does as
 * much of it as its time allows, and the next round goes on behind that. Coupons whose terms have
 * just changed come first in every round. The keeper's thread.
 */
#ifndef KEEPER_SWEEP_H
#define KEEPER_SWEEP_H

#include "common/config.h"
#include "keeper/coupon.h"
#include "keeper/lock.h"
#include "keeper/outbox.h"

struct keeper_sweep;

/* None of these is owned. `stop` is looked at between two coupons. */
struct keeper_sweep *keeper_sweep_new(const struct config *config, struct keeper_context *context,
				      struct keeper_lock *lock, struct keeper_outbox *outbox,
				      const atomic_int *stop);
void keeper_sweep_free(struct keeper_sweep *sweep);

/*
 * This worker was just elected: nothing that it remembers counts any more, and the first sweep
 * makes no pauses.
 */
void keeper_sweep_restart(struct keeper_sweep *sweep);
/*
 * One round; `*pause_ms` is how long to wait after it. 0, or -1 when Redis, PostgreSQL or the lock
 * was lost.
 */
int keeper_sweep_round(struct keeper_sweep *sweep, int64_t *pause_ms);

#endif
