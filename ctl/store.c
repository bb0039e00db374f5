#include "ctl/store.h"

#include "common/changes.h"
#include "common/check.h"
#include "common/log/log.h"
#include "coupon/redis_coupon.h"
#include "embed.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 500
#define NAME_BYTES_MAX 100

struct db *store_postgres_open(const struct ctl *ctl)
{
	return db_open("DATABASE_URL", ctl->config.database_url);
}

struct db *store_admin_open(const struct ctl *ctl)
{
	const char *url = ctl->config.database_admin_url;

	return *url ? db_open("DATABASE_ADMIN_URL", url) : store_postgres_open(ctl);
}

struct redis_client *store_redis_open(const struct ctl *ctl)
{
	struct redis_client *redis = redis_client_new(ctl->config.redis_url, NULL);

	if (redis_client_open(redis))
		log_fatal("Redis, which REDIS_URL names, cannot be reached: %s",
			  redis_client_error(redis));
	return redis;
}

/*
 * The copy first: it must not be newer than what it is compared with. 0, or -1. Ends the process if
 * they are of different installations.
 */
static int both_read(struct db *db, struct redis_client *redis, struct changes *changes,
		     struct changes *copy)
{
	PGresult *rows;

	if (changes_copy_read(copy, redis))
		return -1;
	rows = db_ask(db, sql_query_change_counts);
	changes_take(changes, rows);
	PQclear(rows);
	if (changes_relate(RELATION_UNKNOWN, changes, copy) == RELATION_FOREIGN)
		log_fatal("nothing was done, because PostgreSQL, which DATABASE_URL names, is of "
			  "installation %s, and Redis, which REDIS_URL names, belongs to %s; see "
			  "couponctl installation",
			  changes->installation, copy->installation);
	return 0;
}

int64_t behind_read(struct db *db, struct redis_client *redis)
{
	struct changes changes, copy;

	return both_read(db, redis, &changes, &copy) ? -1 : changes_behind(&changes, &copy);
}

int behind_copy(struct db *db, struct redis_client *redis)
{
	struct changes changes, copy;

	return both_read(db, redis, &changes, &copy) ? -1
						     : changes_copy_raise(redis, &changes, &copy);
}

void behind_refuse(struct db *db, struct redis_client *redis)
{
	int64_t behind = behind_read(db, redis);

	if (behind < 0)
		log_fatal(
			"nothing was changed, because Redis, which REDIS_URL names and which knows "
			"whether PostgreSQL was put back to an earlier moment, cannot be read: %s",
			redis_client_error(redis));
	if (behind > 0)
		log_fatal(BEHIND_TEXT, (long long)behind);
}

/* Under sudo the user who called it. */
static const char *system_user(void)
{
	const char *sudo_user = getenv("SUDO_USER");
	const struct passwd *user = getpwuid(getuid());

	if (sudo_user && *sudo_user)
		return sudo_user;
	return user ? user->pw_name : "unknown";
}

void store_by_set(struct db *db, const struct args *args)
{
	const char *name = args_bytes(args, "by", NAME_BYTES_MAX);
	char host[64] = "", own[NAME_BYTES_MAX + 1];

	if (!name) {
		gethostname(host, sizeof(host) - 1);
		snprintf(own, sizeof(own), "%.30s@%.60s", system_user(), host);
		name = own;
	}
	db_do(db, sql_query_session_by, postgres_text(name));
}

struct db *store_changing_open(const struct ctl *ctl, struct redis_client **redis)
{
	struct redis_client *opened = store_redis_open(ctl);
	struct db *db = store_postgres_open(ctl);

	behind_refuse(db, opened);
	store_by_set(db, &ctl->args);
	if (redis)
		*redis = opened;
	else
		redis_client_free(opened);
	return db;
}

PGresult *store_coupon_row(struct db *db, const char *sql, int64_t coupon)
{
	PGresult *row = db_ask(db, sql, postgres_number(coupon));

	if (PQntuples(row) == 0)
		log_fatal("there is no coupon %lld", (long long)coupon);
	return row;
}

PGresult *store_slots_ask(struct db *db, const char *sql, int64_t coupon, const struct slot *slots,
			  size_t n)
{
	struct slot_arrays arrays;
	PGresult *rows;

	slot_arrays_init(&arrays);
	slot_arrays_add(&arrays, slots, n);
	rows = db_ask(db, sql, postgres_number(coupon), postgres_array(&arrays.users),
		      postgres_array(&arrays.numbers), postgres_array(&arrays.batches),
		      postgres_array(&arrays.indexes));
	slot_arrays_fini(&arrays);
	return rows;
}

char *store_receive_text(const PGresult *rows, int row, int64_t coupon,
			 char out[STORE_RECEIVE_SIZE])
{
	const char *user = db_text(rows, row, "user_id");
	char batch[ULID_SIZE] = "";
	struct ulid ulid;

	out[0] = '\0';
	if (!*user)
		return out;
	if (ulid_from_uuid(&ulid, db_text(rows, row, "batch")) == 0)
		ulid_format(&ulid, batch);
	snprintf(out, STORE_RECEIVE_SIZE, "%lld.%s.%s.%s", (long long)coupon, user, batch,
		 db_text(rows, row, "idx"));
	return out;
}

int64_t store_coupons_read(struct db *db, const char *sql, int64_t after, int64_t count,
			   store_row_fn *take, void *context)
{
	int64_t n = 0;
	int rows_n, wanted;

	do {
		PGresult *page;

		wanted = count - n < PAGE ? (int)(count - n) : PAGE;
		page = db_ask(db, sql, postgres_number(after), postgres_number(wanted));
		rows_n = PQntuples(page);
		for (int row = 0; row < rows_n; row++)
			take(context, page, row);
		if (rows_n > 0)
			after = strtoll(PQgetvalue(page, rows_n - 1, 0), NULL, 10);
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

redisReply *store_reply(const struct redis_client *redis, redisReply *reply)
{
	store_redis_check(redis, reply != NULL);
	return reply;
}

void store_has(struct redis_client *redis, int64_t coupon, enum coupon_key which,
	       const struct slot *slots, size_t n, char *has)
{
	store_redis_check(redis, coupon_has(redis, coupon, which, slots, n, has) == 0);
}

void store_run_id_read(struct redis_client *redis, char run_id[REDIS_RUN_ID_SIZE])
{
	int64_t uptime_s;

	store_redis_check(redis, redis_client_process(redis, run_id, &uptime_s) == 0);
}
