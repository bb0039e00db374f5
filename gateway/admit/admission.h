/*
 * Admission: gathers the requests for one coupon into script calls, and turns each call's reply
 * into answers and into a batch for the queue. Pure decisions: Redis, PostgreSQL, the publisher,
 * time and replies are behind the port. One thread.
 *
 *	submit ─▶ waiting ─(flush, once a loop turn)─▶ call in flight ─▶ replied ─▶ answer, or wait for the outcome
 *	                                                             └─▶ not run: answered unavailable
 *	                                                             └─▶ lost: answered unknown, never sent again
 *
 * A batch forms by itself: while COUPON_CALLS_PER_COUPON_MAX calls of a coupon are in flight its
 * requests wait for the next one. Every request that is submitted is answered exactly once, in the
 * end, whatever happens to Redis.
 */
#ifndef GATEWAY_ADMIT_ADMISSION_H
#define GATEWAY_ADMIT_ADMISSION_H

#include "common/message.h"
#include "gateway/publish/batch.h"
#include "gateway/publish/waiters.h"
#include "gateway/listen/reply.h"

struct admission;
struct coupon; /* what a gateway knows of one coupon */

#define ADMISSION_DOUBT_MS 60000 /* how long after a lost call a "none" is not final */

struct admission_limits {
	size_t batch_receives_max;
	int64_t calls_per_coupon_max;
	size_t unconfirmed_max; /* receives that are waiting, in a call, or not confirmed */
	size_t unconfirmed_per_coupon_max; /* the same of one coupon */
	int64_t memory_ms;                 /* how long a losing answer is given again; 0: never */
	size_t coupons_max;                /* coupons kept in mind */
};

/* One script call. The arguments are admission's; `sent` is for the port. */
struct call {
	struct coupon *coupon;
	int64_t coupon_id;
	struct ulid batch;
	/* the highest that Redis ever told this gateway, and the highest seq in it */
	int64_t seen_generation;
	int64_t seen_seq;
	int64_t sent_ms; /* by the port's clock */
	size_t requests_n;
	struct request *requests[MESSAGE_RECEIVES_MAX];
	void *port_data;
};

/* What the script said of one request. */
struct verdict {
	enum answer answer; /* ANSWER_OK, or the refusal */
	int slot;           /* ANSWER_OK */
	/* the key was known: `receive` says of which batch; else it is the call's own */
	int repeated;
	struct ulid batch; /* when repeated */
	int index;         /* when repeated */
};

enum call_state { CALL_OK, CALL_MISSING, CALL_UNVERIFIED, CALL_BEHIND };

struct call_reply {
	enum call_state state;
	int64_t generation;
	int64_t seq;
	int64_t now_ms;   /* Redis time */
	int64_t begin_ms; /* 0: none */
	const char *body; /* the message; empty when nothing was accepted */
	size_t body_len;
	struct verdict verdicts[MESSAGE_RECEIVES_MAX]; /* one a request of the call */
};

/* What PostgreSQL says of a coupon that Redis does not have. */
enum coupon_state {
	COUPON_ABSENT,
	COUPON_PUBLISHED,
	COUPON_PAUSED,
	COUPON_ENDED,
	COUPON_LOOKUP_FAILED,
	COUPON_LOOKUP_BUSY
};

struct admission_port {
	void *context;
	int64_t (*now_ms)(void *context); /* monotonic */
	void (*ulid_new)(void *context, struct ulid *ulid);
	/*
	 * Sends the call: 0, and one of admission_replied, _not_run, _lost follows later; or -1,
	 * nothing was sent.
	 */
	int (*send)(void *context, struct call *call);
	/* Ends in admission_looked_up, now or later. */
	void (*look_up)(void *context, int64_t coupon);
	void (*publish)(void *context, struct batch *batch); /* takes the batch */
	void (*answer)(void *context, struct request *request, const struct result *result);
	/*
	 * Redis may have forgotten that it gave out this number of this generation: tells it. May
	 * fail: it is told again.
	 */
	void (*report)(void *context, int64_t coupon, int64_t generation, int64_t seq);
	/* For the other processes, see doubt.h; may be NULL. */
	void (*busy)(void *context, int64_t coupon, int busy);
	void (*doubt)(void *context, int64_t coupon, int64_t until_ms);
};

struct admission *admission_new(const struct admission_port *port,
				const struct admission_limits *limits, struct waiters *waiters);
/* No request may be left in it. */
void admission_free(struct admission *admission);

/* Takes an issue request. It may be answered within the call. */
void admission_submit(struct admission *admission, struct request *request);
/* Sends what has gathered: once at the end of every loop turn. */
void admission_flush(struct admission *admission);

/* How a call ended; each takes the call. */
void admission_replied(struct admission *admission, struct call *call,
		       const struct call_reply *reply);
void admission_not_run(struct admission *admission,
		       struct call *call); /* Redis said that it did not run */
void admission_lost(struct admission *admission, struct call *call); /* Redis may have run it */

void admission_looked_up(struct admission *admission, int64_t coupon, enum coupon_state state);

/*
 * A connection to Redis is new, and it may be another Redis, or one that has forgotten: tells what
 * was seen of the coupons that were used last, before it is asked for.
 */
void admission_report(struct admission *admission);

/* The batch is in the queue: its receives no longer count as unconfirmed. */
void admission_confirmed(struct admission *admission, const struct batch *batch);

/*
 * Whether something of this coupon may still take effect: requests wait or are in a call, or a
 * call's outcome became unknown within the last minute.
 */
int admission_in_doubt(const struct admission *admission, int64_t coupon);

/*
 * Redis lacks the coupon, or knows less of it than this gateway has seen: tells what was seen, for
 * the keeper.
 */
void admission_refused(struct admission *admission, int64_t coupon);

/*
 * The highest generation of this coupon that Redis told this gateway, and the highest seq in it; 0:
 * none.
 */
void admission_seen(const struct admission *admission, int64_t coupon, int64_t *generation,
		    int64_t *seq);

size_t admission_unconfirmed(const struct admission *admission);
size_t admission_calls(const struct admission *admission); /* in flight */
/* requests not answered: waiting, in a call, being looked up */
size_t admission_waiting(const struct admission *admission);

#endif
