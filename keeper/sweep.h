/*
 * Sweeps over all watched coupons. A sweep checks each of them once; a round does as much of a
 * sweep as its time allows, and the next round continues it. Each round starts with the coupons
 * whose terms have changed. The keeper's thread.
 */
#pragma once

#include "common/program/config.h"
#include "keeper/outbox.h"

struct keeper_sweep;

/* Does not own its arguments. */
struct keeper_sweep *keeper_sweep_new(const struct config *config, struct keeper_context *context,
				      struct keeper_outbox *outbox);
void keeper_sweep_free(struct keeper_sweep *sweep);

/*
 * After this worker was elected: discards the state of earlier sweeps. The first sweep makes no
 * pauses.
 */
void keeper_sweep_restart(struct keeper_sweep *sweep);
/*
 * One round; `*pause_ms` is how long to wait after it. 0, or -1 when Redis, PostgreSQL or the lock
 * was lost.
 */
int keeper_sweep_round(struct keeper_sweep *sweep, int64_t *pause_ms);
