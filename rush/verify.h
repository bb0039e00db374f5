/* Waits until the receives of a rush are settled, and checks P1, P2 and P3 in PostgreSQL. */
#pragma once

#include "ctl/database.h"
#include "rush/tally.h"

/* The counts of a coupon in PostgreSQL. */
struct rush_counts {
	int64_t total, issued;
	int64_t generation;
	int64_t settled;     /* receives with an outcome, of all generations */
	int64_t settled_now; /* of these: of the current generation */
};

struct rush_verify {
	const struct rush_plan *plan;
	struct db *db;
	const char *database_url, *redis_url;
	int64_t settle_timeout_us;

	struct rush_receives before; /* outcomes of the plan's users when the rush began */
	struct rush_counts *counts;  /* of each coupon, when the rush began */

	/* The result. */
	int64_t total, issued; /* of all coupons together */
	int64_t oversold;      /* issued beyond the total of a coupon */
	int64_t rows_differ;   /* coupons whose issued_num is not the number of rows */
	int64_t over_limit;    /* users with more of a coupon than allowed */
	int64_t twice;         /* receives of these coupons with two outcomes */
	int64_t new_n;         /* receives answered that did not exist when the rush began */
	int64_t settled_us;    /* when all were first seen settled, monotonic; 0: never */
	struct rush_tally tally;
};

/* Before the load. Ends the process when a coupon does not exist. */
void rush_verify_begin(struct rush_verify *verify, const struct rush_plan *plan,
		       const char *database_url, const char *redis_url, int64_t settle_timeout_s);
/* What still goes on after a load, of all coupons together. */
struct rush_calm {
	int64_t accepted;  /* receives that Redis has accepted within a second */
	int64_t unsettled; /* receives without an outcome; -1: it is not known */
};

/* Looks at it for a second. */
void rush_verify_calm(struct rush_verify *verify, struct rush_calm *calm);

/* After the load. Sorts the receives that the answers named. */
void rush_verify_end(struct rush_verify *verify, struct rush_requests *requests);
void rush_verify_fini(struct rush_verify *verify);

int rush_verify_passed(const struct rush_verify *verify);
