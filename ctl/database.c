#include "ctl/database.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/postgres/postgres_session.h"
#include "ctl/ctl.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_(number) #number
#define TEXT(number) TEXT_(number)

struct db {
	struct postgres *postgres;
	const char *setting;
	int is_synchronous;
	db_notice_fn *notice;
	void *notice_context;
};

static void on_notice(void *context, const char *text)
{
	const struct db *db = context;

	if (db->notice)
		db->notice(db->notice_context, text);
}

static void db_connect(struct db *db)
{
	if (postgres_open(db->postgres))
		log_fatal_as(CTL_AWAY, "PostgreSQL, which %s names, cannot be reached: %s",
			     db->setting, db_error(db));
}

static struct db *db_new(const char *setting, const char *url, int connect_timeout_s,
			 int is_synchronous)
{
	struct db *db = checked(calloc(1, sizeof(*db)));
	const struct postgres_options options = {
		.url = url,
		.application_name = log_program_name(),
		.connect_timeout_ms = (int64_t)connect_timeout_s * 1000,
		.lock_timeout_ms = DB_LOCK_TIMEOUT_S * 1000,
		.is_synchronous = is_synchronous,
		.judged = "", /* none, before db_judge() */
		.notice = on_notice,
		.context = db,
	};

	postgres_url_check(setting, url);
	db->setting = setting;
	db->is_synchronous = is_synchronous;
	db->postgres = postgres_new(&options);
	return db;
}

struct db *db_open(const char *setting, const char *url, int is_synchronous)
{
	struct db *db = db_new(setting, url, DB_CONNECT_TIMEOUT_S, is_synchronous);

	db_connect(db);
	return db;
}

struct db *db_open_try(const char *setting, const char *url, char *why, size_t size)
{
	struct db *db = db_new(setting, url, DB_TRY_S, 0);

	if (postgres_open(db->postgres) == 0)
		return db;
	snprintf(why, size, "%s", db_error(db));
	db_close(db);
	return NULL;
}

PGconn *db_libpq(const struct db *db)
{
	return postgres_libpq(db->postgres);
}

size_t db_hosts_n(const struct db *db)
{
	return postgres_tries_n(db->postgres);
}

void db_leave(struct db *db, const char *why)
{
	postgres_leave(db->postgres, why);
	db_connect(db);
}

void db_judge(struct db *db)
{
	PGresult *check;

	if (!db->is_synchronous)
		return;
	check = db_ask(db, sql_query_commit_check, postgres_text(NULL));
	if (!db_is_null(check, 0, "why"))
		log_fatal_as(CTL_AWAY,
			     "nothing was changed, because a COMMIT would not wait for a "
			     "synchronous standby of PostgreSQL: %s",
			     column_text(check, 0, "why"));
	PQclear(check);
	postgres_judge(db->postgres);
}

void db_close(struct db *db)
{
	if (!db)
		return;
	postgres_free(db->postgres);
	free(db);
}

const char *db_error(struct db *db)
{
	return postgres_why_long(db->postgres);
}

static const struct postgres_patience as_long_as_connected;

PGresult *db_query_arguments(struct db *db, const char *sql, int n,
			     const struct postgres_argument *arguments)
{
	PGresult *result = postgres_query(db->postgres, sql, n, arguments, &as_long_as_connected);

	if (!result) {
		enum postgres_failure failure = postgres_failure(db->postgres);

		log_fatal_as(failure == POSTGRES_BLOCKED ? CTL_AWAY
			     : failure != POSTGRES_DOWN  ? CTL_FAILED
			     : store_is_recorded()       ? CTL_UNKNOWN
							 : CTL_AWAY,
			     "PostgreSQL: %s", db_error(db));
	}
	return result;
}

PGresult *db_query_try(struct db *db, const char *sql, int n,
		       const struct postgres_argument *arguments)
{
	const struct postgres_patience patience = { .timeout_ms = DB_TRY_S * 1000 };

	return postgres_idle(db->postgres)
		       ? postgres_query(db->postgres, sql, n, arguments, &patience)
		       : NULL;
}

int64_t db_value_take(PGresult *result)
{
	const char *text = PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "";
	int64_t value = *text == 't' ? 1 : strtoll(text, NULL, 10);

	PQclear(result);
	return value;
}

struct postgres_argument db_id(int64_t id)
{
	return id ? postgres_number(id) : postgres_text(NULL);
}

int db_run_try(struct db *db, const char *sql, db_notice_fn *fn, void *context)
{
	PGresult *result;

	db->notice = fn;
	db->notice_context = context;
	result = postgres_query(db->postgres, sql, 0, NULL, &as_long_as_connected);
	db->notice = NULL;
	PQclear(result);
	return result ? 0 : -1;
}

void db_run(struct db *db, const char *sql)
{
	db_do(db, sql);
}

int db_lock_try(struct db *db, const char *name)
{
	return db_value(db, sql_query_lock_try, postgres_text(name), postgres_text("write")) == 1;
}

void db_lock_wait(struct db *db, const char *name)
{
	db_do(db, sql_query_lock_wait, postgres_text(name), postgres_text("write"));
}

void db_pages_arguments(struct db *db, const char *select, int n,
			const struct postgres_argument *arguments)
{
	char sql[4096];

	check((size_t)snprintf(sql, sizeof(sql), "DECLARE pages NO SCROLL CURSOR FOR %s", select) <
	      sizeof(sql));
	PQclear(db_query_arguments(db, sql, n, arguments));
}

PGresult *db_page(struct db *db)
{
	return db_ask(db, "FETCH " TEXT(DB_PAGE) " FROM pages");
}

void db_pages_end(struct db *db)
{
	db_run(db, "CLOSE pages");
}

int db_is_null(const PGresult *result, int row, const char *column)
{
	return *column_text(result, row, column) == '\0';
}

int db_is_true(const PGresult *result, int row, const char *column)
{
	return *column_text(result, row, column) == 't';
}

int64_t locks_look(struct locks *locks, struct db *db, int64_t now_ms)
{
	PGresult *result = db_ask(db, sql_query_audit_locks);
	struct locks now = { .n = 0 };
	int64_t longest_ms = 0;

	for (int row = 0; row < PQntuples(result) && now.n < LOCKS_MAX; row++, now.n++) {
		struct locks_held *held = &now.held[now.n];

		snprintf(held->transaction, sizeof(held->transaction), "%s",
			 column_text(result, row, "holder"));
		held->since_ms = now_ms;
		for (size_t i = 0; i < locks->n; i++)
			if (strcmp(locks->held[i].transaction, held->transaction) == 0)
				held->since_ms = locks->held[i].since_ms;
		if (now_ms - held->since_ms > longest_ms)
			longest_ms = now_ms - held->since_ms;
	}
	PQclear(result);
	*locks = now;
	return longest_ms >= LOCKS_OPEN_MS ? longest_ms : 0;
}

int locks_workers_hold(struct db *db)
{
	return db_value(db, sql_query_audit_workers) > 0;
}
