/* How much of its coupons a rush finds settled in PostgreSQL, and the wait until all of it is. */
#ifndef CTL_RUSH_SETTLED_H
#define CTL_RUSH_SETTLED_H

#include "ctl/postgres.h"
#include "ctl/rush/coupons.h"

/* The counts of a coupon in PostgreSQL. */
struct rush_counts {
	int64_t total, issued;
	int64_t generation;
	int64_t settled;     /* receives with an outcome, of all generations */
	int64_t settled_now; /* of these: of the current generation */
};

/*
 * Reads the counts of `n` coupons, whose ids ascend. Ends the process when one of them does not
 * exist.
 */
void rush_counts_read(struct db *db, const int64_t *ids, uint32_t n, struct rush_counts *counts);

struct rush_settled {
	struct db *db;
	const int64_t *ids; /* of the coupons, ascending */
	uint32_t n;
	const struct rush_counts *before; /* of each coupon */
	const int64_t *wanted;            /* of each coupon: outcomes that are to be added */
};

/* Returns when all were seen, monotonic, which is never too early; 0: not until the deadline. */
int64_t rush_settled_wait(const struct rush_settled *settled, int64_t deadline_us);

#define RUSH_POLL_US 5000 /* between two reads of counts, which must not disturb the measurement */

#endif
