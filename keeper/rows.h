/* Reads coupons in PostgreSQL, a page at a time. One thread. */
#ifndef KEEPER_ROWS_H
#define KEEPER_ROWS_H

#include "keeper/database.h"
#include "keeper/judge.h"

/* A position in the list of expiring coupons, which is ordered by time and id. */
#define KEEPER_EXPIRING_FIRST  \
	{                      \
		"-infinity", 0 \
	}
struct keeper_expiring {
	char at[48]; /* as PostgreSQL writes it */
	int64_t coupon;
};

/* Each of the following returns 0, or -1: it failed, as keeper/database.h says. */

/* The coupons after `after`, at most KEEPER_PAGE; `*n` is their number. Waits on no row lock. */
int rows_page(struct keeper_database *database, int64_t after, struct coupon_row rows[KEEPER_PAGE],
	      size_t *n);
/* Those of these coupons that are watched. At most KEEPER_PAGE ids. */
int rows_of(struct keeper_database *database, const int64_t *ids, size_t ids_n,
	    struct coupon_row rows[KEEPER_PAGE], size_t *n);
/*
 * Settled coupons whose keys have not expired yet, after `*after`, which is advanced. Only id,
 * generation and seq_seen are set.
 */
int rows_expiring(struct keeper_database *database, struct keeper_expiring *after,
		  struct coupon_row rows[KEEPER_PAGE], size_t *n);

/* One row of a page: the columns of sql_query_coupon_page. */
void rows_read(const PGresult *result, int i, struct coupon_row *row);

#endif
