/*
 * API keys that PostgreSQL has lost, because it was put back to an earlier moment, and Redis has;
 * see sql/schema/key.sql.
 */
#pragma once

#include "common/redis/redis_client.h"
#include "ctl/database.h"

/*
 * Returns by how many changes of keys, at least, Redis is ahead of PostgreSQL; 0: it is not. -1:
 * Redis cannot be read; redis_client_error() says why.
 */
int64_t keys_ahead(struct db *db, struct redis_client *redis);
#define KEYS_AHEAD_TEXT                                                                           \
	"PostgreSQL is behind Redis by at least %lld changes of API keys: it was put back to an " \
	"earlier moment. Run couponctl recover --all"

struct key_counts {
	int64_t created, changed, revoked, told, unreadable;
	int64_t ahead; /* keys_ahead() before */
};

/* `what` has happened to a key: created, changed, revoked, told to Redis; or it is unreadable. */
typedef void key_restored_fn(void *context, const char *what, const char *id);

/*
 * Takes keys back from Redis, within a transaction of the caller: sql/function/api_key_restore.sql.
 * `tell` may be NULL. A store that fails ends the process.
 */
void keys_restore(struct db *db, struct redis_client *redis, struct key_counts *counts,
		  key_restored_fn *tell, void *context);
