/*
 * Admission: gathers the requests for one coupon into script calls, and turns each call's reply
 * into answers and into a batch for the queue. Pure decisions: Redis, PostgreSQL, the publisher,
 * time and replies are behind the port. One thread.
 *
 *	submit ─▶ waiting ─(flush, once a loop turn)─▶ call in flight
 *	                                                ├─▶ replied: answered, or waits
 *	                                                ├─▶ not run: answered unavailable
 *	                                                └─▶ lost: answered unknown, not sent again
 *
 * Every request that is submitted is answered exactly once, also when Redis fails. coupon_table.h
 * holds what is remembered of each coupon, and detects a Redis that has fallen behind.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/admit/call.h"
#include "gateway/listen/request.h"
#include "gateway/publish/publisher.h"
#include "gateway/publish/waiters.h"

struct admission_port {
	int64_t (*now_ms)(void); /* monotonic */
	void (*ulid_new)(struct ulid *ulid);

	struct redis_pool *redis; /* the first argument of the next three */
	/*
	 * How many requests the next call may have, while so many requests and coupons wait for
	 * one; 0: none may be sent now.
	 */
	size_t (*room)(struct redis_pool *redis, size_t requests, size_t coupons);
	/*
	 * Sends the call: 0, and one of admission_replied, _not_run, _lost follows later; or -1,
	 * nothing was sent.
	 */
	int (*send)(struct redis_pool *redis, struct call *call);
	/*
	 * A client asks for a coupon that waits for the keeper, which does it before others. It may
	 * fail, because it is asked repeatedly.
	 */
	void (*ask)(struct redis_pool *redis, int64_t coupon);
	struct presence *presence;
	/*
	 * Reports this seq of this generation to Redis, which may have lost it, and whether the
	 * coupon was given receives recently. It may fail, because it is reported repeatedly.
	 */
	void (*report)(struct presence *presence, int64_t coupon, int64_t generation, int64_t seq,
		       int is_recent);
	void *lookup;
	/* Ends in admission_looked_up, within the call or later. */
	void (*look_up)(void *lookup, int64_t coupon);
	struct publisher *publisher;
	void (*publish)(struct publisher *publisher, struct batch *batch); /* takes the batch */
	void *answering;
	void (*answer)(void *answering, struct request *request, const struct result *result);
	/* Recorded for the other processes (coupon_table.h). */
	void (*busy)(int64_t coupon, int busy);
	void (*doubt)(int64_t coupon, int64_t until_ms);
};

struct admission;
struct refusals;
struct copies;

#define ADMISSION_DOUBT_MS 60000 /* how long a lost call may still take effect */

/* It remembers at most `coupons_max` coupons, and copies the limits of the config. */
struct admission *admission_new(const struct admission_port *port, const struct config *config,
				size_t coupons_max, struct waiters *waiters, struct copies *copies);
/* Requires that no request is left in it. */
void admission_free(struct admission *admission);

/* Takes an issue request. It may be answered within the call. */
void admission_submit(struct admission *admission, struct request *request);
/*
 * An operator has changed terms: refusals that are cached, or are on their way, are given to no
 * request that is submitted from now on.
 */
void admission_forget(struct admission *admission);
/* Answers a request whose refusal is known without Redis, and counts it as one of the coupon. */
void admission_refuse(struct admission *admission, struct request *request, enum answer answer);
/* Sends the gathered requests. To be called once at the end of every loop turn. */
void admission_flush(struct admission *admission);

/* The end of a call; each function takes ownership of the call. */
void admission_replied(struct admission *admission, struct call *call,
		       const struct call_reply *reply);
/* Redis replied that it did not run. */
void admission_not_run(struct admission *admission, struct call *call);
/* Redis may have run it: there was no reply, or one that leaves it open. */
void admission_lost(struct admission *admission, struct call *call);

/*
 * What PostgreSQL says of a coupon that Redis does not hold, or ANSWER_BUSY; `is_published`: the
 * keeper is about to load it.
 */
void admission_looked_up(struct admission *admission, int64_t coupon, enum answer answer,
			 int is_published);

/*
 * A new connection to Redis. It may lead to another Redis, or to one that has lost data: what was
 * seen of all coupons is to be reported, the most recently used ones first. What is left from an
 * earlier beginning is reported once.
 */
void admission_report_begin(struct admission *admission);
/* Reports some of it. Returns whether more is left. */
int admission_report_some(struct admission *admission, size_t most);

/*
 * Takes the refusals of the coupon that has waited longest for it. 1, or 0: there are none. Those
 * of a coupon that is forgotten meanwhile are lost.
 */
int admission_refusals_take(struct admission *admission, struct refusals *refusals);

/* The batch is in the queue: its receives no longer count as unconfirmed. The caller frees it. */
void admission_confirmed(struct admission *admission, struct batch *batch);

/*
 * Whether a request for this coupon may still take effect: requests wait or are in a call, or a
 * call's outcome became unknown within the last minute.
 */
int admission_in_doubt(const struct admission *admission, int64_t coupon);

/*
 * Redis does not hold the coupon, or is behind what this process has seen of it: reports that to
 * the keeper.
 */
void admission_refused(struct admission *admission, int64_t coupon);

/*
 * The highest generation of this coupon that Redis has named to this process, and the highest seq
 * in it; 0: none.
 */
void admission_seen(const struct admission *admission, int64_t coupon, int64_t *generation,
		    int64_t *seq);

size_t admission_unconfirmed(const struct admission *admission);
