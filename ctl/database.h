/*
 * One synchronous connection to PostgreSQL for couponctl. A failure ends the process with a
 * sentence and an exit status, which rolls back the open transaction; only db_run_try() leaves a
 * failure to the caller.
 */
#pragma once

#include "common/postgres/postgres_session.h"

#include <stddef.h>
#include <stdint.h>

#define DB_CONNECT_TIMEOUT_S 20
#define DB_LOCK_TIMEOUT_S 10 /* a row held longer than this by someone else: give up */

struct db;

/*
 * `setting` names the connection string in errors; `is_synchronous`: COUPON_DATABASE_SYNCHRONOUS,
 * for db_judge().
 */
struct db *db_open(const char *setting, const char *url, int is_synchronous);
/* As db_open(), but returns NULL where PostgreSQL cannot be reached, which `why` has then. */
struct db *db_open_try(const char *setting, const char *url, char *why, size_t size);
void db_close(struct db *db); /* NULL is allowed */
/* The connection, for what libpq tells about it; NULL: it is lost. */
PGconn *db_libpq(const struct db *db);
/* The number of hosts in the URL. */
size_t db_hosts_n(const struct db *db);
/* Leaves a server that is not the wanted one: connects again, first to the next host. */
void db_leave(struct db *db, const char *why);

/*
 * With COUPON_DATABASE_SYNCHRONOUS=yes, from this call on, a COMMIT that is not shown to be on a
 * synchronous standby ends the process with CTL_UNKNOWN. If PostgreSQL does not wait for a standby,
 * this call ends the process with CTL_AWAY.
 */
void db_judge(struct db *db);

/* Runs one or several statements without parameters and without rows. */
void db_run(struct db *db, const char *sql);
/*
 * Like db_run(), but returns 0, or -1 with the sentence in db_error(). `fn` gets the notices that
 * the server sends meanwhile.
 */
typedef void db_notice_fn(void *context, const char *text);
int db_run_try(struct db *db, const char *sql, db_notice_fn *fn, void *context);

/*
 * Runs one statement with its arguments, which are made by postgres_text(), postgres_number(),
 * postgres_array() and db_id(). The caller clears the result with PQclear(); db_do() clears it.
 */
#define db_ask(db, sql, ...) db_query_arguments(db, sql, POSTGRES_ARGUMENTS(__VA_ARGS__))
#define db_do(db, sql, ...) PQclear(db_ask(db, sql, __VA_ARGS__))
/* The first column of the first row, a number or a boolean; 0: it is NULL, or there is no row. */
#define db_value(db, sql, ...) db_value_take(db_ask(db, sql, __VA_ARGS__))
int64_t db_value_take(PGresult *result);
PGresult *db_query_arguments(struct db *db, const char *sql, int n,
			     const struct postgres_argument *arguments);
/*
 * As db_ask(), but a failure returns NULL, with the sentence in db_error(). One that takes longer
 * than DB_TRY_S is lost with the connection, and all after it fail.
 */
#define DB_TRY_S 5
#define db_ask_try(db, sql, ...) db_query_try(db, sql, POSTGRES_ARGUMENTS(__VA_ARGS__))
PGresult *db_query_try(struct db *db, const char *sql, int n,
		       const struct postgres_argument *arguments);
struct postgres_argument db_id(int64_t id); /* 0: SQL's NULL */
const char *db_error(struct db *db);

/*
 * Take the lock of this name for this session, until db_close(). Nothing can be written in the
 * session after the lock has been lost, so the lock needs neither a lease nor a fence. It excludes
 * a lock of LOCK_POSTGRES with the same name, so other commands can run under it by couponctl lock.
 * The tables of couponmq need not exist.
 */
int db_lock_try(struct db *db, const char *name); /* 1, or 0: another session has it */
void db_lock_wait(struct db *db, const char *name);

/*
 * Read the rows of one SELECT in pages, within a transaction that the caller has begun: the table
 * is read once, and no more than a page is in memory. Only one SELECT at a time. db_page() returns
 * no row at the end.
 */
#define db_pages_begin(db, select, ...) \
	db_pages_arguments(db, select, POSTGRES_ARGUMENTS(__VA_ARGS__))
void db_pages_arguments(struct db *db, const char *select, int n,
			const struct postgres_argument *arguments);
PGresult *db_page(struct db *db);
void db_pages_end(struct db *db);
#define DB_PAGE 5000

/* A column by its name; a name that the statement does not have is a bug. */
int db_is_null(const PGresult *result, int row, const char *column); /* none of texts */
int db_is_true(const PGresult *result, int row, const char *column); /* 0 for NULL */

/*
 * Transactions that hold locks on the tables that settling writes. While one stays open, workers
 * may hold receives unacked for as long, and no receive can be called lost.
 */
#define LOCKS_MAX 64
#define LOCKS_OPEN_MS 1000 /* longer than a worker's transaction takes */

/* All zero at first. */
struct locks {
	struct locks_held {
		char transaction[32]; /* its virtual id */
		int64_t since_ms;     /* the first look that found it */
	} held[LOCKS_MAX];
	size_t n;
};

/*
 * Reads the transactions again. Returns for how long the oldest one has been seen; 0: none has been
 * open for LOCKS_OPEN_MS.
 */
int64_t locks_look(struct locks *locks, struct db *db, int64_t now_ms);

/*
 * Whether a worker is in a long transaction, or holds receives of a coupon that it has put off. The
 * reason need not be a lock; after a lock the worker holds them until it has retried them.
 */
int locks_workers_hold(struct db *db);
