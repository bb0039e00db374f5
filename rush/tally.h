/*
 * Compares the answers of a rush with PostgreSQL (P3): each accepted receive is exactly one user
 * coupon or exactly one recorded rejection, and every outcome belongs to an accepted or an unknown
 * answer. No I/O.
 */
#ifndef RUSH_TALLY_H
#define RUSH_TALLY_H

#include "rush/requests.h"

#define RUSH_WRONG_MAX 20 /* what is wrong is named up to this number, and all is counted */
#define RUSH_WRONG_SIZE 192

struct rush_tally {
	int64_t told;         /* distinct receives that were answered as accepted */
	int64_t issued;       /* of these: user coupons */
	int64_t rejected;     /* of these: recorded rejections */
	int64_t lost;         /* of these: neither */
	int64_t both;         /* of these: both */
	int64_t twice;        /* more than one row, or answered to two requests without a key */
	int64_t other;        /* answered as issued and rejected, or the other way round */
	int64_t unkept;       /* users whose one key was answered with different receives */
	int64_t stray;        /* outcomes that no answer explains */
	int64_t from_unknown; /* outcomes that an unknown answer explains: allowed */
	size_t wrong_n;
	char wrong[RUSH_WRONG_MAX][RUSH_WRONG_SIZE];
};

/* In the order of user, coupon, batch and index, as all that is compared. */
void rush_receives_sort(struct rush_receives *receives);

/*
 * The number of distinct receives of `told` that are not in `before`. Adds them to `of_coupons`,
 * the numbers of each of the plan's coupons.
 */
int64_t rush_receives_new(const struct rush_receives *told, const struct rush_receives *before,
			  int64_t *of_coupons);

/*
 * `before` has the outcomes from before the rush, `rows` and `rejections` the present ones, of the
 * plan's users and coupons. Each, and what the answers told, is sorted.
 */
void rush_tally(struct rush_tally *tally, const struct rush_requests *requests,
		const struct rush_receives *before, const struct rush_receives *rows,
		const struct rush_receives *rejections);

/* Adds a sentence to `wrong`, if there is room. */
void rush_tally_note(struct rush_tally *tally, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The number of violations. */
int64_t rush_tally_wrong(const struct rush_tally *tally);

#endif
