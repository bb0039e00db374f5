/*
 * Stores in PostgreSQL what only Redis has of older generations, before a rebuild replaces it.
 */
#ifndef KEEPER_REBUILD_SEEN_H
#define KEEPER_REBUILD_SEEN_H

#include "keeper/context.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Raises in PostgreSQL the highest number of each older generation of these coupons to what Redis
 * has, and to what gateways have reported to it. Gateways remember the latest generation only, so
 * the next loss of Redis would lose these numbers. The coupons are held, and their new generations
 * open. 0, or -1 when Redis or PostgreSQL failed.
 */
int rebuild_seen(struct keeper_context *context, const int64_t *coupons, size_t n);

#endif
