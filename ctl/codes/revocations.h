/*
 * Revocations in Redis. PostgreSQL has them first, with a number for each of a coupon. Redis gets
 * all those that it does not have, and then the number: see docs/lifecycle.md.
 */
#ifndef CTL_CODES_REVOCATIONS_H
#define CTL_CODES_REVOCATIONS_H

#include "common/redis/client.h"
#include "ctl/postgres.h"

/*
 * When it returns, nothing more is accepted of what PostgreSQL had revoked of the coupon when it
 * was called. A store that cannot ends the process: the keeper completes it.
 */
void revocations_apply(struct db *db, struct redis_client *redis, int64_t coupon);

#endif
