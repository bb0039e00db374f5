/*
 * The keeper's connection to PostgreSQL. Statements run one at a time, each with a timeout. A
 * failure concerns either the coupon of the statement (the connection is good) or the connection,
 * which is dropped. Both are logged. One thread.
 */
#pragma once

#include "common/postgres/postgres_session.h"

#include <stddef.h>
#include <stdint.h>

#define KEEPER_PAGE 100 /* coupons that are read or remembered at a time */

struct keeper_database;

/* `is_synchronous`: COUPON_DATABASE_SYNCHRONOUS, of all statements. */
struct keeper_database *keeper_database_new(const char *url, int is_synchronous);
void keeper_database_free(struct keeper_database *database);

/* The session, for postgres_open(), postgres_since_ms() and postgres_fd(). Failures are logged. */
struct postgres *keeper_database_session(const struct keeper_database *database);

/* Reads pending notifications, without waiting: 1 when terms have changed since the last call. */
int keeper_database_notified(struct keeper_database *database);
/* The coupons whose terms have changed; `*more`: terms of other coupons may have changed. */
size_t keeper_database_changed(struct keeper_database *database, int64_t ids[KEEPER_PAGE],
			       int *more);

/*
 * A round begins: statements wait for locks as long as usual. When many of one round have waited in
 * vain, the others of the round wait only briefly.
 */
void keeper_database_round(struct keeper_database *database);

/* Runs one statement. Returns its rows, which the caller clears, or NULL: it failed. */
PGresult *keeper_database_query(struct keeper_database *database, const char *sql, int n,
				const struct postgres_argument *arguments);
/* As keeper_database_query(), with an array of coupons as the argument. */
PGresult *keeper_database_coupons(struct keeper_database *database, const char *sql,
				  const int64_t *ids, size_t n);
/*
 * A statement in two steps, to work while the statement runs. No other statement may be run in
 * between. 0, or -1: it was not sent, and there is nothing to take.
 */
int keeper_database_send(struct keeper_database *database, const char *sql, int n,
			 const struct postgres_argument *arguments);
PGresult *keeper_database_take(struct keeper_database *database);
/* Before that: waits for the answer, at most so long. Whether it has to be waited for longer. */
int keeper_database_waits(const struct keeper_database *database, int64_t for_ms);
/* Runs a statement that returns no rows. 0, or -1: it failed. */
int keeper_database_run(struct keeper_database *database, const char *sql, int n,
			const struct postgres_argument *arguments);
/*
 * Raises the timeout of the following statements to KEEPER_PATIENCE_MS, until it is called with
 * NULL. During a statement `waiting` is called several times a second; if it does not return 0, the
 * wait ends and the connection is dropped.
 */
#define KEEPER_PATIENCE_MS 120000
void keeper_database_patient(struct keeper_database *database, int (*waiting)(void *context),
			     void *context);
