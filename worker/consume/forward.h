/*
 * Forwards the deliveries that this worker does not settle. Those that cannot be settled go to the
 * dead-letter exchange with the reason; those of a locked coupon go to the parking queue; those
 * with a high delivery count go to the end of their own queue. A delivery is acked when the broker
 * has confirmed the copy; until then it is published again, after a pause that doubles. Where the
 * parking queue refuses what would fill the prefetch, the copy goes to the end of the receive
 * queue, so that the messages behind it are delivered. A worker that dies in between leaves the
 * delivery and the copy; settlement ignores the second one.
 *
 * A confirmed dead letter is passed on, because the keeper must not send its batch again.
 */
#pragma once

#include "common/backoff.h"
#include "common/rabbit/publisher.h"
#include "worker/metrics.h"
#include "worker/settlement.h"

#define FORWARD_REFUSED_MS 5000 /* so long after a refusal the parking queue is not tried again */
#define FORWARD_REQUEUE_MS 100  /* between two rounds of copies to the receive queue */

struct forward {
	struct settlement *settlement;
	struct rabbit_publisher *publisher;
	const char *routing_key; /* of the queue that is consumed */
	/* RabbitMQ has confirmed the dead letter of this batch. */
	void (*dead_lettered)(void *context, int64_t coupon, const struct ulid *batch);
	void *context;
	struct backoff backoff;
	int64_t due_ms;     /* no publish before this time */
	int64_t ready_ms;   /* when the publisher was ready last; at first: the start */
	int64_t refused_ms; /* the last time that the parking queue refused a copy; 0: never */
};

/* Publishes the waiting copies, as far as possible now. */
void forward_send(struct forward *forward, int64_t now_ms);
/* The end of one publish; a confirm_fn whose context is the struct. */
void forward_done(void *forward, void *item, enum confirm_result result);
/* The queue that the copy goes to: way() of the publisher. */
size_t forward_way(const void *item);
/* When forward_send() is to be called next; INT64_MAX when it has nothing to do. */
int64_t forward_deadline_ms(const struct forward *forward);
