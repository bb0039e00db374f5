#include "worker/forward.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"

#include <stdlib.h>

#define RESCUE_WAIT_MS 3000 /* for a publisher that is not ready; then settled as any other */

/* The queue that a copy goes to; one to be parked goes to WAY_RECEIVES while parking is refused. */
enum way { WAY_RECEIVES, WAY_PARKED, WAY_DEAD };

/* A copy that is published and not yet confirmed. */
struct forwarding {
	enum delivery_state state; /* of the delivery meanwhile */
	enum way way;
	uint64_t epoch;
	uint64_t tag;
	size_t position;
	int64_t coupon; /* 0: the message could not be read */
	struct ulid batch;
};

static void copy_confirmed(struct forward *forward, const struct forwarding *copy)
{
	if (copy->state == DELIVERY_DEAD_SENT) {
		metrics_add(METRIC_DEAD, 1);
		if (copy->coupon)
			forward->dead_lettered(forward->context, copy->coupon, &copy->batch);
	} else if (copy->state == DELIVERY_PARKING_SENT) {
		fault_point(FAULT_WORKER_AFTER_PARK);
		metrics_add(copy->way == WAY_PARKED ? METRIC_PARKED : METRIC_REQUEUED, 1);
	} else {
		fault_point(FAULT_WORKER_AFTER_RESCUE);
		metrics_add(METRIC_RESCUED, 1);
	}
	backoff_reset(&forward->backoff);
}

static void copy_failed(struct forward *forward, const struct forwarding *copy,
			enum confirm_result result)
{
	static const char *const events[] = { [DELIVERY_DEAD_SENT] = "dead_letter_failed",
					      [DELIVERY_PARKING_SENT] = "park_failed",
					      [DELIVERY_RESCUE_SENT] = "rescue_failed" };
	static const char *const whys[] = { [CONFIRM_NACKED] = "nacked",
					    [CONFIRM_RETURNED] = "returned",
					    [CONFIRM_LOST] = "lost" };
	int64_t now_ms = clock_monotonic_ms();

	/*
	 * Copies that fail together count as one failure: the pause must not grow with their
	 * number.
	 */
	if (now_ms >= forward->due_ms)
		forward->due_ms = now_ms + backoff_ms(&forward->backoff);
	log_warn(events[copy->state], LOG_S("why", whys[result]));
	if (result != CONFIRM_LOST && copy->state == DELIVERY_PARKING_SENT &&
	    copy->way == WAY_PARKED)
		forward->refused_ms = now_ms;
}

void forward_done(void *context, void *item, enum confirm_result result)
{
	struct forward *forward = context;
	struct forwarding *copy = item;

	if (result == CONFIRM_DONE)
		copy_confirmed(forward, copy);
	else
		copy_failed(forward, copy, result);
	settlement_forwarded(forward->settlement, copy->epoch, copy->tag, copy->position,
			     result == CONFIRM_DONE);
	free(copy);
}

size_t forward_way(const void *item)
{
	return ((const struct forwarding *)item)->way;
}

/* The reply address is kept, unless it is a dead letter: the client may still be waiting. */
static void copy_publish(struct forward *forward, const struct delivery *delivery,
			 struct forwarding *copy)
{
	const struct {
		const char *exchange, *routing_key;
	} ways[] = {
		[WAY_RECEIVES] = { AMQP_EXCHANGE, forward->routing_key },
		[WAY_PARKED] = { AMQP_EXCHANGE, AMQP_PARKED_KEY },
		[WAY_DEAD] = { AMQP_DEAD_EXCHANGE, forward->routing_key },
	};
	const struct envelope *envelope = delivery->envelope;
	amqp_table_entry_t reason = { .key = amqp_cstring_bytes(AMQP_DEAD_REASON),
				      .value = { .kind = AMQP_FIELD_KIND_UTF8 } };
	amqp_basic_properties_t properties = envelope->properties;

	if (copy->way == WAY_DEAD) {
		reason.value.value.bytes = amqp_cstring_bytes(delivery->reason);
		properties._flags &= (amqp_flags_t)~AMQP_BASIC_REPLY_TO_FLAG;
		properties._flags |= AMQP_BASIC_HEADERS_FLAG;
		properties.headers = (amqp_table_t){ .num_entries = 1, .entries = &reason };
		log_warn("dead_letter", LOG_S("reason", delivery->reason),
			 LOG_I("bytes", envelope->body_size));
	}
	rabbit_publisher_send(forward->publisher, ways[copy->way].exchange,
			      ways[copy->way].routing_key, &properties,
			      (amqp_bytes_t){ envelope->body_len, envelope->body }, copy);
}

static enum way way_of(const struct delivery *delivery, int requeues)
{
	if (delivery->state == DELIVERY_DEAD_SENT)
		return WAY_DEAD;
	if (delivery->state == DELIVERY_PARKING_SENT)
		return requeues ? WAY_RECEIVES : WAY_PARKED;
	return delivery->from_parking ? WAY_PARKED : WAY_RECEIVES;
}

static void copy_send(struct forward *forward, const struct delivery *delivery, int requeues)
{
	const struct delivery_message *message = delivery->message;
	struct forwarding *copy = checked(malloc(sizeof(*copy)));

	*copy = (struct forwarding){ .state = delivery->state,
				     .way = way_of(delivery, requeues),
				     .epoch = delivery->epoch,
				     .tag = delivery->tag,
				     .position = delivery->position };
	if (message) {
		copy->coupon = message->coupon;
		copy->batch = message->batch;
	}
	if (delivery->state == DELIVERY_PARKING_SENT)
		fault_point(FAULT_WORKER_BEFORE_PARK);
	else if (delivery->state == DELIVERY_RESCUE_SENT)
		fault_point(FAULT_WORKER_BEFORE_RESCUE);
	copy_publish(forward, delivery, copy);
}

void forward_send(struct forward *forward, int64_t now_ms)
{
	const struct delivery *delivery;
	int requeues;

	if (rabbit_publisher_ready(forward->publisher))
		forward->ready_ms = now_ms;
	else if (now_ms - forward->ready_ms >= RESCUE_WAIT_MS)
		settlement_rescue_end(forward->settlement);
	if (now_ms < forward->due_ms)
		return;
	requeues = forward->refused_ms && now_ms - forward->refused_ms < FORWARD_REFUSED_MS &&
		   settlement_crowded(forward->settlement);
	if (requeues)
		forward->due_ms = now_ms + FORWARD_REQUEUE_MS;
	while (rabbit_publisher_ready(forward->publisher) &&
	       (delivery = settlement_forward(forward->settlement)))
		copy_send(forward, delivery, requeues);
}

int64_t forward_deadline_ms(const struct forward *forward)
{
	if (settlement_counts(forward->settlement).outgoing == 0 ||
	    !rabbit_publisher_ready(forward->publisher))
		return INT64_MAX;
	return forward->due_ms;
}
