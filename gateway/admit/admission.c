#include "gateway/admit/admission.h"

#include "common/check.h"
#include "common/trace.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define REPORT_PAUSE_MS 100     /* before the same coupon is reported again */
#define REPORT_COUPONS_MAX 1024 /* at a new connection */
#define EVICT_TRIES 16          /* coupons looked at to find one to forget */

struct coupon {
	int64_t id;
	UT_hash_handle hh;
	TAILQ_ENTRY(coupon) by_use;
	STAILQ_ENTRY(coupon) ready; /* in admission.ready while is_ready */
	int is_ready;
	int is_busy; /* as the port was told */
	int64_t calls;
	size_t open; /* receives waiting, in a call, being looked up, or not confirmed */
	struct request_list waiting;
	struct request_list parked; /* Redis does not have the coupon: PostgreSQL is asked */
	int looking;
	int64_t seen_generation;
	int64_t seen_seq;
	int64_t report_after_ms; /* not told again before */
	enum answer memory;      /* a losing answer that is given again until memory_until_ms */
	int64_t memory_until_ms;
	int64_t doubt_until_ms;
};

TAILQ_HEAD(coupon_queue, coupon);
STAILQ_HEAD(ready_list, coupon);

struct admission {
	struct admission_port port;
	struct admission_limits limits;
	struct waiters *waiters;
	struct coupon *coupons;
	struct coupon_queue by_use; /* least recently used first */
	struct ready_list ready;    /* have something to send */
	size_t open;                /* the sum over all coupons */
	size_t waiting;
	size_t calls;
};

struct admission *admission_new(const struct admission_port *port,
				const struct admission_limits *limits, struct waiters *waiters)
{
	struct admission *admission = calloc(1, sizeof(*admission));

	check(admission != NULL);
	check(limits->batch_receives_max >= 1 &&
	      limits->batch_receives_max <= MESSAGE_RECEIVES_MAX);
	admission->port = *port;
	admission->limits = *limits;
	admission->waiters = waiters;
	TAILQ_INIT(&admission->by_use);
	STAILQ_INIT(&admission->ready);
	return admission;
}

static void coupon_free(struct admission *admission, struct coupon *coupon)
{
	HASH_DEL(admission->coupons, coupon);
	TAILQ_REMOVE(&admission->by_use, coupon, by_use);
	free(coupon);
}

void admission_free(struct admission *admission)
{
	struct coupon *coupon;

	if (!admission)
		return;
	check(admission->waiting == 0);
	while ((coupon = TAILQ_FIRST(&admission->by_use)))
		coupon_free(admission, coupon);
	free(admission);
}

static int64_t now_of(const struct admission *admission)
{
	return admission->port.now_ms(admission->port.context);
}

static struct coupon *coupon_find(const struct admission *admission, int64_t id)
{
	struct coupon *coupon;

	HASH_FIND(hh, admission->coupons, &id, sizeof(id), coupon);
	return coupon;
}

/* Forgets a coupon that nothing depends on; 0, or -1 when none of the least used is such. */
static int coupon_evict(struct admission *admission)
{
	int64_t now_ms = now_of(admission);
	struct coupon *coupon = TAILQ_FIRST(&admission->by_use);

	for (int i = 0; coupon && i < EVICT_TRIES; i++, coupon = TAILQ_NEXT(coupon, by_use)) {
		if (coupon->open == 0 && coupon->calls == 0 && !coupon->looking &&
		    !coupon->is_ready && coupon->doubt_until_ms <= now_ms) {
			coupon_free(admission, coupon);
			return 0;
		}
	}
	return -1;
}

/* The coupon with this id, as the most recently used; NULL when no more can be kept in mind. */
static struct coupon *coupon_get(struct admission *admission, int64_t id)
{
	struct coupon *coupon = coupon_find(admission, id);

