/* The port of admission to the stores and the clients, and its limits. */
#ifndef GATEWAY_ADMIT_ADMISSION_PORT_H
#define GATEWAY_ADMIT_ADMISSION_PORT_H

#include "gateway/admit/call.h"
#include "gateway/listen/reply.h"
#include "gateway/publish/batch.h"

struct admission_limits {
	size_t batch_receives_max;
	int64_t calls_per_coupon_max;
	size_t unconfirmed_max; /* receives that are waiting, in a call, or not confirmed */
	size_t unconfirmed_per_coupon_max; /* the same of one coupon */
	int64_t memory_ms;                 /* how long a losing answer is repeated; 0: never */
	size_t coupons_max;                /* coupons remembered */
};

struct admission_port {
	void *context;
	int64_t (*now_ms)(void *context); /* monotonic */
	void (*ulid_new)(void *context, struct ulid *ulid);
	/*
	 * How many requests the next call may have, while so many requests and coupons wait for
	 * one; 0: none may be sent now. May be NULL: there is no such limit.
	 */
	size_t (*room)(void *context, size_t requests, size_t coupons);
	/*
	 * Sends the call: 0, and one of admission_replied, _not_run, _lost follows later; or -1,
	 * nothing was sent.
	 */
	int (*send)(void *context, struct call *call);
	/* Ends in admission_looked_up, within the call or later. */
	void (*look_up)(void *context, int64_t coupon);
	void (*publish)(void *context, struct batch *batch); /* takes the batch */
	void (*answer)(void *context, struct request *request, const struct result *result);
	/*
	 * Reports this seq of this generation to Redis, which may have lost it. It may fail,
	 * because it is reported repeatedly.
	 */
	void (*report)(void *context, int64_t coupon, int64_t generation, int64_t seq);
	/*
	 * A client asks for a coupon that waits for the keeper, which does it before others. It may
	 * fail, because it is asked repeatedly. May be NULL.
	 */
	void (*ask)(void *context, int64_t coupon);
	/* Recorded for the other processes (doubt.h); may be NULL. */
	void (*busy)(void *context, int64_t coupon, int busy);
	void (*doubt)(void *context, int64_t coupon, int64_t until_ms);
};

#endif
