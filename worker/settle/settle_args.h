/* The arguments of settle(): nine PostgreSQL arrays in binary form, built up receive by receive. */
#ifndef WORKER_SETTLE_SETTLE_ARGS_H
#define WORKER_SETTLE_SETTLE_ARGS_H

#include "worker/settle/settlement.h"

#include <stddef.h>
#include <stdint.h>

#define SETTLE_ARGS_N 9

struct settle_array {
	char *data;
	size_t len;
	size_t room;
};

struct settle_args {
	struct settle_array arrays[SETTLE_ARGS_N];
};

void settle_args_init(struct settle_args *args);
void settle_args_fini(struct settle_args *args);

/*
 * Fills them with the transaction in flight, in the order of its positions. The memory is used
 * again.
 */
void settle_args_fill(struct settle_args *args, const struct settlement *settlement);

/* PostgreSQL's type of argument `i`. */
uint32_t settle_args_type(int i);

#endif
