/* The transaction in flight, as the arguments of settle() in PostgreSQL. */
#ifndef WORKER_SETTLE_SETTLEMENT_ARGS_H
#define WORKER_SETTLE_SETTLEMENT_ARGS_H

#include "common/postgres/settle_args.h"
#include "worker/consume/settlement.h"

/*
 * Fills the arguments of settle() with the transaction in flight, in the order of its positions.
 * The memory of earlier calls is reused.
 */
void settlement_args_fill(struct settle_args *args, const struct settlement *settlement);

#endif
