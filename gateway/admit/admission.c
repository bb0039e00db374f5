#include "gateway/admit/admission.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/trace_context.h"
#include "gateway/admit/coupon_table.h"

#include <stdlib.h>
#include <string.h>

STAILQ_HEAD(coupon_list, coupon);

/* What is open: receives waiting, in a call, being looked up, or not confirmed. */
struct admission {
	struct admission_port port;
	struct config limits; /* the settings that admission needs */
	struct waiters *waiters;
	struct coupon_table coupons;
	struct copies *copies;
	struct coupon_list ready; /* have something to send, oldest first */
	size_t ready_n;
	size_t unsent;       /* requests that are in no call */
	size_t open;         /* the sum over all coupons */
	size_t waiting;      /* requests that are not answered */
	int64_t accepted_ms; /* when Redis last gave receives; 0: never */
	uint64_t forgets;    /* how many times remembered answers were forgotten */
};

struct admission *admission_new(const struct admission_port *port, const struct config *config,
				size_t coupons_max, struct waiters *waiters, struct copies *copies)
{
	struct admission *admission = checked(calloc(1, sizeof(*admission)));

	check(config->batch_receives_max >= 1 &&
	      config->batch_receives_max <= MESSAGE_RECEIVES_MAX);
	admission->port = *port;
	admission->limits = *config;
	admission->waiters = waiters;
	STAILQ_INIT(&admission->ready);
	coupon_table_init(&admission->coupons, coupons_max);
	admission->copies = copies;
	return admission;
}

void admission_free(struct admission *admission)
{
	check(admission->waiting == 0);
	coupon_table_fini(&admission->coupons);
	free(admission);
}

/* Whether requests for the coupon wait or are in a call. */
static int has_requests(const struct coupon *coupon)
{
	return coupon->calls > 0 || !STAILQ_EMPTY(&coupon->waiting);
}

/* Whether the cached refusal answers the request; never one with a key, which may be known. */
static int remembers(const struct admission *admission, const struct coupon *coupon,
		     const struct request *request, int64_t now_ms)
{
	return request->key_len == 0 && request->code_len == 0 &&
	       coupon->memory_until_ms > now_ms && coupon->memory_forgets == admission->forgets;
}

/*
 * Reports to the port when the coupon's first request arrives, before it is sent, and when its last
 * one ends.
 */
static void busy_report(struct admission *admission, struct coupon *coupon)
{
	int busy = has_requests(coupon);

	if (busy == coupon->is_busy)
		return;
	coupon->is_busy = busy;
	admission->port.busy(coupon->id, busy);
}

static void ready_mark(struct admission *admission, struct coupon *coupon)
{
	if (coupon->is_ready || STAILQ_EMPTY(&coupon->waiting))
		return;
	coupon->is_ready = 1;
	admission->ready_n++;
	STAILQ_INSERT_TAIL(&admission->ready, coupon, ready);
}

/* This number of receives of the coupon is confirmed, or was never accepted. */
static void receives_end(struct admission *admission, struct coupon *coupon, size_t receives)
{
	check(coupon->open >= receives);
	coupon->open -= receives;
	admission->open -= receives;
}

static void refuse(struct admission *admission, struct coupon *coupon, struct request *request,
		   enum answer code)
{
	if (code >= REFUSALS_FIRST && code < REFUSALS_FIRST + REFUSALS_N) {
		coupon->refusals.num[code - REFUSALS_FIRST]++;
		if (!coupon->is_refused)
			TAILQ_INSERT_TAIL(&admission->coupons.refused, coupon, next_refused);
		coupon->is_refused = 1;
	}
	admission->port.answer(admission->port.answering, request,
			       &(struct result){ .answer = code });
}

/* Answers a request that took no slot, and forgets it. */
static void request_refuse(struct admission *admission, struct coupon *coupon,
			   struct request *request, enum answer code)
{
	receives_end(admission, coupon, 1);
	admission->waiting--;
	refuse(admission, coupon, request, code);
}

