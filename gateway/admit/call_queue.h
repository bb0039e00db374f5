/*
 * Requests that wait for a script call, and the calls in flight. While calls_per_coupon_max calls
 * of a coupon are in flight, or the port has no room, its requests wait and go together in the next
 * call. Part of admission.
 *
 *	add ─▶ waiting ─(flush)─▶ call, sent ─▶ its requests refused or accepted ─▶ free_call
 *
 * It also counts what is open: receives waiting, in a call, being looked up, or not confirmed.
 */
#ifndef GATEWAY_ADMIT_CALL_QUEUE_H
#define GATEWAY_ADMIT_CALL_QUEUE_H

#include "gateway/admit/admission_port.h"
#include "gateway/admit/coupon_table.h"

STAILQ_HEAD(coupon_list, coupon);

struct call_queue {
	const struct admission_port *port;
	const struct admission_limits *limits;
	struct coupon_list ready; /* have something to send, oldest first */
	size_t ready_n;
	size_t unsent;  /* requests that are in no call */
	size_t open;    /* the sum over all coupons */
	size_t waiting; /* requests that are not answered */
};

/* `port` and `limits` must outlive it. */
void call_queue_init(struct call_queue *queue, const struct admission_port *port,
		     const struct admission_limits *limits);

/* Whether the limit of what is open is reached, of this coupon or of all. */
int call_queue_is_full(const struct call_queue *queue, const struct coupon *coupon);
void call_queue_add(struct call_queue *queue, struct coupon *coupon, struct request *request);
/* Sends the waiting requests. Those left by a send that fails wait for the next flush. */
void call_queue_flush(struct call_queue *queue);

/* Answers a request that took no slot, and forgets it. */
void call_queue_refuse(struct call_queue *queue, struct coupon *coupon, struct request *request,
		       enum answer answer);
void call_queue_refuse_all(struct call_queue *queue, struct call *call, enum answer answer);
/* Forgets a request that has a slot, now or (`repeated`) by an earlier one; the caller answers. */
void call_queue_accept(struct call_queue *queue, struct coupon *coupon, int repeated);
/* This number of accepted receives of the coupon is confirmed. */
void call_queue_confirmed(struct call_queue *queue, struct coupon *coupon, size_t receives);

/* Ends a call whose requests have all been refused, accepted, or kept for a look-up. */
void call_queue_free_call(struct call_queue *queue, struct call *call);

#endif
