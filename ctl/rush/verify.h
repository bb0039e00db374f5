/* Waits until what a rush was told is settled, and checks promises P1, P2 and P3 in PostgreSQL. */
#ifndef CTL_RUSH_VERIFY_H
#define CTL_RUSH_VERIFY_H

#include "ctl/redis.h"
#include "ctl/postgres.h"
#include "ctl/rush/tally.h"

struct rush_verify {
	const struct rush_plan *plan;
	struct db *db;
	const char *redis_url;
	int64_t settle_timeout_ms;

	struct rush_receives before; /* outcomes of the plan's users when the rush began */
	int64_t settled_before;

	/* The result. */
	int64_t total, issued, oversold; /* oversold: issued beyond the total */
	int64_t rows_differ;             /* 1: issued_num is not the number of rows */
	int64_t over_limit;              /* users with more coupons than allowed */
	int64_t twice;                   /* receives of this coupon with two outcomes */
	int64_t new_n;                   /* receives told that were not there when the rush began */
	int64_t settled_us;              /* monotonic: when all was seen settled; 0: it never was */
	int64_t settled_n;               /* outcomes since the beginning */
	struct rush_tally tally;
};

/* Before the load: the coupon must be there. */
void rush_verify_begin(struct rush_verify *verify, const struct rush_plan *plan,
		       const char *database_url, const char *redis_url, int64_t settle_timeout_ms);
/* After it. -1 when the answers name receives that cannot be. */
int rush_verify_end(struct rush_verify *verify, const struct rush_book *book);
void rush_verify_fini(struct rush_verify *verify);

int rush_verify_passed(const struct rush_verify *verify);

#endif