/* Ends a call whose requests have all been refused, accepted, or kept for a look-up. */
static void call_free(struct admission *admission, struct call *call)
{
	call->coupon->calls--;
	busy_report(admission, call->coupon);
	ready_mark(admission, call->coupon);
	free(call);
}

/* Ends it with this answer to all of its requests. */
static void call_refuse(struct admission *admission, struct call *call, enum answer code)
{
	for (size_t i = 0; i < call->requests_n; i++)
		request_refuse(admission, call->coupon, call->requests[i], code);
	call_free(admission, call);
}

/* How many requests the next call may have. */
static size_t room(const struct admission *admission)
{
	size_t most = (size_t)admission->limits.batch_receives_max;
	size_t n = admission->port.room(admission->port.redis, admission->unsent,
					admission->ready_n);

	return n < most ? n : most;
}

/*
 * Makes the next call, of at most `most` waiting requests; NULL when a remembered answer served all
 * of them.
 */
static struct call *call_gather(struct admission *admission, struct coupon *coupon, size_t most)
{
	int64_t now_ms = admission->port.now_ms();
	struct call *call = NULL;
	struct request *request;

	while ((request = STAILQ_FIRST(&coupon->waiting)) && (!call || call->requests_n < most)) {
		STAILQ_REMOVE_HEAD(&coupon->waiting, next);
		admission->unsent--;
		if (remembers(admission, coupon, request, now_ms)) {
			request_refuse(admission, coupon, request, coupon->memory);
			continue;
		}
		if (request_is_abandoned(request, now_ms * 1000)) {
			request_refuse(admission, coupon, request, ANSWER_BUSY);
			continue;
		}

		if (!call) {
			call = checked(malloc(sizeof(*call)));
			call->coupon = coupon;
			call->coupon_id = coupon->id;
			call->seen_generation = coupon->seen_generation;
			call->seen_seq = coupon->seen_seq;
			call->sent_ms = now_ms;
			call->forgets = admission->forgets;
			call->has_keys = call->has_codes = call->has_traces = 0;
			call->requests_n = 0;
			admission->port.ulid_new(&call->batch);
		}
		call->has_keys |= request->key_len > 0;
		call->has_codes |= request->code_len > 0;
		call->has_traces |= request->trace_len > 0;
		call->requests[call->requests_n++] = request;
	}
	return call;
}

/* Requests left by a send that fails wait for the next flush. */
void admission_flush(struct admission *admission)
{
	size_t most;

	/* Coupons that become ready meanwhile wait for the next flush. */
	for (size_t n = admission->ready_n; n > 0 && room(admission) > 0; n--) {
		struct coupon *coupon = STAILQ_FIRST(&admission->ready);

		while (coupon->calls < admission->limits.calls_per_coupon_max &&
		       !STAILQ_EMPTY(&coupon->waiting) && (most = room(admission)) > 0) {
			struct call *call = call_gather(admission, coupon, most);

			if (!call) {
				busy_report(admission, coupon);
				break;
			}
			coupon->calls++;
			trace_state(TRACE_CALL, coupon->id, "waiting", "sent");
			if (admission->port.send(admission->port.redis, call))
				call_refuse(admission, call, ANSWER_UNAVAILABLE);
		}

		STAILQ_REMOVE_HEAD(&admission->ready, ready);
		admission->ready_n--;
		coupon->is_ready = 0;
		if (coupon->calls < admission->limits.calls_per_coupon_max)
			ready_mark(admission, coupon);
	}
}

