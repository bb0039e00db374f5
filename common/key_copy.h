/*
 * API keys as Redis has them: a copy of PostgreSQL's table api_key, made after COMMIT, so that
 * gateways know them while PostgreSQL is away. Both number the changes. Redis is behind when it
 * lost data, or has not been told yet; it is ahead when PostgreSQL was put back to an earlier
 * moment, and then it is left as it is: couponctl recover brings its keys back.
 */
#pragma once

#include "common/redis/client.h"

#include <libpq-fe.h>
#include <stdint.h>

#define KEY_COPY_PAGE 100 /* records that are written together */

/*
 * The version that Redis has; 0: none, or it was overwritten. 0, or -1 as of redis_client_call().
 */
int key_copy_version(struct redis_client *redis, int64_t *version);

/* What became of a write; KEY_COPY_FAILED as of redis_client_call(). */
enum key_copied { KEY_COPIED, KEY_COPY_FAILED, KEY_COPY_FOREIGN, KEY_COPY_UNADOPTED };

/*
 * Writes the rows of sql_query_key_records for `from`, at most KEY_COPY_PAGE of them: lua/keys.lua.
 * Fewer rows are the last ones: with them Redis has all up to `to`, a number that was read before
 * them. `*from` becomes where the next page begins. Any caller may write at any time: what is
 * older than what Redis has, it ignores.
 */
enum key_copied key_copy_write(struct redis_client *redis, const char *installation,
			       const PGresult *rows, int64_t *from, int64_t to);
