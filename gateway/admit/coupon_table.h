/*
 * The coupons that a process of the gateway remembers, up to a limit. For a new one, the least
 * recently used one that nothing depends on is forgotten. Part of admission.
 */
#pragma once

#include "common/hash.h"
#include "gateway/listen/request.h"

#include <stddef.h>
#include <stdint.h>

/*
 * The answers that are counted for each coupon: those that Redis decides, but for `not_found`.
 * Others, such as `busy`, are of the gateway, and in its metrics.
 */
#define REFUSALS_FIRST ANSWER_OUT_OF_STOCK
#define REFUSALS_N (ANSWER_CODE_EXPIRED - REFUSALS_FIRST + 1)

/* How many requests were refused, by answer. */
struct refusals {
	int64_t coupon;
	uint32_t num[REFUSALS_N];
};

struct coupon {
	int64_t id;
	UT_hash_handle hh;
	TAILQ_ENTRY(coupon) by_use;
	STAILQ_ENTRY(coupon) ready; /* in the list of coupons with something to send */
	int is_ready;
	int is_busy; /* as last reported to the port */
	int64_t calls;
	size_t open; /* receives waiting, in a call, being looked up, or not confirmed */
	struct request_list waiting;
	/* Redis does not have the coupon: these wait for a look-up in PostgreSQL. */
	struct request_list parked;
	int looking;
	uint64_t looking_forgets; /* as in a call, when that began */
	/* The highest that Redis has named. */
	int64_t seen_generation;
	int64_t seen_seq;
	int64_t accepted_ms;     /* when Redis last gave receives to this process; 0: never */
	int64_t report_after_ms; /* not reported again before */
	int64_t ask_after_ms;    /* the keeper is not asked for it again before */
	TAILQ_ENTRY(coupon) next_unreported;
	int is_unreported; /* in that list */
	/* The cached refusal, which is repeated until then. */
	enum answer memory;
	int64_t memory_until_ms;
	uint64_t memory_forgets;  /* as in a call, when the question was sent */
	int64_t doubt_until_ms;   /* a call whose outcome is unknown may still take effect */
	struct refusals refusals; /* since they were last taken */
	TAILQ_ENTRY(coupon) next_refused;
	int is_refused; /* in that list */
};

TAILQ_HEAD(coupons, coupon);

struct coupon_table {
	struct coupon *coupons;
	struct coupons by_use; /* least recently used first */
	/* To be reported to a new process of Redis; none of them is forgotten. */
	struct coupons unreported;
	struct coupons refused; /* with refusals; one that is forgotten takes them along */
	size_t max;
};

void coupon_table_init(struct coupon_table *table, size_t max);
void coupon_table_fini(struct coupon_table *table); /* frees every coupon */

struct coupon *coupon_table_find(const struct coupon_table *table, int64_t id); /* NULL: none */
/* The coupon, now the most recently used, or a new one; NULL when no more can be remembered. */
struct coupon *coupon_table_get(struct coupon_table *table, int64_t id, int64_t now_ms);

/*
 * Coupons in doubt: a request for them may still take effect. Every process of the gateway records
 * in shared memory for which coupons it holds requests, and for which the outcome of a call became
 * unknown, and reads the records of the others. The records are kept by a hash of the coupon: of
 * two coupons with the same hash, one may be in doubt because of the other, which is harmless.
 */

/*
 * Makes the pages of `processes` processes; before the fork. With one process, or without this
 * call, nothing is recorded.
 */
void doubt_init(size_t processes);
/*
 * From now on this process records on page `process`. If a predecessor died, every coupon is in
 * doubt for `memory_ms`.
 */
void doubt_enter(size_t process, int64_t now_ms, int64_t memory_ms);

/* Records that this process holds requests for the coupon, or (`busy` 0) that it no longer does. */
void doubt_busy(int64_t coupon, int busy);
/* The outcome of a call for the coupon is unknown. */
void doubt_until(int64_t coupon, int64_t until_ms);

/*
 * Whether the coupon is in doubt by the records of other processes, or of a predecessor of this
 * one.
 */
int doubt_elsewhere(int64_t coupon, int64_t now_ms);