void admission_submit(struct admission *admission, struct request *request)
{
	int64_t now_ms = admission->port.now_ms();
	struct coupon *coupon = coupon_table_get(&admission->coupons, request->coupon, now_ms);

	if (coupon && remembers(admission, coupon, request, now_ms)) {
		refuse(admission, coupon, request, coupon->memory);
		return;
	}
	/* Is the limit of what is open reached, of this coupon or of all? */
	if (!coupon || (int64_t)admission->open >= admission->limits.unconfirmed_max ||
	    (int64_t)coupon->open >= admission->limits.unconfirmed_per_coupon_max) {
		admission->port.answer(admission->port.answering, request,
				       &(struct result){ .answer = ANSWER_BUSY });
		return;
	}
	coupon->open++;
	admission->open++;
	admission->waiting++;
	admission->unsent++;
	STAILQ_INSERT_TAIL(&coupon->waiting, request, next);
	busy_report(admission, coupon);
	ready_mark(admission, coupon);
}

void admission_refuse(struct admission *admission, struct request *request, enum answer answer)
{
	struct coupon *coupon = coupon_table_get(&admission->coupons, request->coupon,
						 admission->port.now_ms());

	if (coupon)
		refuse(admission, coupon, request, answer);
	else
		admission->port.answer(admission->port.answering, request,
				       &(struct result){ .answer = ANSWER_BUSY });
}

#define REPORT_PAUSE_MS 100 /* before the same coupon is reported or asked for again */
/* Up to the last receives of any coupon: a process that is lost may not have replicated them. */
#define RECENT_MS 10000

/*
 * The highest generation of a coupon that Redis has named to this process, and the highest seq in
 * it, are sent with every call, so that a Redis that has fallen behind refuses it. They are also
 * reported, for the keeper, to a Redis that refuses the coupon or may have lost data.
 */
static void report(struct admission *admission, const struct coupon *coupon, int64_t generation,
		   int64_t seq)
{
	int is_recent = coupon->accepted_ms &&
			coupon->accepted_ms > admission->accepted_ms - RECENT_MS;

	if (generation > 0 && seq > 0)
		admission->port.report(admission->port.presence, coupon->id, generation, seq,
				       is_recent);
}

/* Whether the pause until `*after_ms` is over; then the next one begins. */
static int pause_is_over(struct admission *admission, int64_t *after_ms)
{
	int64_t now_ms = admission->port.now_ms();

	if (now_ms < *after_ms)
		return 0;
	*after_ms = now_ms + REPORT_PAUSE_MS;
	return 1;
}

/* Redis refuses the coupon. */
static void seen_report(struct admission *admission, struct coupon *coupon)
{
	if (!pause_is_over(admission, &coupon->report_after_ms))
		return;
	report(admission, coupon, coupon->seen_generation, coupon->seen_seq);
	copies_look_soon(admission->copies, coupon->id);
}

/* A client asks for a coupon that waits for the keeper. */
static void keeper_ask(struct admission *admission, struct coupon *coupon)
{
	if (pause_is_over(admission, &coupon->ask_after_ms))
		admission->port.ask(admission->port.redis, coupon->id);
}

void admission_report_begin(struct admission *admission)
{
	struct coupon_table *table = &admission->coupons;
	struct coupon *coupon;

	copies_look_all(admission->copies);
	TAILQ_FOREACH_REVERSE(coupon, &table->by_use, coupons, by_use)
	{
		if (coupon->is_unreported || coupon->seen_generation == 0)
			continue;
		coupon->is_unreported = 1;
		TAILQ_INSERT_TAIL(&table->unreported, coupon, next_unreported);
	}
}

int admission_report_some(struct admission *admission, size_t most)
{
	struct coupon *coupon;

	while (most-- > 0 && (coupon = TAILQ_FIRST(&admission->coupons.unreported))) {
		TAILQ_REMOVE(&admission->coupons.unreported, coupon, next_unreported);
		coupon->is_unreported = 0;
		report(admission, coupon, coupon->seen_generation, coupon->seen_seq);
	}
	return !TAILQ_EMPTY(&admission->coupons.unreported);
}

