/*
 * Back-off by coupon: a coupon is put off when an operation on it has failed, for instance because
 * another session holds a lock. Pure bookkeeping, one thread.
 */
#pragma once

#include "common/hash.h"

#include <stddef.h>
#include <stdint.h>

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
	/* The owner of the table sets the next three. */
	size_t held;      /* items that wait for the coupon */
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
