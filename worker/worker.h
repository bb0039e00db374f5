/* The loop: collects deliveries, settles them in transactions, acks what is committed. */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include "common/program/config.h"
#include "keeper/keeper.h"

struct worker;

/*
 * `keeper` is woken after each transaction that rejected something. Both must outlive the worker.
 */
struct worker *worker_new(const struct config *config, struct keeper *keeper);
void worker_free(struct worker *worker);

/*
 * Runs until `signal_fd` can be read; then takes no more, finishes what it holds and returns.
 * Finishing takes at most WORKER_STOP_MS: what is not settled by then is delivered to another
 * worker.
 */
#define WORKER_STOP_MS 8000
void worker_run(struct worker *worker, int signal_fd);

#endif
