#include "ctl/store.h"

#include "common/log.h"

#include <stdio.h>
#include <string.h>

#define CURSOR_SIZE 24

struct db *store_postgres_open(const struct ctl *ctl)
{
	return db_open("DATABASE_URL", ctl->config.database_url);
}

PGresult *store_coupon_row(struct db *db, const char *sql, int64_t coupon)
{
	char id[DB_NUMBER_SIZE];
	PGresult *row = db_query(db, sql, 1, (const char *[]){ db_number(coupon, id) });

	if (PQntuples(row) == 0)
		log_fatal("there is no coupon %s", id);
	return row;
}

struct cache *store_redis_open(const struct ctl *ctl)
{
	char error[CACHE_ERROR_SIZE];
	struct cache *cache = cache_open(ctl->config.redis_url, error);

	if (!cache)
		log_fatal("Redis, which REDIS_URL names, cannot be reached: %s", error);
	return cache;
}

void store_redis_check(const struct cache *cache, int ok)
{
	if (!ok)
		log_fatal("Redis: %s", cache_error(cache));
}

void store_hash_scan(struct cache *cache, int64_t coupon, const char *suffix, int count,
		     store_scan_fn *step, void *context)
{
	char cursor[CURSOR_SIZE] = "0", key[CACHE_KEY_SIZE];

	cache_key(coupon, suffix, key);
	do {
		redisReply *reply = cache_scan(cache, key, cursor, count);

		store_redis_check(cache, reply != NULL);
		snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
		step(context, reply->element[1]);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
}
