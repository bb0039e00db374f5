/*
 * The books of settlement: which deliveries the worker holds, which of them go into the next
 * transaction, the outcome of every receive, and what may be acked. A delivery is a batch; a
 * message may carry several, and is acked when all of them are done. Pure: no sockets, no clock
 * (the time is an argument), one thread.
 *
 *	            take()            commit()
 *	WAITING ─────────────▶ SENT ───────────▶ DONE ──ack()──▶ gone
 *	 ▲   ▲                 │ │ │               ▲
 *	 │   └─ retry(), split ┘ │ │ refuse()      │
 *	 │                       │ └────▶ DEAD ────┤ forward: DEAD_SENT, confirmed
 *	 │ the lock has ended    │ blocked()       │
 *	 └──────────────── PUT_OFF ────▶ PARKING ──┘ forward: PARKING_SENT, confirmed
 *
 * A delivery's tag is valid only on the connection that delivered it. reset() is called when this
 * connection is lost: everything is forgotten, except what a transaction in flight needs, and that
 * is never acked.
 *
 * Locked coupons. After a transaction that met a lock of another session, the caller looks which
 * of its coupons are locked. These are put off, all together; the others are retried without them.
 * The look shows locks on rows of coupons only: where it shows none, the transaction is split by
 * coupon until the one that cannot be settled is alone. Deliveries of a coupon that is put off are
 * left out of transactions until a trial, which has a short lock time-out, succeeds. Trials take
 * place after a pause that doubles. One takes every coupon that is due, or a coupon alone if its
 * lock was not shown.
 *
 * After the second failure, or when they fill their share of what the worker may hold, the
 * deliveries are parked: published to the parking queue, and acked when that is confirmed. In this
 * way they do not fill the worker's prefetch. Deliveries that wait to be parked are tried too. The
 * worker also consumes the parking queue; its deliveries wait as PUT_OFF, and move to the queue's
 * end from time to time, so that one coupon does not hide the others behind it.
 *
 * A transaction that takes too long is cancelled by PostgreSQL. It is split by coupon too; a coupon
 * that is alone is put off, and its trials take half as many receives as before.
 *
 * Rescue. RabbitMQ drops a message whose delivery count exceeds the limit of its queue, and AMQP
 * does not report a limit that a policy sets. A delivery whose count is high is published to its
 * queue again, with a count of 0, and acked when that is confirmed. While nothing can be published
 * it is settled as any other.
 *
 *	RESCUE ──forward──▶ RESCUE_SENT ──confirmed──▶ DONE
 *	   └──────────────────────┴─ not confirmed ──▶ WAITING
 */
#pragma once

#include "worker/delivery.h"

#include <stddef.h>
#include <stdint.h>

#define SETTLEMENT_PUT_OFF_FIRST_MS 100 /* the first pause of a coupon that is put off */
#define SETTLEMENT_PUT_OFF_LONGEST_MS 1000
#define SETTLEMENT_PARK_FAILURES 2    /* then its deliveries are parked */
#define SETTLEMENT_TRIAL_PAUSE_MS 200 /* after a trial that failed, before the next coupon's */
#define SETTLEMENT_FORGET_MS 60000    /* then a coupon of which nothing arrives is forgotten */
#define SETTLEMENT_ROTATE_MS 500      /* between two moves to the parking queue's end, when full */
#define SETTLEMENT_ROTATE_IDLE_MS 60000 /* and when not: the broker limits how long one is held */

struct settlement;

/*
 * `envelope_free` frees what was handed over with settlement_add(). At most `put_off_max`
 * deliveries of the receive queue are held of coupons that are put off; `noticed` tells when a
 * coupon is put off, and, with no failures, that it is so no longer. `parking_max` is the prefetch
 * of the parking queue; 0: there is none, and all deliveries are held.
 */
struct settlement *settlement_new(void (*envelope_free)(void *envelope),
				  void (*noticed)(const struct put_off_coupon *notice),
				  size_t put_off_max, size_t parking_max);
void settlement_free(struct settlement *settlement);
/*
 * Keeps the outbox entries of what is to be settled in Redis (coupon/copies.h). `body_of` returns
 * the text of a batch, which is lent as long as the envelope is.
 */
void settlement_keep_copies(struct settlement *settlement, struct copies *copies,
			    const char *(*body_of)(const void *envelope, size_t *len));

/* How a message arrived. */
#define SETTLEMENT_ALONE 1u        /* it is settled in a transaction of its own */
#define SETTLEMENT_FROM_PARKING 2u /* from the parking queue */
#define SETTLEMENT_RESCUE 4u       /* its delivery count is high */
#define SETTLEMENT_APART 8u        /* each of its batches has a transaction of its own */
#define SETTLEMENT_AWAITED 16u     /* a client waits for the outcome */

/*
 * A batch has arrived: the delivery, which has its tag and its envelope, is taken over. Tags
 * ascend; batches of one message have the same tag, and are added before anything else is called.
 */
void settlement_add(struct settlement *settlement, struct delivery *delivery, unsigned how);
/* A message that cannot be settled has arrived: it is to be dead-lettered. */
void settlement_add_dead(struct settlement *settlement, uint64_t tag, const char *reason,
			 void *envelope);

