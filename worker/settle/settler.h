/*
 * Settles the deliveries that the worker holds: one transaction at a time, with everything that has
 * arrived meanwhile. Connects the books (settlement.h) with PostgreSQL (database.h).
 *
 * After a small transaction the next one begins SETTLE_LINGER_MS after its end at the earliest,
 * unless a client waits for an outcome: where nobody waits, larger transactions cost PostgreSQL
 * less. What arrives later than that, in an idle system, does not wait.
 */
#ifndef WORKER_SETTLE_SETTLER_H
#define WORKER_SETTLE_SETTLER_H

#include "common/backoff.h"
#include "common/rabbit/publisher.h"
#include "worker/metrics.h"
#include "worker/outbox/outboxes.h"
#include "worker/settle/database.h"
#include "worker/settle/gate.h"
#include "worker/consume/settlement.h"

/*
 * How long a statement waits for a lock. Longer than a settlement that another worker waits for;
 * short enough that a lock of another session delays the other coupons by less than a second,
 * including the steps that find its coupon.
 */
#define SETTLE_LOCK_MS 600
#define SETTLE_LOCK_AGAIN_MS 150  /* while a coupon is put off: others may be locked, too */
#define SETTLE_LOCK_SUSPECT_MS 30 /* of coupons that may be locked, while others wait */
#define SETTLE_LOCK_IDLE_MS 100   /* and while none does */

#define SETTLE_LINGER_MS 2
#define SETTLE_LINGER_RECEIVES 512 /* a transaction with fewer is small */

struct settler {
	struct settlement *settlement;      /* not owned, nor are the next three */
	struct rabbit_publisher *publisher; /* of replies */
	struct outboxes *outboxes;
	struct stats *stats;
	int64_t settle_timeout_ms;
	size_t transaction_receives_max;

	struct database *database;
	struct settle_args args;
	struct postgres_array coupons; /* of a look */
	struct gate gate;              /* its keeper is set by the caller, too */
	struct backoff backoff;
	int64_t due_ms;    /* no transaction before this time */
	int64_t linger_ms; /* nor before this time, unless a client waits; 0: none */
};

/* The fields above the blank line are set by the caller. */
void settler_init(struct settler *settler, const char *database_url);
void settler_fini(struct settler *settler);

/* Does what can be done now. Returns how many receives were rejected. */
int64_t settler_turn(struct settler *settler, int64_t now_ms);

/* When settler_turn() is to be called next; for poll() there is the database's socket. */
int64_t settler_deadline_ms(const struct settler *settler);

#endif
