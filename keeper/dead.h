/*
 * Batches that are in the dead-letter queue, or were dropped from it: they are the operator's. The
 * keeper's thread.
 */
#ifndef KEEPER_DEAD_H
#define KEEPER_DEAD_H

#include "keeper/context.h"

/*
 * Sets `marks[i]` to whether the batch is one of them. 0, or -1: Redis is lost. Where Redis
 * refuses, none is.
 */
int dead_read(struct keeper_context *context, int64_t coupon, const char *const *batches, size_t n,
	      char *marks);

#endif