	if (coupon) {
		TAILQ_REMOVE(&admission->by_use, coupon, by_use);
		TAILQ_INSERT_TAIL(&admission->by_use, coupon, by_use);
		return coupon;
	}
	if (HASH_COUNT(admission->coupons) >= admission->limits.coupons_max &&
	    coupon_evict(admission))
		return NULL;
	coupon = calloc(1, sizeof(*coupon));
	check(coupon != NULL);
	coupon->id = id;
	STAILQ_INIT(&coupon->waiting);
	STAILQ_INIT(&coupon->parked);
	HASH_ADD(hh, admission->coupons, id, sizeof(coupon->id), coupon);
	TAILQ_INSERT_TAIL(&admission->by_use, coupon, by_use);
	return coupon;
}

static int has_requests(const struct coupon *coupon)
{
	return coupon->calls > 0 || !STAILQ_EMPTY(&coupon->waiting);
}

/* Tells when requests of it come into our hands, before any is sent, and when none is left. */
static void coupon_tell_busy(struct admission *admission, struct coupon *coupon)
{
	int busy = has_requests(coupon);

	if (busy == coupon->is_busy || !admission->port.busy)
		return;
	coupon->is_busy = busy;
	admission->port.busy(admission->port.context, coupon->id, busy);
}

static void coupon_mark_ready(struct admission *admission, struct coupon *coupon)
{
	if (coupon->is_ready || STAILQ_EMPTY(&coupon->waiting))
		return;
	coupon->is_ready = 1;
	STAILQ_INSERT_TAIL(&admission->ready, coupon, ready);
}

static void answer(struct admission *admission, struct request *request,
		   const struct result *result)
{
	admission->port.answer(admission->port.context, request, result);
}

/* Ends a submitted request that took nothing. */
static void request_end(struct admission *admission, struct coupon *coupon, struct request *request,
			enum answer code)
{
	struct result result = { .answer = code };

	coupon->open--;
	admission->open--;
	admission->waiting--;
	answer(admission, request, &result);
}

static int memory_holds(const struct coupon *coupon, const struct request *request, int64_t now_ms)
{
	return request->key_len == 0 && coupon->memory_until_ms > now_ms;
}

/* Remembers a losing answer that is true of the coupon, whoever asks, but not beyond `until_ms`. */
static void coupon_remember(struct admission *admission, struct coupon *coupon, enum answer code,
			    int64_t until_ms)
{
	int64_t memory_until_ms = now_of(admission) + admission->limits.memory_ms;

	coupon->memory = code;
	coupon->memory_until_ms = memory_until_ms < until_ms ? memory_until_ms : until_ms;
}

void admission_submit(struct admission *admission, struct request *request)
{
	struct coupon *coupon = coupon_get(admission, request->coupon);

	if (coupon && memory_holds(coupon, request, now_of(admission))) {
		answer(admission, request, &(struct result){ .answer = coupon->memory });
		return;
	}
	if (!coupon || admission->open >= admission->limits.unconfirmed_max ||
	    coupon->open >= admission->limits.unconfirmed_per_coupon_max) {
		answer(admission, request, &(struct result){ .answer = ANSWER_BUSY });
		return;
	}
	coupon->open++;
	admission->open++;
	admission->waiting++;
	STAILQ_INSERT_TAIL(&coupon->waiting, request, next);
	coupon_tell_busy(admission, coupon);
	coupon_mark_ready(admission, coupon);
}

/* The next call out of what waits, or NULL when the memory of a losing answer served it all. */
static struct call *call_gather(struct admission *admission, struct coupon *coupon)
{
	int64_t now_ms = now_of(admission);
	struct call *call = NULL;
	struct request *request;