/*
 * Takes a message apart: adds each batch that it carries as a delivery. What cannot be read is to
 * be dead-lettered: one batch, or the message as a whole.
 */
struct unpack {
	struct settlement *settlement;
	struct json_arena *arena;
	/* Decodes a batch: receives_read() or uses_read(). */
	struct delivery *(*read)(struct unpack *unpack, const char *text, size_t len,
				 const char **error);
	/*
	 * Makes the envelope of a batch that is one of several in a message. The text is lent;
	 * `batch` is NULL when it cannot be read.
	 */
	void *(*batch_envelope)(const void *whole, const char *text, size_t len,
				const struct ulid *batch);
	union {
		struct message receives;
		struct use_message uses;
	} batch; /* the one that was read last; only for `read` */
};

/*
 * The delivery of a batch, which has no tag and no envelope yet; or NULL, with the reason in
 * `*error` (a constant). Each use counts as a receive.
 */
struct delivery *receives_read(struct unpack *unpack, const char *text, size_t len,
			       const char **error);
struct delivery *uses_read(struct unpack *unpack, const char *text, size_t len, const char **error);

/* `how` as for settlement_add(); `body` belongs to `envelope`, which is taken over. */
void unpack_add(struct unpack *unpack, uint64_t tag, const char *body, size_t len, unsigned how,
		void *envelope);

struct settlement_counts {
	size_t held;     /* messages not yet acked */
	size_t waiting;  /* batches that are ready for a transaction */
	size_t awaited;  /* of these, by a client */
	size_t put_off;  /* of coupons that are put off */
	size_t coupons;  /* that are put off */
	size_t dead;     /* to be dead-lettered */
	size_t outgoing; /* to be forwarded anywhere */
};

struct settlement_counts settlement_counts(const struct settlement *settlement);
/* Whether nothing is left to be done but for coupons that are put off. */
int settlement_rests(const struct settlement *settlement);

/*
 * Begins a transaction: a trial of coupons that are put off, where one is due, or else what waits,
 * oldest first: whole deliveries up to `receives_max` receives (one delivery always fits). Returns
 * the number of receives, 0 when there is nothing to do now. One transaction at a time.
 *
 * `taken` of the settlement has the deliveries of the transaction in flight in order, and
 * `lock_suspect` tells whether it may meet a lock again: then it is to wait for locks only briefly.
 */
size_t settlement_take(struct settlement *settlement, size_t receives_max, int64_t now_ms);
/* When a trial is due that settlement_take() would begin; INT64_MAX: none. */
int64_t settlement_trial_ms(const struct settlement *settlement);

/*
 * Records the outcome of the receive at `position` (0-based, over all deliveries in order). 0, or
 * -1 when there is none.
 */
int settlement_outcome(struct settlement *settlement, size_t position, struct outcome outcome);

/* The transaction is committed. Read the outcomes before. */
void settlement_commit(struct settlement *settlement);
/* The transaction did nothing, or its outcome is unknown: all its deliveries wait again. */
void settlement_retry(struct settlement *settlement);
/*
 * PostgreSQL refuses something in it. The deliveries are tried in halves, then the receives of the
 * delivery that is refused alone; its message is dead-lettered as `unstorable`. After a few such
 * receives the rest of a message is not tried.
 */
void settlement_refuse(struct settlement *settlement, const char *sqlstate);

/* Which of the coupons of a transaction are locked by other sessions. */
struct lock_look {
	const int64_t *locked;
	size_t n;
};

/*
 * The transaction met a lock of another session, and did nothing. `look` NULL: it was cancelled, by
 * statement_timeout or an operator, and did nothing; a coupon alone is tried in steps then.
 */
void settlement_blocked(struct settlement *settlement, const struct lock_look *look,
			int64_t now_ms);

/*
 * Moves the deliveries held of the parking queue to that queue's end, when that is due, and forgets
 * coupons of which nothing is held. To be called every SETTLEMENT_ROTATE_MS while coupons are put
 * off.
 */
void settlement_rotate(struct settlement *settlement, int64_t now_ms);

/* Whether deliveries of coupons that are put off fill half of the prefetch of the receive queue. */
int settlement_crowded(const struct settlement *settlement);

/*
 * The next delivery that this worker does not settle, or NULL. It is to be published now, where to
 * its state tells: DEAD_SENT, PARKING_SENT or RESCUE_SENT.
 */
const struct delivery *settlement_forward(struct settlement *settlement);
/* The outcome of the publish; a tag that is unknown since a reset is ignored. */
void settlement_forwarded(struct settlement *settlement, uint64_t epoch, uint64_t tag,
			  size_t position, int is_confirmed);

/* Nothing can be published for some time: what waits to be rescued is settled instead. */
void settlement_rescue_end(struct settlement *settlement);

/* The next ack to send: 1 with `tag` and `multiple`, or 0. The caller sends it, or resets. */
int settlement_ack(struct settlement *settlement, uint64_t *tag, int *multiple);

/* The connection is gone, and with it every tag. */
void settlement_reset(struct settlement *settlement);
