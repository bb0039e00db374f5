#include "ctl/store.h"

#include "common/log/log.h"
#include "ctl/behind.h"
#include "ctl/by.h"

#include <string.h>

#define PAGE 500

struct db *store_postgres_open(const struct ctl *ctl)
{
	return db_open("DATABASE_URL", ctl->config.database_url);
}

struct redis_client *store_redis_open(const struct ctl *ctl)
{
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);

	if (redis_client_open(redis))
		log_fatal("Redis, which REDIS_URL names, cannot be reached: %s",
			  redis_client_error(redis));
	return redis;
}

struct db *store_changing_open(const struct ctl *ctl)
{
	struct redis_client *redis = store_redis_open(ctl);
	struct db *db = store_postgres_open(ctl);

	behind_refuse(db, redis);
	redis_client_free(redis);
	by_set(db, &ctl->args);
	return db;
}

PGresult *store_coupon_row(struct db *db, const char *sql, int64_t coupon)
{
	char id[DB_NUMBER_SIZE];
	PGresult *row = db_query(db, sql, 1, (const char *[]){ db_number(coupon, id) });

	if (PQntuples(row) == 0)
		log_fatal("there is no coupon %s", id);
	return row;
}

int64_t store_coupons_read(struct db *db, const char *sql, int64_t after, int64_t count,
			   store_row_fn *take, void *context)
{
	int64_t n = 0;
	int rows_n, wanted;

	do {
		char id[DB_NUMBER_SIZE], limit[DB_NUMBER_SIZE];
		PGresult *page;

		wanted = count - n < PAGE ? (int)(count - n) : PAGE;
		page = db_query(db, sql, 2,
				(const char *[]){ db_number(after, id), db_number(wanted, limit) });
		rows_n = PQntuples(page);
		for (int row = 0; row < rows_n; row++)
			take(context, page, row);
		if (rows_n > 0)
			after = db_int(page, rows_n - 1, "id");
		n += rows_n;
		PQclear(page);
	} while (rows_n == wanted && n < count);
	return n;
}

void store_redis_check(const struct redis_client *redis, int ok)
{
	if (!ok)
		log_fatal("Redis: %s", redis_client_error(redis));
}

void store_run_id_read(struct redis_client *redis, char run_id[REDIS_RUN_ID_SIZE])
{
	int64_t uptime_s;

	store_redis_check(redis, redis_client_process(redis, run_id, &uptime_s) == 0);
}

void store_hash_scan(struct redis_client *redis, int64_t coupon, enum coupon_key which, int count,
		     store_scan_fn *step, void *context)
{
	char cursor[REDIS_CURSOR_SIZE] = "0", key[COUPON_KEY_SIZE];

	coupon_key(coupon, which, key);
	do {
		redisReply *reply = redis_client_hscan(redis, key, cursor, count);

		store_redis_check(redis, reply != NULL);
		step(context, reply->element[1]);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
}
