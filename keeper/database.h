/*
 * The keeper's connection to PostgreSQL and its statements. They run one at a time, each with a
 * timeout. A failure concerns either the coupon of the statement (keeper_database_of_coupon(); the
 * connection is good) or the connection, which is dropped. Both are logged. One thread.
 */
#ifndef KEEPER_DATABASE_H
#define KEEPER_DATABASE_H

#include "common/postgres/query.h"
#include "keeper/judge.h"

#include <stddef.h>
#include <stdint.h>

#define KEEPER_PAGE 100 /* coupons read at a time */

struct keeper_database;

/* A position in the list of expiring coupons, which is ordered by time and id. */
#define KEEPER_EXPIRING_FIRST  \
	{                      \
		"-infinity", 0 \
	}
struct keeper_expiring {
	char at[48]; /* as PostgreSQL writes it */
	int64_t coupon;
};

struct keeper_database *keeper_database_new(const char *url, int64_t timeout_ms);
void keeper_database_free(struct keeper_database *database);

/* Connects if it is not connected, and listens for new terms. 0, or -1 (logged). */
int keeper_database_open(struct keeper_database *database);

int keeper_database_fd(const struct keeper_database *database); /* for poll(); -1 when down */
/* Reads pending notifications, without waiting: 1 when terms have changed since the last call. */
int keeper_database_notified(struct keeper_database *database);
/* The coupons whose terms have changed; `*more`: terms of other coupons may have changed. */
size_t keeper_database_changed(struct keeper_database *database, int64_t ids[KEEPER_PAGE],
			       int *more);

/* Runs one statement. Returns its rows, which the caller clears, or NULL: it failed. */
PGresult *keeper_database_query(struct keeper_database *database, const char *sql, int n,
				const struct postgres_argument *arguments);
/* Runs a statement that returns no rows. 0, or -1: it failed. */
int keeper_database_run(struct keeper_database *database, const char *sql, int n,
			const struct postgres_argument *arguments);
/*
 * Whether the last statement's failure concerns its coupon alone: a row of it is locked, or its
 * data is refused.
 */
int keeper_database_of_coupon(const struct keeper_database *database);

/* Each of the following returns 0, or -1: it failed. */
int keeper_database_fence(struct keeper_database *database, int64_t *fence);
/* The coupons after `after`, at most KEEPER_PAGE; `*n` is their number. Waits on no row lock. */
int keeper_database_page(struct keeper_database *database, int64_t after,
			 struct coupon_row rows[KEEPER_PAGE], size_t *n);
/* Those of these coupons that are watched. At most KEEPER_PAGE ids. */
int keeper_database_coupons(struct keeper_database *database, const int64_t *ids, size_t ids_n,
			    struct coupon_row rows[KEEPER_PAGE], size_t *n);
/*
 * Closes a coupon at its end; `*closed` is 0 when its terms have changed since. 1 when another
 * keeper was elected.
 */
int keeper_database_close(struct keeper_database *database, int64_t coupon, int64_t version,
			  int64_t fence, int *closed);
/*
 * Marks a closed coupon as settled if it is. The highest number in Redis is `seq` in `generation`,
 * and `seqs` in the older `generations` (int[] and bigint[]). `*settled`: it is settled. 1 when
 * another keeper was elected.
 */
int keeper_database_settled(struct keeper_database *database, int64_t coupon, int64_t fence,
			    int64_t generation, int64_t seq,
			    const struct postgres_array *generations,
			    const struct postgres_array *seqs, int *settled);
/* Records that its keys expire, which ends the watch. 1 when another keeper was elected. */
int keeper_database_expires(struct keeper_database *database, int64_t coupon, int64_t fence,
			    int64_t keep_ms);
/*
 * Settled coupons whose keys have not expired yet, after `*after`, which is advanced. Only id,
 * generation and seq_seen are set.
 */
int keeper_database_expiring(struct keeper_database *database, struct keeper_expiring *after,
			     struct coupon_row rows[KEEPER_PAGE], size_t *n);
/* One row of a page: the columns of sql/query/coupon_page.sql. */
void keeper_database_row(const PGresult *result, int i, struct coupon_row *row);
/*
 * Opens a new generation, higher than the row's and than Redis'. `*generation` is 0 when another
 * keeper was elected or the row's generation is no longer current.
 */
int keeper_database_generation(struct keeper_database *database, const struct coupon_row *row,
			       int64_t redis_generation, int64_t fence, int64_t *generation);

/*
 * Raises the timeout of the following statements to KEEPER_PATIENCE_MS, until it is called with
 * NULL. During a statement `waiting` is called several times a second; if it does not return 0, the
 * wait ends and the connection is dropped.
 */
#define KEEPER_PATIENCE_MS 120000
void keeper_database_patient(struct keeper_database *database, int (*waiting)(void *context),
			     void *context);

#endif
