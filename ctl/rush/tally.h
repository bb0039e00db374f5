/*
 * What was told against what PostgreSQL has (promise P3): each receive that was told accepted is
 * exactly one user coupon or exactly one recorded rejection, and nobody has a coupon who was not
 * told so or left in the dark. No I/O.
 */
#ifndef CTL_RUSH_TALLY_H
#define CTL_RUSH_TALLY_H

#include "ctl/rush/book.h"

#define RUSH_WRONG_MAX 20 /* wrong receives that are named; all are counted */
#define RUSH_WRONG_SIZE 160

struct rush_receive {
	int64_t user;
	struct ulid batch;
	int16_t index;
	int16_t code; /* of told ones: what was answered */
};

/* In the order of user, batch and index. */
struct rush_receives {
	struct rush_receive *list;
	size_t n, size;
};

struct rush_tally {
	int64_t told;     /* different receives that were told accepted */
	int64_t issued;   /* of these: user coupons */
	int64_t rejected; /* of these: recorded rejections */
	int64_t lost;     /* of these: neither */
	int64_t both;     /* of these: both */
	int64_t twice;  /* more than one row, or one receive told for two requests without a key */
	int64_t other;  /* told issued and rejected, or told rejected and issued */
	int64_t unkept; /* users whose one key gave different receives */
	int64_t stray;  /* outcomes of users who were never told, beyond their unknown answers */
	int64_t from_unknown; /* outcomes behind unknown answers: allowed */
	size_t wrong_n;
	char wrong[RUSH_WRONG_MAX][RUSH_WRONG_SIZE];
};

void rush_receives_add(struct rush_receives *receives, const struct rush_receive *receive);
void rush_receives_sort(struct rush_receives *receives);
void rush_receives_fini(struct rush_receives *receives);

/* The receives that the book was told, sorted, copies included. -1 when a batch is no ULID. */
int rush_receives_told(struct rush_receives *told, const struct rush_book *book);

/* How many different ones of `told` are not in `before`. */
int64_t rush_receives_new(const struct rush_receives *told, const struct rush_receives *before);

/*
 * `before` holds the outcomes that were there when the rush began, `rows` and `rejections` those
 * that are there now; all sorted, of the plan's users.
 */
void rush_tally(struct rush_tally *tally, const struct rush_book *book,
		const struct rush_receives *told, const struct rush_receives *before,
		const struct rush_receives *rows, const struct rush_receives *rejections);

/* How many things are wrong. */
int64_t rush_tally_wrong(const struct rush_tally *tally);

#endif
