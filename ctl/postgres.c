#include "ctl/postgres.h"

#include "common/check.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)

struct db {
	PGconn *conn;
	char error[512];
};

static void notice_drop(void *context, const PGresult *result)
{
	(void)context;
	(void)result;
}

/* libpq's message without its line ends, which would break a sentence. */
static const char *error_keep(struct db *db, const char *message)
{
	size_t n;

	snprintf(db->error, sizeof(db->error), "%s", message);
	n = strlen(db->error);
	while (n > 0 && strchr(" \n", db->error[n - 1]))
		db->error[--n] = '\0';
	for (char *p = db->error; *p; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
	return db->error;
}

int db_run_try(struct db *db, const char *sql)
{
	PGresult *result = PQexec(db->conn, sql);
	int rc = PQresultStatus(result) == PGRES_COMMAND_OK ||
				 PQresultStatus(result) == PGRES_TUPLES_OK
			 ? 0
			 : -1;

	if (rc)
		error_keep(db, PQerrorMessage(db->conn));
	PQclear(result);
	return rc;
}

void db_run(struct db *db, const char *sql)
{
	if (db_run_try(db, sql))
		log_fatal("PostgreSQL: %s", db->error);
}

struct db *db_open(const char *setting, const char *url)
{
	const char *const keywords[] = { "dbname", "connect_timeout", "tcp_user_timeout",
					 "fallback_application_name", NULL };
	const char *const values[] = { url, TEXT(DB_CONNECT_TIMEOUT_S), "10000", "couponctl",
				       NULL };
	struct db *db = calloc(1, sizeof(*db));

	check(db != NULL);
	db->conn = PQconnectdbParams(keywords, values, 1);
	if (!db->conn || PQstatus(db->conn) != CONNECTION_OK)
		log_fatal("PostgreSQL, which %s names, cannot be reached: %s", setting,
			  error_keep(db, db->conn ? PQerrorMessage(db->conn) : "out of memory"));
	PQsetNoticeReceiver(db->conn, notice_drop, NULL);
	db_run(db, "SET lock_timeout = '" TEXT(
			   DB_LOCK_TIMEOUT_S) "s'; SET timezone = 'UTC'; SET datestyle = 'ISO'");
	return db;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	PQfinish(db->conn);
	free(db);
}

const char *db_error(struct db *db)
{
	return db->error;
}

PGresult *db_try(struct db *db, const char *sql, int params_n, const char *const *params)
{
	PGresult *result = PQexecParams(db->conn, sql, params_n, NULL, params, NULL, NULL, 0);

	if (PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK)
		return result;
	error_keep(db, PQerrorMessage(db->conn));
	PQclear(result);
	return NULL;
}

PGresult *db_query(struct db *db, const char *sql, int params_n, const char *const *params)
{
	PGresult *result = db_try(db, sql, params_n, params);

	if (!result)
		log_fatal("PostgreSQL: %s", db->error);
	return result;
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