	while ((request = STAILQ_FIRST(&coupon->waiting)) &&
	       (!call || call->requests_n < admission->limits.batch_receives_max)) {
		STAILQ_REMOVE_HEAD(&coupon->waiting, next);
		if (memory_holds(coupon, request, now_ms)) {
			request_end(admission, coupon, request, coupon->memory);
			continue;
		}
		if (!call) {
			call = malloc(sizeof(*call));
			check(call != NULL);
			call->requests_n = 0;
		}
		call->requests[call->requests_n++] = request;
	}
	if (!call)
		return NULL;
	call->coupon = coupon;
	call->coupon_id = coupon->id;
	call->seen_generation = coupon->seen_generation;
	call->seen_seq = coupon->seen_seq;
	call->sent_ms = now_ms;
	call->port_data = NULL;
	admission->port.ulid_new(admission->port.context, &call->batch);
	return call;
}

/* Answers every request of a call alike. */
static void call_end_all(struct admission *admission, struct call *call, enum answer code)
{
	for (size_t i = 0; i < call->requests_n; i++)
		request_end(admission, call->coupon, call->requests[i], code);
}

static void call_free(struct admission *admission, struct call *call)
{
	call->coupon->calls--;
	admission->calls--;
	coupon_tell_busy(admission, call->coupon);
	coupon_mark_ready(admission, call->coupon);
	free(call);
}

static void coupon_send(struct admission *admission, struct coupon *coupon)
{
	while (coupon->calls < admission->limits.calls_per_coupon_max &&
	       !STAILQ_EMPTY(&coupon->waiting)) {
		struct call *call = call_gather(admission, coupon);

		if (!call) {
			coupon_tell_busy(admission, coupon);
			return;
		}
		coupon->calls++;
		admission->calls++;
		trace_state(TRACE_CALL, coupon->id, "waiting", "sent");
		if (admission->port.send(admission->port.context, call)) {
			call_end_all(admission, call, ANSWER_UNAVAILABLE);
			call_free(admission, call);
		}
	}
}

void admission_flush(struct admission *admission)
{
	struct ready_list ready = STAILQ_HEAD_INITIALIZER(ready);
	struct coupon *coupon;

	/* What becomes ready meanwhile (a send that failed at once) waits for the next turn. */
	STAILQ_CONCAT(&ready, &admission->ready);
	while ((coupon = STAILQ_FIRST(&ready))) {
		STAILQ_REMOVE_HEAD(&ready, ready);
		coupon->is_ready = 0;
		coupon_send(admission, coupon);
	}
}

static void report(struct admission *admission, int64_t coupon, int64_t generation, int64_t seq)
{
	if (generation > 0 && seq > 0)
		admission->port.report(admission->port.context, coupon, generation, seq);
}

/* Redis refuses the coupon: what was seen of it may be what the keeper has to know. */
static void coupon_report(struct admission *admission, struct coupon *coupon)
{
	int64_t now_ms = now_of(admission);

	if (now_ms < coupon->report_after_ms)
		return;
	coupon->report_after_ms = now_ms + REPORT_PAUSE_MS;
	report(admission, coupon->id, coupon->seen_generation, coupon->seen_seq);
}

void admission_report(struct admission *admission)
{
	struct coupon *coupon = TAILQ_LAST(&admission->by_use, coupon_queue);

	for (int i = 0; coupon && i < REPORT_COUPONS_MAX;
	     i++, coupon = TAILQ_PREV(coupon, coupon_queue, by_use))
		report(admission, coupon->id, coupon->seen_generation, coupon->seen_seq);
}

static void seen_raise(struct admission *admission, struct coupon *coupon,
		       const struct call_reply *reply)
{
	if (reply->generation > coupon->seen_generation) {
		coupon->seen_generation = reply->generation;
		coupon->seen_seq = reply->seq;
	} else if (reply->generation < coupon->seen_generation) {
		/*
		 * It overtook what another connection told of a rebuild, which may not know of it.
		 */
		report(admission, coupon->id, reply->generation, reply->seq);
	} else if (reply->seq > coupon->seen_seq) {
		coupon->seen_seq = reply->seq;
	}
}

