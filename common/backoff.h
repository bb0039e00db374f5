/*
 * The wait before the next attempt, with jitter of half its length: doubles from 50 ms to at most
 * 2 s. That of a connection stays at 200 ms for the first attempts, because a store that was
 * restarted is back within seconds, and what waits for it should not wait longer than that.
 */
#pragma once

#include "common/hash.h"

#include <stddef.h>
#include <stdint.h>

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MOST_MS 2000
#define BACKOFF_CONNECT_MS 200
#define BACKOFF_CONNECT_TRIES 100 /* of these; some 15 s */

/*
 * Failures in a row are told in the log once: again after a minute, and after ten seconds if the
 * reason is another one, as that of several hosts may be each time.
 */
#define BACKOFF_TELL_MS 60000
#define BACKOFF_TELL_OTHER_MS 10000

struct backoff {
	int64_t next_ms; /* 0: no failure yet */
	int tries;       /* of a connection */
	uint64_t told;   /* a hash of the reason, and when; 0: none was told yet */
	int64_t told_ms;
};

/* the wait after one more failure, BACKOFF_FIRST_MS/2…BACKOFF_MOST_MS */
int64_t backoff_ms(struct backoff *backoff);
/* the same for a connection, BACKOFF_CONNECT_MS/2…BACKOFF_MOST_MS */
int64_t backoff_connect_ms(struct backoff *backoff);
/* whether a failure for this reason is to be logged; then it counts as told */
int backoff_tells(struct backoff *backoff, const char *why, int64_t now_ms);
void backoff_reset(struct backoff *backoff); /* after a success */

/*
 * Back-off by coupon: a coupon is put off when an operation on it has failed, for instance because
 * another session holds a lock. Pure bookkeeping, one thread.
 */

/*
 * At most this many coupons are remembered; beyond it the oldest one that holds nothing is
 * evicted.
 */
#define PUT_OFF_MAX 4096

struct put_off_coupon {
	int64_t coupon;
	int64_t due_ms;    /* the next attempt, on the caller's clock */
	int64_t wait_ms;   /* the pause before it */
	unsigned failures; /* attempts that failed in a row */
	/* The next three are the owner's of the table. */
	size_t held;      /* items that wait for it */
	int apart;        /* the next attempt does not include other coupons */
	size_t items_max; /* the next attempt takes at most this many items; 0: no limit */
	UT_hash_handle hh;
};

struct put_off {
	struct put_off_coupon *coupons; /* a uthash table, in the order of their first failure */
	int64_t first_ms;               /* the first pause */
	int64_t longest_ms;
};

void put_off_clear(struct put_off *put_off); /* forgets all of them */
/* Forgets those that hold nothing and whose next attempt was due before that time. */
void put_off_forget(struct put_off *put_off, int64_t before_ms);

/* The entry, or NULL: the coupon is not put off. */
struct put_off_coupon *put_off_find(const struct put_off *put_off, int64_t coupon);
/* Whether its next attempt is still to come. */
int put_off_waits(const struct put_off *put_off, int64_t coupon, int64_t now_ms);
/* An attempt has failed. Returns the coupon's entry with its next due time. */
struct put_off_coupon *put_off_add(struct put_off *put_off, int64_t coupon, int64_t now_ms);
/* An attempt has succeeded: the entry, if there is one, is freed. */
void put_off_end(struct put_off *put_off, int64_t coupon);
/* The cause may be gone: the next attempt is due now. */
void put_off_hurry(struct put_off *put_off, int64_t coupon);
