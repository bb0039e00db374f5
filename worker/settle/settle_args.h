/*
 * The arguments of settle(): ten arrays, built receive by receive. That of the codes stays empty
 * unless there is one.
 */
#ifndef WORKER_SETTLE_SETTLE_ARGS_H
#define WORKER_SETTLE_SETTLE_ARGS_H

#include "common/postgres/argument.h"
#include "worker/consume/settlement.h"

#define SETTLE_ARGS_N 10

struct settle_args {
	struct postgres_array arrays[SETTLE_ARGS_N];
};

void settle_args_init(struct settle_args *args);
void settle_args_fini(struct settle_args *args);

/*
 * Fills them with the transaction in flight, in the order of its positions. The memory of earlier
 * calls is reused.
 */
void settle_args_fill(struct settle_args *args, const struct settlement *settlement);

/* As the arguments of the statement; lent from `args`. */
void settle_args_arguments(const struct settle_args *args,
			   struct postgres_argument arguments[SETTLE_ARGS_N]);

#endif
