/*
 * The stores as the settings name them. Every function here ends the process with one sentence when
 * its store cannot be reached or refuses.
 */
#ifndef CTL_STORE_H
#define CTL_STORE_H

#include "ctl/ctl.h"
#include "ctl/postgres.h"
#include "ctl/redis.h"

/* The database that DATABASE_URL names. */
struct db *store_postgres_open(const struct ctl *ctl);

/* One row of a coupon, by a query whose only parameter is its id. "There is no coupon" is fatal. */
PGresult *store_coupon_row(struct db *db, const char *sql, int64_t coupon);

/* The Redis that REDIS_URL names. */
struct cache *store_redis_open(const struct ctl *ctl);

/* Ends the process unless `ok`: the last command failed. */
void store_redis_check(const struct cache *cache, int ok);

/*
 * Scans the hash coupon:{id}SUFFIX from its beginning to its end, about `count` fields a step.
 * `step` gets the fields of a step as an array of names and values in turn. HSCAN may return a field
 * in more than one step.
 */
typedef void store_scan_fn(void *context, const redisReply *fields);
void store_hash_scan(struct cache *cache, int64_t coupon, const char *suffix, int count,
		     store_scan_fn *step, void *context);

#endif
