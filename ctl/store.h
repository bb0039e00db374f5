/*
 * The stores as the settings name them. Every function here ends the process with one sentence when
 * its store cannot be reached or refuses.
 */
#ifndef CTL_STORE_H
#define CTL_STORE_H

#include "ctl/ctl.h"
#include "ctl/postgres.h"
#include "ctl/redis_coupon.h"

/* The database that DATABASE_URL names. */
struct db *store_postgres_open(const struct ctl *ctl);

/*
 * The same for changes, by --by. Nothing is changed while PostgreSQL is behind Redis: that is fatal
 * too.
 */
struct db *store_changing_open(const struct ctl *ctl);

/* One row of a coupon, by a query whose only parameter is its id. "There is no coupon" is fatal. */
PGresult *store_coupon_row(struct db *db, const char *sql, int64_t coupon);

/*
 * Calls `take` for each row of a query of coupons, whose parameters are the id after which to begin
 * and a number of rows. Reads in pages, without a transaction. At most `count` rows. Returns how
 * many there were.
 */
typedef void store_row_fn(void *context, const PGresult *page, int row);
int64_t store_coupons_read(struct db *db, const char *sql, int64_t after, int64_t count,
			   store_row_fn *take, void *context);

/* The Redis that REDIS_URL names. To be freed with redis_client_free(). */
struct redis_client *store_redis_open(const struct ctl *ctl);

/* Ends the process unless `ok`: the last command failed. */
void store_redis_check(const struct redis_client *redis, int ok);

/* The run id of the Redis process. */
void store_run_id_read(struct redis_client *redis, char run_id[REDIS_RUN_ID_SIZE]);

/*
 * Scans a hash of a coupon from its beginning to its end, about `count` fields a step. `step` gets
 * the fields of a step as an array of names and values in turn. HSCAN may return a field in more
 * than one step.
 */
typedef void store_scan_fn(void *context, const redisReply *fields);
void store_hash_scan(struct redis_client *redis, int64_t coupon, enum coupon_key which, int count,
		     store_scan_fn *step, void *context);

#endif
