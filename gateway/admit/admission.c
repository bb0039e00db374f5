#include "gateway/admit/admission.h"

#include "common/check.h"
#include "common/log/trace.h"
#include "gateway/admit/coupon_table.h"

#include <stdlib.h>
#include <string.h>

/*
 * Requests that wait for a script call, and the calls in flight. While calls_per_coupon_max calls
 * of a coupon are in flight, or the port has no room, its requests wait and go together in the next
 * call. Part of admission.
 *
 *	add ─▶ waiting ─(flush)─▶ call, sent ─▶ its requests refused or accepted ─▶ free_call
 *
 * It also counts what is open: receives waiting, in a call, being looked up, or not confirmed.
 */

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
static void call_queue_init(struct call_queue *queue, const struct admission_port *port,
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

/* Whether the limit of what is open is reached, of this coupon or of all. */
static int call_queue_is_full(const struct call_queue *queue, const struct coupon *coupon)
{
	return queue->open >= queue->limits->unconfirmed_max ||
	       coupon->open >= queue->limits->unconfirmed_per_coupon_max;
}

static void call_queue_add(struct call_queue *queue, struct coupon *coupon, struct request *request)
{
	coupon->open++;
	queue->open++;
	queue->waiting++;
	queue->unsent++;
	STAILQ_INSERT_TAIL(&coupon->waiting, request, next);
	busy_report(queue, coupon);
	ready_mark(queue, coupon);
}

/* Answers a request that took no slot, and forgets it. */
static void call_queue_refuse(struct call_queue *queue, struct coupon *coupon,
			      struct request *request, enum answer answer)
{
	struct result result = { .answer = answer };

	coupon->open--;
	queue->open--;
	queue->waiting--;
	queue->port->answer(queue->port->context, request, &result);
}

static void call_queue_refuse_all(struct call_queue *queue, struct call *call, enum answer answer)
{
	for (size_t i = 0; i < call->requests_n; i++)
		call_queue_refuse(queue, call->coupon, call->requests[i], answer);
}

/* This number of accepted receives of the coupon is confirmed. */
static void call_queue_confirmed(struct call_queue *queue, struct coupon *coupon, size_t receives)
{
	check(coupon->open >= receives);
	coupon->open -= receives;
	queue->open -= receives;
}

/* Forgets a request that has a slot, now or (`repeated`) by an earlier one; the caller answers. */
static void call_queue_accept(struct call_queue *queue, struct coupon *coupon, int repeated)
{
	queue->waiting--;
	if (repeated) /* nothing new was taken: nothing to confirm */
		call_queue_confirmed(queue, coupon, 1);
}

/* Ends a call whose requests have all been refused, accepted, or kept for a look-up. */
static void call_queue_free_call(struct call_queue *queue, struct call *call)
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

/* Sends the waiting requests. Those left by a send that fails wait for the next flush. */
static void call_queue_flush(struct call_queue *queue)
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

struct admission {
	struct admission_port port;
	struct admission_limits limits;
	struct waiters *waiters;
	struct coupon_table coupons;
	struct call_queue queue;
};

struct admission *admission_new(const struct admission_port *port,
				const struct admission_limits *limits, struct waiters *waiters)
{
	struct admission *admission = calloc(1, sizeof(*admission));

	check(admission != NULL);
	admission->port = *port;
	admission->limits = *limits;
	admission->waiters = waiters;
	coupon_table_init(&admission->coupons, limits->coupons_max);
	call_queue_init(&admission->queue, &admission->port, &admission->limits);
	return admission;
}

void admission_free(struct admission *admission)
{
	if (!admission)
		return;
	check(admission->queue.waiting == 0);
	coupon_table_fini(&admission->coupons);
	free(admission);
}

static int64_t now_of(const struct admission *admission)
{
	return admission->port.now_ms(admission->port.context);
}

static void answer(struct admission *admission, struct request *request,
		   const struct result *result)
{
	admission->port.answer(admission->port.context, request, result);
}

void admission_submit(struct admission *admission, struct request *request)
{
	int64_t now_ms = now_of(admission);
	struct coupon *coupon = coupon_table_get(&admission->coupons, request->coupon, now_ms);

	if (coupon && coupon_remembers(coupon, request, now_ms))
		answer(admission, request, &(struct result){ .answer = coupon->memory });
	else if (!coupon || call_queue_is_full(&admission->queue, coupon))
		answer(admission, request, &(struct result){ .answer = ANSWER_BUSY });
	else
		call_queue_add(&admission->queue, coupon, request);
}

void admission_flush(struct admission *admission)
{
	call_queue_flush(&admission->queue);
}

void admission_report_begin(struct admission *admission)
{
	seen_report_begin(&admission->coupons);
}

int admission_report_some(struct admission *admission, size_t most)
{
	return seen_report_some(&admission->port, &admission->coupons, most);
}

/* Remembers a losing answer for memory_ms, but not beyond `until_ms`. */
static void remember(struct admission *admission, struct coupon *coupon, enum answer code,
		     int64_t until_ms)
{
	int64_t memory_until_ms = now_of(admission) + admission->limits.memory_ms;

	coupon_remember(coupon, code, memory_until_ms < until_ms ? memory_until_ms : until_ms);
}

static void refusal_remember(struct admission *admission, const struct call *call, enum answer code,
			     const struct call_reply *reply)
{
	if (code == ANSWER_OUT_OF_STOCK || code == ANSWER_ENDED || code == ANSWER_PAUSED)
		remember(admission, call->coupon, code, INT64_MAX);
	/* the script ran after the call was sent, at an unknown time */
	else if (code == ANSWER_NOT_STARTED)
		remember(admission, call->coupon, code,
			 call->sent_ms + reply->begin_ms - reply->now_ms);
}

/* A request that got a slot, now or (`repeated`) earlier. */
static void request_accept(struct admission *admission, struct call *call, struct request *request,
			   const struct verdict *verdict, int index)
{
	struct result result = { .answer = ANSWER_OK,
				 .reached = ACK_ACCEPTED,
				 .slot = verdict->slot };

	result.receive.coupon = call->coupon_id;
	result.receive.user = request->user;
	result.receive.batch = verdict->repeated ? verdict->batch : call->batch;
	result.receive.index = verdict->repeated ? verdict->index : index;
	call_queue_accept(&admission->queue, call->coupon, verdict->repeated);
	if (request->ack == ACK_ACCEPTED)
		answer(admission, request, &result);
	else
		waiters_add(admission->waiters, request, &result.receive, verdict->slot,
			    verdict->repeated);
}

static struct batch *batch_new(const struct call *call, const struct call_reply *reply)
{
	struct batch *batch = malloc(sizeof(*batch) + reply->body_len);

	check(batch != NULL);
	batch->ulid = call->batch;
	batch->coupon = call->coupon_id;
	batch->receives = 0;
	batch->wants_outcome = batch->awaited = 0;
	batch->body_len = reply->body_len;
	memcpy(batch->body, reply->body, reply->body_len);
	return batch;
}

static void reply_take(struct admission *admission, struct call *call,
		       const struct call_reply *reply)
{
	struct batch *batch = reply->body_len ? batch_new(call, reply) : NULL;

	for (size_t i = 0; i < call->requests_n; i++) {
		const struct verdict *verdict = &reply->verdicts[i];
		struct request *request = call->requests[i];
		int fresh = verdict->answer == ANSWER_OK && !verdict->repeated;

		if (verdict->answer != ANSWER_OK) {
			refusal_remember(admission, call, verdict->answer, reply);
			call_queue_refuse(&admission->queue, call->coupon, request,
					  verdict->answer);
			continue;
		}
		check(!fresh || batch != NULL);
		if (fresh) {
			batch->wants_outcome |= request->ack == ACK_ISSUED;
			batch->awaited |= request->ack != ACK_ACCEPTED;
		}
		request_accept(admission, call, request, verdict,
			       fresh ? (int)batch->receives++ : 0);
	}
	if (batch)
		admission->port.publish(admission->port.context, batch);
}

/* Redis does not hold the coupon: the requests wait for a look-up in PostgreSQL. */
static void call_park(struct admission *admission, struct call *call)
{
	struct coupon *coupon = call->coupon;

	for (size_t i = 0; i < call->requests_n; i++)
		STAILQ_INSERT_TAIL(&coupon->parked, call->requests[i], next);
	if (!coupon->looking) {
		coupon->looking = 1;
		admission->port.look_up(admission->port.context, coupon->id);
	}
}

void admission_replied(struct admission *admission, struct call *call,
		       const struct call_reply *reply)
{
	trace_state(TRACE_CALL, call->coupon_id, "sent", "replied");
	switch (reply->state) {
	case CALL_OK:
		seen_raise(&admission->port, call->coupon, reply->generation, reply->seq);
		reply_take(admission, call, reply);
		break;
	case CALL_MISSING:
		seen_report(&admission->port, call->coupon);
		call_park(admission, call);
		break;
	case CALL_UNVERIFIED:
	case CALL_BEHIND:
		seen_report(&admission->port, call->coupon);
		seen_ask(&admission->port, call->coupon);
		call_queue_refuse_all(&admission->queue, call, ANSWER_UNAVAILABLE);
		break;
	}
	call_queue_free_call(&admission->queue, call);
}

void admission_not_run(struct admission *admission, struct call *call)
{
	trace_state(TRACE_CALL, call->coupon_id, "sent", "not_run");
	call_queue_refuse_all(&admission->queue, call, ANSWER_UNAVAILABLE);
	call_queue_free_call(&admission->queue, call);
}

void admission_lost(struct admission *admission, struct call *call)
{
	trace_state(TRACE_CALL, call->coupon_id, "sent", "lost");
	call->coupon->doubt_until_ms = now_of(admission) + ADMISSION_DOUBT_MS;
	if (admission->port.doubt)
		admission->port.doubt(admission->port.context, call->coupon_id,
				      call->coupon->doubt_until_ms);
	call_queue_refuse_all(&admission->queue, call, ANSWER_UNKNOWN);
	call_queue_free_call(&admission->queue, call);
}

static enum answer coupon_answer(enum coupon_state state)
{
	switch (state) {
	case COUPON_ABSENT:
		return ANSWER_NOT_FOUND;
	case COUPON_PAUSED:
		return ANSWER_PAUSED;
	case COUPON_ENDED:
		return ANSWER_ENDED;
	case COUPON_PUBLISHED: /* the keeper is about to load it */
	case COUPON_LOOKUP_FAILED:
		return ANSWER_UNAVAILABLE;
	case COUPON_LOOKUP_BUSY:
		return ANSWER_BUSY;
	}
	return ANSWER_UNAVAILABLE;
}

void admission_looked_up(struct admission *admission, int64_t id, enum coupon_state state)
{
	struct coupon *coupon = coupon_table_find(&admission->coupons, id);
	enum answer code = coupon_answer(state);
	struct request *request;

	check(coupon != NULL && coupon->looking);
	coupon->looking = 0;
	if (state == COUPON_PUBLISHED)
		seen_ask(&admission->port, coupon);
	if (code != ANSWER_UNAVAILABLE && code != ANSWER_BUSY)
		remember(admission, coupon, code, INT64_MAX);
	while ((request = STAILQ_FIRST(&coupon->parked))) {
		STAILQ_REMOVE_HEAD(&coupon->parked, next);
		call_queue_refuse(&admission->queue, coupon, request, code);
	}
}

void admission_confirmed(struct admission *admission, const struct batch *batch)
{
	struct coupon *coupon = coupon_table_find(&admission->coupons, batch->coupon);

	check(coupon != NULL);
	call_queue_confirmed(&admission->queue, coupon, batch->receives);
}

int admission_in_doubt(const struct admission *admission, int64_t id)
{
	const struct coupon *coupon = coupon_table_find(&admission->coupons, id);

	if (!coupon)
		return 0;
	return coupon_has_requests(coupon) || coupon->doubt_until_ms > now_of(admission);
}

void admission_refused(struct admission *admission, int64_t id)
{
	struct coupon *coupon = coupon_table_find(&admission->coupons, id);

	if (coupon)
		seen_report(&admission->port, coupon);
}

void admission_seen(const struct admission *admission, int64_t id, int64_t *generation,
		    int64_t *seq)
{
	const struct coupon *coupon = coupon_table_find(&admission->coupons, id);

	*generation = coupon ? coupon->seen_generation : 0;
	*seq = coupon ? coupon->seen_seq : 0;
}

size_t admission_unconfirmed(const struct admission *admission)
{
	return admission->queue.open - admission->queue.waiting;
}
