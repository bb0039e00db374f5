/*
 * The names of the keys in Redis. All keys of one coupon carry the hash tag {ID}, so that one
 * script may use them.
 */
#ifndef COMMON_REDIS_KEY_H
#define COMMON_REDIS_KEY_H

#include <stdint.h>

#define COUPON_KEY_SIZE 80
#define COUPON_KEYS_MAX 10

/* A set of them is passed as one number. Scripts get the keys of a set in this order. */
enum coupon_key {
	COUPON_KEY_COUPON = 1 << 0, /* hash: terms, counts, generation, fence */
	COUPON_KEY_USERS = 1 << 1,  /* hash: user to the records of its slots */
	COUPON_KEY_OUTBOX = 1 << 2, /* hash: batch to message body */
	COUPON_KEY_KNOWN = 1 << 3,  /* set: receives of older generations that have their slot */
	COUPON_KEY_SEEN = 1 << 4,   /* hash: generation to the highest seq that gateways saw */
	COUPON_KEY_DEAD = 1 << 5,   /* set: batches in the dead-letter queue */
	/* What PostgreSQL has, should it be put back to an earlier moment: */
	COUPON_KEY_SETTLED = 1 << 6,  /* list: "BATCH:AT", the time of each settled batch, in ms */
	COUPON_KEY_REJECTED = 1 << 7, /* list: "BATCH:INDEX:SLOT:REASON:USER" */
	COUPON_KEY_TERMS = 1 << 8,    /* string: "VERSION JSON", the row of the coupon */
	/* hash: redeemed exchange code to its user, and revoked code to "" */
	COUPON_KEY_CODES = 1 << 9,
	/* string: "FILLED ROWS MS", how far a rebuild is; in no set */
	COUPON_KEY_FILLED = 1 << 10
};

#define COUPON_KEYS_ISSUE (COUPON_KEY_COUPON | COUPON_KEY_USERS | COUPON_KEY_OUTBOX)
#define COUPON_KEYS_REDEEM (COUPON_KEYS_ISSUE | COUPON_KEY_CODES)
#define COUPON_KEYS_PLACE \
	(COUPON_KEYS_ISSUE | COUPON_KEY_KNOWN | COUPON_KEY_SEEN | COUPON_KEY_CODES)
#define COUPON_KEYS_RELEASE (COUPON_KEYS_ISSUE | COUPON_KEY_REJECTED | COUPON_KEY_CODES)
#define COUPON_KEYS_SETTLED (COUPON_KEY_OUTBOX | COUPON_KEY_SETTLED | COUPON_KEY_REJECTED)
#define COUPON_KEYS_ALL                                                                   \
	(COUPON_KEYS_PLACE | COUPON_KEY_DEAD | COUPON_KEY_SETTLED | COUPON_KEY_REJECTED | \
	 COUPON_KEY_TERMS)

#define KEEPER_LOCK_KEY "couponmq:lock:{keeper}" /* hash: see lua/lock.lua */
#define CHANGES_KEY "couponmq:changes"           /* hash: a copy of the table change_count */
#define GATEWAYS_KEY "couponmq:gateways" /* hash: gateway to the process that it reported to */
#define ASKED_KEY "couponmq:asked"       /* set: coupons that clients ask for in vain */

/* The name of one key. Returns `out`. */
const char *coupon_key(int64_t coupon, enum coupon_key key, char out[COUPON_KEY_SIZE]);
/* The temporary name under which a rebuild fills the key. Returns `out`. */
const char *coupon_key_filling(int64_t coupon, int64_t generation, enum coupon_key key,
			       char out[COUPON_KEY_SIZE]);

/* `names` point into `texts`, so the struct must not be copied. */
struct coupon_keys {
	int n;
	const char *names[COUPON_KEYS_MAX];
	char texts[COUPON_KEYS_MAX][COUPON_KEY_SIZE];
};

void coupon_keys_make(struct coupon_keys *keys, int64_t coupon, unsigned set);

#endif
