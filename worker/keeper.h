/*
 * The keeper: in one elected worker, a thread that opens and closes campaigns in Redis, verifies them after a restart of
 * Redis, and sends orphaned messages again.
 */
#ifndef WORKER_KEEPER_H
#define WORKER_KEEPER_H

#include "common/config.h"

struct keeper;

/* Starts the thread. `config` must outlive it. */
struct keeper *keeper_start(const struct config *config);
/* Ends it (gives up the lock) and waits for that. */
void keeper_stop(struct keeper *keeper);

#endif