int admission_refusals_take(struct admission *admission, struct refusals *refusals)
{
	struct coupon *coupon = TAILQ_FIRST(&admission->coupons.refused);

	if (!coupon)
		return 0;
	TAILQ_REMOVE(&admission->coupons.refused, coupon, next_refused);
	coupon->is_refused = 0;
	*refusals = coupon->refusals;
	coupon->refusals = (struct refusals){ .coupon = coupon->id };
	return 1;
}

void admission_forget(struct admission *admission)
{
	admission->forgets++;
}

/*
 * Caches a refusal that is true for every user, for memory_ms, but not beyond `until_ms`.
 * `forgets`: of the admission when the question was sent; one that was sent before
 * admission_forget() may be out of date.
 */
static void remember(struct admission *admission, struct coupon *coupon, enum answer code,
		     uint64_t forgets, int64_t until_ms)
{
	int64_t memory_until_ms;

	if (code != ANSWER_NOT_FOUND && code != ANSWER_OUT_OF_STOCK && code != ANSWER_ENDED &&
	    code != ANSWER_PAUSED && code != ANSWER_NOT_STARTED)
		return;
	memory_until_ms = admission->port.now_ms() + admission->limits.memory_ms;
	coupon->memory = code;
	coupon->memory_forgets = forgets;
	coupon->memory_until_ms = memory_until_ms < until_ms ? memory_until_ms : until_ms;
}

/* Answers the requests of the call, and publishes what it accepted as one batch. */
static void decisions_take(struct admission *admission, struct call *call,
			   const struct call_reply *reply)
{
	struct coupon *coupon = call->coupon;
	struct batch *batch = NULL;

	/* Remember the highest generation and seq that Redis has named. */
	if (reply->generation > coupon->seen_generation) {
		coupon->seen_generation = reply->generation;
		coupon->seen_seq = reply->seq;
	} else if (reply->generation < coupon->seen_generation) {
		/*
		 * A reply over another connection named a later generation first: the rebuild that
		 * made it may not have counted this seq.
		 */
		report(admission, coupon, reply->generation, reply->seq);
	} else if (reply->seq > coupon->seen_seq) {
		coupon->seen_seq = reply->seq;
	}

	if (reply->body_len) {
		batch = checked(malloc(sizeof(*batch) + reply->body_len));
		*batch = (struct batch){ .ulid = call->batch,
					 .coupon = call->coupon_id,
					 .body_len = reply->body_len };
		memcpy(batch->body, reply->body, reply->body_len);
	}

	for (size_t i = 0; i < call->requests_n; i++) {
		const struct verdict *verdict = &reply->verdicts[i];
		struct request *request = call->requests[i];
		int fresh = verdict->answer == ANSWER_OK && !verdict->repeated;
		struct result result;

		if (verdict->answer != ANSWER_OK) {
			/* the script ran after the call was sent, at an unknown time */
			remember(admission, coupon, verdict->answer, call->forgets,
				 verdict->answer == ANSWER_NOT_STARTED
					 ? call->sent_ms + reply->begin_ms - reply->now_ms
					 : INT64_MAX);
			request_refuse(admission, coupon, request, verdict->answer);
			continue;
		}
		check(!fresh || batch != NULL);
		if (fresh) {
			batch->wants_outcome |= request->ack == ACK_ISSUED;
			if (request->ack != ACK_ACCEPTED)
				batch->way = BATCH_AWAITED;
		}
		result = (struct result){ .answer = ANSWER_OK,
					  .reached = ACK_ACCEPTED,
					  .slot = verdict->slot,
					  .is_replayed = verdict->repeated,
					  .receive = { .coupon = call->coupon_id,
						       .user = request->user,
						       .batch = fresh ? call->batch
								      : verdict->batch } };
		result.receive.index = fresh ? (int)batch->receives++ : verdict->index;

		admission->waiting--;
		if (!fresh) /* nothing new was taken: nothing to confirm */
			receives_end(admission, coupon, 1);
		else if (request->trace_len > 0)
			trace_context_log(request_trace(request), &result.receive, "accepted");
		if (request->ack == ACK_ACCEPTED)
			admission->port.answer(admission->port.answering, request, &result);
		else
			waiters_add(admission->waiters, request, &result.receive, verdict->slot,
				    verdict->repeated);
	}

	if (!batch)
		return;
	coupon->accepted_ms = admission->accepted_ms = admission->port.now_ms();
	batch->copy = (struct copy){ .batch = batch->ulid,
				     .coupon = batch->coupon,
				     .generation = reply->generation,
				     .seq = reply->seq,
				     .receives = batch->receives,
				     .body = batch->body,
				     .body_len = batch->body_len };
	copies_add(admission->copies, &batch->copy);
	admission->port.publish(admission->port.publisher, batch);
}