static void refusal_remember(struct admission *admission, const struct call *call, enum answer code,
			     const struct call_reply *reply)
{
	if (code == ANSWER_OUT_OF_STOCK || code == ANSWER_ENDED || code == ANSWER_PAUSED)
		coupon_remember(admission, call->coupon, code, INT64_MAX);
	/* the script ran at some time after it was sent, maybe long ago */
	else if (code == ANSWER_NOT_STARTED)
		coupon_remember(admission, call->coupon, code,
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
	admission->waiting--;
	if (verdict->repeated) { /* it took nothing new */
		call->coupon->open--;
		admission->open--;
	}
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
	batch->wants_outcome = 0;
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
			request_end(admission, call->coupon, request, verdict->answer);
			continue;
		}
		check(!fresh || batch != NULL);
		if (fresh && request->ack == ACK_ISSUED)
			batch->wants_outcome = 1;
		request_accept(admission, call, request, verdict,
			       fresh ? (int)batch->receives++ : 0);
	}
	if (batch)
		admission->port.publish(admission->port.context, batch);
}

/* Redis does not have the coupon: the requests wait for what PostgreSQL says. */
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
		seen_raise(admission, call->coupon, reply);
		reply_take(admission, call, reply);
		break;
	case CALL_MISSING:
		coupon_report(admission, call->coupon);
		call_park(admission, call);
		break;
	case CALL_UNVERIFIED:
	case CALL_BEHIND:
		coupon_report(admission, call->coupon);
		call_end_all(admission, call, ANSWER_UNAVAILABLE);
		break;
	}
	call_free(admission, call);
}

void admission_not_run(struct admission *admission, struct call *call)
{
	trace_state(TRACE_CALL, call->coupon_id, "sent", "not_run");
	call_end_all(admission, call, ANSWER_UNAVAILABLE);
	call_free(admission, call);
}

void admission_lost(struct admission *admission, struct call *call)
{
	trace_state(TRACE_CALL, call->coupon_id, "sent", "lost");
	call->coupon->doubt_until_ms = now_of(admission) + ADMISSION_DOUBT_MS;
	if (admission->port.doubt)
		admission->port.doubt(admission->port.context, call->coupon_id,
				      call->coupon->doubt_until_ms);
	call_end_all(admission, call, ANSWER_UNKNOWN);
	call_free(admission, call);
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
	struct coupon *coupon = coupon_find(admission, id);
	enum answer code = coupon_answer(state);
	struct request *request;

	check(coupon != NULL && coupon->looking);
	coupon->looking = 0;
	if (code != ANSWER_UNAVAILABLE && code != ANSWER_BUSY)
		coupon_remember(admission, coupon, code, INT64_MAX);
	while ((request = STAILQ_FIRST(&coupon->parked))) {
		STAILQ_REMOVE_HEAD(&coupon->parked, next);
		request_end(admission, coupon, request, code);
	}
}

void admission_confirmed(struct admission *admission, const struct batch *batch)
{
	struct coupon *coupon = coupon_find(admission, batch->coupon);

	check(coupon != NULL && coupon->open >= batch->receives);
	coupon->open -= batch->receives;
	admission->open -= batch->receives;
}

int admission_in_doubt(const struct admission *admission, int64_t id)
{
	const struct coupon *coupon = coupon_find(admission, id);

	if (!coupon)
		return 0;
	return has_requests(coupon) || coupon->doubt_until_ms > now_of(admission);
}

void admission_refused(struct admission *admission, int64_t id)
{
	struct coupon *coupon = coupon_find(admission, id);

	if (coupon)
		coupon_report(admission, coupon);
}

void admission_seen(const struct admission *admission, int64_t id, int64_t *generation,
		    int64_t *seq)
{
	const struct coupon *coupon = coupon_find(admission, id);

	*generation = coupon ? coupon->seen_generation : 0;
	*seq = coupon ? coupon->seen_seq : 0;
}

size_t admission_unconfirmed(const struct admission *admission)
{
	return admission->open - admission->waiting;
}

size_t admission_calls(const struct admission *admission)
{
	return admission->calls;
}

size_t admission_waiting(const struct admission *admission)
{
	return admission->waiting;
}
