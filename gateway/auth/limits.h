/*
 * Limits of requests: a rate and a burst for each key, user and address, exact over all processes
 * of a gateway.
 *
 * The algorithm is GCRA, the generic cell rate algorithm of ITU-T I.371 in its form of virtual
 * scheduling, as nginx (limit_req), redis-cell and Stripe use it. Of each key only one time is
 * remembered, its theoretical arrival time: when it will have paid for all that it took, each at
 * 1 s / rate. What would bring that time more than the burst ahead of now is refused, and takes
 * nothing. A time in the past is the same as none: such an entry is forgotten without loss.
 *
 *	             now                arrival       now + burst
 *	──────────────┼────────────────────┼───────────────┼──────▶ time
 *	              │◀───── taken ──────▶│◀──── left ───▶│
 *
 * A table can only be full of times to come while more is admitted than one request in 1 s / rate
 * for each of its entries: 131,072 x 20 a second of users. If a set is full nevertheless, the one
 * that owes least is forgotten, and the new one is remembered: nobody is refused because others
 * fill a table, and those at their limit are forgotten last.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum limit_kind {
	LIMIT_KEY,
	LIMIT_USER,
	LIMIT_ADDRESS,
	LIMIT_WRONG, /* keys and tokens of an address that were wrong */
	LIMIT_CODES, /* exchange codes of an address that were wrong; key 0: of all addresses */
	LIMIT_KINDS
};

#define LIMIT_RATE_MAX 1000000 /* a second */
#define LIMIT_WRONG_RATE 10
#define LIMIT_WRONG_BURST 10

struct limit {
	enum limit_kind kind;
	uint64_t key;  /* whose: peer_of_address() (network.h), or hash_keyed() of user or key */
	int64_t rate;  /* a second, up to LIMIT_RATE_MAX; 0: no limit */
	int64_t burst; /* at once, after rest; 1 to LIMIT_RATE_MAX x 60 */
};

/* The burst where none is set: 2 s of the rate, at least 20. */
int64_t limit_burst(int64_t rate);

struct limit_verdict {
	int64_t wait_us; /* 0: allowed; else nothing was taken, and this is the time until it is */
	/* The limit that refuses for longest, or of which least is left; NULL: none. */
	const struct limit *of;
	int64_t left;    /* so many more of it at once */
	int64_t more_us; /* until it is one more */
};

/* Before the fork. */
void limits_init(size_t processes);
/* From now on this process takes as `process`. */
void limits_enter(size_t process);

/*
 * Takes one of each limit, or of none if one refuses. `now_us` is of the monotonic clock. The
 * limits are lent, also to the verdict.
 */
struct limit_verdict limits_take(const struct limit *limits, size_t n, int64_t now_us);
/*
 * As limits_take(), but takes nothing. For LIMIT_WRONG it comes before a key or a token is looked
 * at, and limits_take() after one that was wrong; for LIMIT_CODES see attempts.h.
 */
struct limit_verdict limits_look(const struct limit *limits, size_t n, int64_t now_us);

/* How long a client is told to wait: at least 1, rounded up. */
int64_t limit_retry_after_ms(const struct limit_verdict *verdict);

/*
 * Values of the HTTP fields of draft-ietf-httpapi-ratelimit-headers-10, as
 *
 *	RateLimit-Policy: "address";q=200;w=2, "user";q=40;w=2
 *	RateLimit: "user";r=39;t=1
 *
 * q is the burst, which comes back in w seconds; r are left of it, and one more in t seconds.
 * Limits with rate 0 are left out; without any the text is empty. Returns its length.
 */
#define LIMIT_POLICY_SIZE (LIMIT_KINDS * 56)
#define LIMIT_STATE_SIZE 56
size_t limit_policy_write(const struct limit *limits, size_t n, char text[LIMIT_POLICY_SIZE]);
size_t limit_state_write(const struct limit_verdict *verdict, char text[LIMIT_STATE_SIZE]);
