#include "ctl/postgres.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/postgres/url.h"
#include "lock/postgres.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)

struct db {
	struct postgres *postgres;
	db_notice_fn *notice;
	void *notice_context;
};

static void notice(void *context, const char *text)
{
	const struct db *db = context;

	if (db->notice)
		db->notice(db->notice_context, text);
}

struct db *db_open(const char *setting, const char *url)
{
	struct db *db = calloc(1, sizeof(*db));
	const struct postgres_options options = {
		.url = url,
		.application_name = "couponctl",
		.connect_timeout_ms = DB_CONNECT_TIMEOUT_S * 1000,
		.lock_timeout_ms = DB_LOCK_TIMEOUT_S * 1000,
		.session = "SET timezone = 'UTC'; SET datestyle = 'ISO'",
		.notice = notice,
		.notice_context = db,
	};

	check(db != NULL);
	postgres_url_check(setting, url);
	db->postgres = postgres_new(&options);
	if (postgres_open(db->postgres))
		log_fatal("PostgreSQL, which %s names, cannot be reached: %s", setting,
			  db_error(db));
	return db;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	postgres_free(db->postgres);
	free(db);
}

void db_on_notice(struct db *db, db_notice_fn *fn, void *context)
{
	db->notice = fn;
	db->notice_context = context;
}

const char *db_error(struct db *db)
{
	return postgres_why_long(db->postgres);
}

static PGresult *arguments_try(struct db *db, const char *sql, int n,
			       const struct postgres_argument *arguments)
{
	static const struct postgres_patience as_long_as_connected;

	return postgres_query(db->postgres, sql, n, arguments, &as_long_as_connected);
}

static PGresult *db_try(struct db *db, const char *sql, int params_n, const char *const *params)
{
	struct postgres_argument arguments[POSTGRES_ARGUMENTS_MAX];

	check(params_n <= POSTGRES_ARGUMENTS_MAX);
	for (int i = 0; i < params_n; i++)
		arguments[i] = postgres_text(params[i]);
	return arguments_try(db, sql, params_n, arguments);
}

PGresult *db_query(struct db *db, const char *sql, int params_n, const char *const *params)
{
	PGresult *result = db_try(db, sql, params_n, params);

	if (!result)
		log_fatal("PostgreSQL: %s", db_error(db));
	return result;
}

int db_run_try(struct db *db, const char *sql)
{
	PGresult *result = db_try(db, sql, 0, NULL);

	PQclear(result);
	return result ? 0 : -1;
}

void db_run(struct db *db, const char *sql)
{
	PQclear(db_query(db, sql, 0, NULL));
}

PGresult *db_query_arguments(struct db *db, const char *sql, int n,
			     const struct postgres_argument *arguments)
{
	PGresult *result = arguments_try(db, sql, n, arguments);

	if (!result)
		log_fatal("PostgreSQL: %s", db_error(db));
	return result;
}

int db_lock_try(struct db *db, const char *name)
{
	switch (lock_session_try(db->postgres, name)) {
	case LOCK_REPLY_YES:
		return 1;
	case LOCK_REPLY_NO:
		return 0;
	case LOCK_REPLY_DOWN:
	case LOCK_REPLY_ERROR:
		break;
	}
	log_fatal("PostgreSQL: %s", db_error(db));
}

void db_lock_wait(struct db *db, const char *name)
{
	if (lock_session_wait(db->postgres, name) != LOCK_REPLY_YES)
		log_fatal("PostgreSQL: %s", db_error(db));
}

void db_pages_begin(struct db *db, const char *select, int params_n, const char *const *params)
{
	char sql[4096];

	check((size_t)snprintf(sql, sizeof(sql), "DECLARE pages NO SCROLL CURSOR FOR %s", select) <
	      sizeof(sql));
	PQclear(db_query(db, sql, params_n, params));
}

PGresult *db_page(struct db *db)
{
	return db_query(db, "FETCH " TEXT(DB_PAGE) " FROM pages", 0, NULL);
}

void db_pages_end(struct db *db)
{
	db_run(db, "CLOSE pages");
}

const char *db_number(int64_t number, char out[DB_NUMBER_SIZE])
{
	snprintf(out, DB_NUMBER_SIZE, "%lld", (long long)number);
	return out;
}

static int column_find(const PGresult *result, const char *column)
{
	int i = PQfnumber(result, column);

	check(i >= 0);
	return i;
}

int db_is_null(const PGresult *result, int row, const char *column)
{
	return PQgetisnull(result, row, column_find(result, column));
}

const char *db_text(const PGresult *result, int row, const char *column)
{
	return PQgetvalue(result, row, column_find(result, column));
}

int64_t db_int(const PGresult *result, int row, const char *column)
{
	return strtoll(db_text(result, row, column), NULL, 10);
}