void admission_replied(struct admission *admission, struct call *call,
		       const struct call_reply *reply)
{
	struct coupon *coupon = call->coupon;

	trace_state(TRACE_CALL, call->coupon_id, "sent", "replied");
	switch (reply->state) {
	case CALL_OK:
		decisions_take(admission, call, reply);
		call_free(admission, call);
		break;
	case CALL_MISSING:
		/* Redis does not hold the coupon: the requests wait for a look-up in PostgreSQL. */
		seen_report(admission, coupon);
		for (size_t i = 0; i < call->requests_n; i++)
			STAILQ_INSERT_TAIL(&coupon->parked, call->requests[i], next);
		if (!coupon->looking) {
			coupon->looking = 1;
			coupon->looking_forgets = admission->forgets;
			admission->port.look_up(admission->port.lookup, coupon->id);
		}
		call_free(admission, call);
		break;
	case CALL_UNVERIFIED:
	case CALL_BEHIND:
		seen_report(admission, coupon);
		keeper_ask(admission, coupon);
		call_refuse(admission, call, ANSWER_UNAVAILABLE);
		break;
	}
}

void admission_not_run(struct admission *admission, struct call *call)
{
	trace_state(TRACE_CALL, call->coupon_id, "sent", "not_run");
	call_refuse(admission, call, ANSWER_UNAVAILABLE);
}

void admission_lost(struct admission *admission, struct call *call)
{
	trace_state(TRACE_CALL, call->coupon_id, "sent", "lost");
	call->coupon->doubt_until_ms = admission->port.now_ms() + ADMISSION_DOUBT_MS;
	admission->port.doubt(call->coupon_id, call->coupon->doubt_until_ms);
	call_refuse(admission, call, ANSWER_UNKNOWN);
}

void admission_looked_up(struct admission *admission, int64_t id, enum answer answer,
			 int is_published)
{
	struct coupon *coupon = coupon_table_find(&admission->coupons, id);
	struct request *request;

	check(coupon != NULL && coupon->looking);
	coupon->looking = 0;
	if (is_published)
		keeper_ask(admission, coupon);
	remember(admission, coupon, answer, coupon->looking_forgets, INT64_MAX);
	while ((request = STAILQ_FIRST(&coupon->parked))) {
		STAILQ_REMOVE_HEAD(&coupon->parked, next);
		request_refuse(admission, coupon, request, answer);
	}
}

void admission_confirmed(struct admission *admission, struct batch *batch)
{
	struct coupon *coupon = coupon_table_find(&admission->coupons, batch->coupon);

	check(coupon != NULL);
	copies_remove(admission->copies, &batch->copy);
	receives_end(admission, coupon, batch->receives);
}

int admission_in_doubt(const struct admission *admission, int64_t id)
{
	const struct coupon *coupon = coupon_table_find(&admission->coupons, id);

	if (!coupon)
		return 0;
	return has_requests(coupon) || coupon->doubt_until_ms > admission->port.now_ms();
}

void admission_refused(struct admission *admission, int64_t id)
{
	struct coupon *coupon = coupon_table_find(&admission->coupons, id);

	if (coupon)
		seen_report(admission, coupon);
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
	return admission->open - admission->waiting;
}
