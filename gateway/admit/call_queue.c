#include "gateway/admit/call_queue.h"

#include "common/check.h"
#include "common/log/trace.h"

#include <stdlib.h>

void call_queue_init(struct call_queue *queue, const struct admission_port *port,
		     const struct admission_limits *limits)
{
	check(limits->batch_receives_max >= 1 &&
	      limits->batch_receives_max <= MESSAGE_RECEIVES_MAX);
	*queue = (struct call_queue){ .port = port, .limits = limits };
	STAILQ_INIT(&queue->ready);
}

/*
 * Reports to the port when the coupon's first request arrives, before it is sent, and when its last
 * one ends.
 */
static void busy_report(struct call_queue *queue, struct coupon *coupon)
{
	int busy = coupon_has_requests(coupon);

	if (busy == coupon->is_busy || !queue->port->busy)
		return;
	coupon->is_busy = busy;
	queue->port->busy(queue->port->context, coupon->id, busy);
}

static void ready_mark(struct call_queue *queue, struct coupon *coupon)
{
	if (coupon->is_ready || STAILQ_EMPTY(&coupon->waiting))
		return;
	coupon->is_ready = 1;
	queue->ready_n++;
	STAILQ_INSERT_TAIL(&queue->ready, coupon, ready);
}

int call_queue_is_full(const struct call_queue *queue, const struct coupon *coupon)
{
	return queue->open >= queue->limits->unconfirmed_max ||
	       coupon->open >= queue->limits->unconfirmed_per_coupon_max;
}

void call_queue_add(struct call_queue *queue, struct coupon *coupon, struct request *request)
{
	coupon->open++;
	queue->open++;
	queue->waiting++;
	queue->unsent++;
	STAILQ_INSERT_TAIL(&coupon->waiting, request, next);
	busy_report(queue, coupon);
	ready_mark(queue, coupon);
}

void call_queue_refuse(struct call_queue *queue, struct coupon *coupon, struct request *request,
		       enum answer answer)
{
	struct result result = { .answer = answer };

	coupon->open--;
	queue->open--;
	queue->waiting--;
	queue->port->answer(queue->port->context, request, &result);
}

void call_queue_refuse_all(struct call_queue *queue, struct call *call, enum answer answer)
{
	for (size_t i = 0; i < call->requests_n; i++)
		call_queue_refuse(queue, call->coupon, call->requests[i], answer);
}

void call_queue_accept(struct call_queue *queue, struct coupon *coupon, int repeated)
{
	queue->waiting--;
	if (repeated) /* nothing new was taken: nothing to confirm */
		call_queue_confirmed(queue, coupon, 1);
}

void call_queue_confirmed(struct call_queue *queue, struct coupon *coupon, size_t receives)
{
	check(coupon->open >= receives);
	coupon->open -= receives;
	queue->open -= receives;
}

void call_queue_free_call(struct call_queue *queue, struct call *call)
{
	call->coupon->calls--;
	busy_report(queue, call->coupon);
	ready_mark(queue, call->coupon);
	free(call);
}

static struct call *call_new(const struct call_queue *queue, struct coupon *coupon, int64_t now_ms)
{
	struct call *call = malloc(sizeof(*call));

	check(call != NULL);
	call->coupon = coupon;
	call->coupon_id = coupon->id;
	call->seen_generation = coupon->seen_generation;
	call->seen_seq = coupon->seen_seq;
	call->sent_ms = now_ms;
	call->has_keys = call->has_codes = 0;
	call->requests_n = 0;
	queue->port->ulid_new(queue->port->context, &call->batch);
	return call;
}

/* How many requests the next call may have. */
static size_t room(const struct call_queue *queue)
{
	const struct admission_port *port = queue->port;
	size_t most = queue->limits->batch_receives_max, n;

	if (!port->room)
		return most;
	n = port->room(port->context, queue->unsent, queue->ready_n);
	return n < most ? n : most;
}

/*
 * Makes the next call, of at most `most` waiting requests; NULL when a remembered answer served all
 * of them.
 */
static struct call *call_gather(struct call_queue *queue, struct coupon *coupon, size_t most)
{
	int64_t now_ms = queue->port->now_ms(queue->port->context);
	struct call *call = NULL;
	struct request *request;

	while ((request = STAILQ_FIRST(&coupon->waiting)) && (!call || call->requests_n < most)) {
		STAILQ_REMOVE_HEAD(&coupon->waiting, next);
		queue->unsent--;
		if (coupon_remembers(coupon, request, now_ms)) {
			call_queue_refuse(queue, coupon, request, coupon->memory);
			continue;
		}
		if (!call)
			call = call_new(queue, coupon, now_ms);
		call->has_keys |= request->key_len > 0;
		call->has_codes |= request->code_len > 0;
		call->requests[call->requests_n++] = request;
	}
	return call;
}

static void coupon_send(struct call_queue *queue, struct coupon *coupon)
{
	size_t most;

	while (coupon->calls < queue->limits->calls_per_coupon_max &&
	       !STAILQ_EMPTY(&coupon->waiting) && (most = room(queue)) > 0) {
		struct call *call = call_gather(queue, coupon, most);

		if (!call) {
			busy_report(queue, coupon);
			return;
		}
		coupon->calls++;
		trace_state(TRACE_CALL, coupon->id, "waiting", "sent");
		if (queue->port->send(queue->port->context, call)) {
			call_queue_refuse_all(queue, call, ANSWER_UNAVAILABLE);
			call_queue_free_call(queue, call);
		}
	}
}

void call_queue_flush(struct call_queue *queue)
{
	/* Those that become ready meanwhile wait for the next flush. */
	for (size_t n = queue->ready_n; n > 0 && room(queue) > 0; n--) {
		struct coupon *coupon = STAILQ_FIRST(&queue->ready);

		coupon_send(queue, coupon);
		STAILQ_REMOVE_HEAD(&queue->ready, ready);
		queue->ready_n--;
		coupon->is_ready = 0;
		if (coupon->calls < queue->limits->calls_per_coupon_max)
			ready_mark(queue, coupon);
	}
}
