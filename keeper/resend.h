/*
 * When receives are sent to PostgreSQL again. A message is in the outbox until a worker has settled
 * it, so one that RabbitMQ has lost is still there, to be published again. Two signs show that it
 * may be lost:
 *
 *	all        nothing is left in the queue, and nothing of the coupon was settled, for longer
 *	           than COUPON_RESEND_AFTER_MS
 *	overtaken  a receive that was accepted later was settled longer ago than twice that
 *
 * Neither holds for a queue that is merely slow, nor for workers that are. A copy does no harm: it
 * is settled as a repetition. Still, a pass over an outbox is followed by a pause, which doubles
 * while nothing is settled. And after a pass in which messages were published, those that are
 * overtaken are published again only when a receive that was accepted after the pass has been
 * settled: then their copies have passed the queue, too.
 *
 * A third sign concerns receives without a message: something else than settling has removed their
 * outbox entries. The outbox is empty, nothing is in any queue, receives are in flight, and none
 * was settled for RESEND_SLOTS_MS. Their slots have all that settling them takes.
 *
 * Pure: no I/O, no clock (`now_ms` is monotonic). One thread.
 */
#pragma once

#include "common/redis/redis_client.h"

#include <stddef.h>
#include <stdint.h>

#define RESEND_PAUSE_LONGEST_MS 600000
#define RESEND_COUPONS_MAX 65536 /* remembered; beyond it the oldest is forgotten */
#define RESEND_WORK_SHARE 20     /* a pause is at least this many times the next pass */
#define RESEND_SLOTS_MS 30000

struct resend;

enum resend_queue { RESEND_RECEIVES, RESEND_PARKED, RESEND_DEAD, RESEND_QUEUES };

/* A coupon with receives in flight. */
struct resend_coupon {
	int64_t id;
	int64_t generation;
	int64_t seq;      /* accepted: the last receive of this generation */
	int64_t seq_seen; /* settled: the highest receive of this generation */
	int64_t settled;  /* how many of them are settled */
	int64_t outbox_n;
};

enum resend_kind {
	RESEND_ALL,
	RESEND_OVERTAKEN, /* up to this receive */
	RESEND_SLOTS      /* receives without a message, by their slots */
};

/* One pass over an outbox, or over the slots, in as many steps as it takes. */
struct resend_pass {
	int is_running;
	enum resend_kind kind;
	int64_t generation;
	int64_t seq;
	int64_t outbox_n;               /* when it began */
	int64_t sent;                   /* the caller counts */
	int64_t work_ms;                /* the same: without the time between its steps */
	char cursor[REDIS_CURSOR_SIZE]; /* of the caller; "0" at first */
};

struct resend *resend_new(int64_t after_ms);
void resend_free(struct resend *resend); /* NULL is allowed */

/* Forgets everything. */
void resend_reset(struct resend *resend);
/* A new connection: the broker may have lost everything, so no pause is left. */
void resend_connected(struct resend *resend);
/*
 * The number of messages that were ready in a queue. It says nothing about those of a coupon that
 * another session has locked: workers hold its messages, or have parked them. So the caller makes
 * no pass over all messages of a locked coupon.
 */
void resend_ready(struct resend *resend, enum resend_queue queue, int64_t ready, int64_t now_ms);
/* The pass to begin or to go on with; NULL: none is due. */
struct resend_pass *resend_look(struct resend *resend, const struct resend_coupon *coupon,
				int64_t now_ms);
/*
 * Whether a message of this age is published again in this pass; `seq` is that of its first
 * receive. The age is below 0 when Redis' clock was set back.
 */
int resend_covers(const struct resend *resend, const struct resend_pass *pass, int64_t generation,
		  int64_t seq, int64_t age_ms);
/* The pass has ended, or is not made now. */
void resend_pass_end(struct resend *resend, const struct resend_coupon *coupon, int64_t now_ms);
/* None of its receives is in flight. */
void resend_forget(struct resend *resend, int64_t coupon);
