/*
 * Whether PostgreSQL is behind Redis: it was put back to an earlier moment. Then only `couponctl
 * recover` may change anything; see docs/operations.md. Each function ends the process if Redis
 * belongs to another installation than PostgreSQL; if it belongs to none, nothing is copied.
 */
#ifndef CTL_BEHIND_H
#define CTL_BEHIND_H

#include "common/redis/client.h"
#include "ctl/postgres.h"

#include <stdint.h>

#define BEHIND_TEXT                                                                                \
	"PostgreSQL is behind Redis by at least %lld transactions: it was put back to an earlier " \
	"moment. Run couponctl recover --all, or couponctl recover --accept-loss"

/*
 * By how many transactions it is behind, at least; 0: it is not. Redis is read first. -1 when Redis
 * cannot be read, for redis_client_error().
 */
int64_t behind_read(struct db *db, struct redis_client *redis);

/*
 * Copies PostgreSQL's numbers to Redis, after a change and before Redis acts on it: then it is
 * noticed if PostgreSQL is put back to before the change. 0, or -1 as above.
 */
int behind_copy(struct db *db, struct redis_client *redis);

/* For a command that changes something: ends the process if it is behind, or if that is unknown. */
void behind_refuse(struct db *db, struct redis_client *redis);

#endif
