#include "gateway/use/uses.h"

#include "common/check.h"
#include "common/fault.h"
#include "common/hash.h"
#include "gateway/metrics.h"
#include "gateway/publish/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INFLIGHT_PART 4 /* of what a process may have in flight: the rest is left to issuing */

/*
 * Operations on the receives of one user of a coupon. Those on one receive wait for each other, and
 * others in the same transaction with them: so only some are under way.
 */
struct crowd {
	uint64_t of;
	size_t operations;           /* under way */
	struct request_list waiting; /* for these; none unless they are CROWD_MAX */
	UT_hash_handle hh;
};

#define CROWD_MAX 16

struct uses {
	struct uses_port port;
	int64_t timeout_ms;
	size_t inflight_max;
	struct waiters *waiters;
	struct request_list arrived;
	size_t waiting; /* requests that are not answered */
	size_t unconfirmed;
	struct load load;
	struct crowd *crowds;
	struct use_message message; /* that is being made */
	char text[USE_MESSAGE_SIZE];
};

struct uses *uses_new(const struct uses_port *port, const struct config *config,
		      struct waiters *waiters)
{
	struct uses *uses = checked(calloc(1, sizeof(*uses)));
	size_t part = (size_t)config->inflight_max / INFLIGHT_PART;

	uses->port = *port;
	uses->timeout_ms = config->issued_timeout_ms;
	uses->inflight_max = part > 0 ? part : 1;
	uses->waiters = waiters;
	STAILQ_INIT(&uses->arrived);
	return uses;
}

void uses_free(struct uses *uses)
{
	check(uses->waiting == 0 && !uses->crowds);
	free(uses);
}

/* The first receive that is not of the user whom the request names; NULL: there is none. */
static const struct receive *foreign_receive(const struct request *request)
{
	const struct request_use *use = request->use;

	for (size_t i = 0; i < use->use.receives_n && request->user.len > 0; i++)
		if (!user_id_same(&use->receives[i].user, &request->user))
			return &use->receives[i];
	return NULL;
}

static uint64_t crowd_of(const struct receive *receive)
{
	char bytes[sizeof(receive->coupon) + sizeof(receive->user.text)];

	memcpy(bytes, &receive->coupon, sizeof(receive->coupon));
	memcpy(bytes + sizeof(receive->coupon), receive->user.text, receive->user.len);
	return hash_keyed(bytes, sizeof(receive->coupon) + receive->user.len);
}

/* The crowds of the request's receives, each once. Returns how many there are. */
static size_t crowds_of(const struct request *request, uint64_t of[USE_RECEIVES_MAX])
{
	const struct request_use *use = request->use;
	size_t n = 0;

	for (size_t i = 0; i < use->use.receives_n; i++) {
		size_t same = 0;

		of[n] = crowd_of(&use->receives[i]);
		while (of[same] != of[n])
			same++;
		n += same == n;
	}
	return n;
}

static struct crowd *crowd_find(const struct uses *uses, uint64_t of)
{
	struct crowd *crowd;

	HASH_FIND(hh, uses->crowds, &of, sizeof(of), crowd);
	return crowd;
}

static struct crowd *crowd_new(struct uses *uses, uint64_t of)
{
	struct crowd *crowd = checked(calloc(1, sizeof(*crowd)));

	crowd->of = of;
	STAILQ_INIT(&crowd->waiting);
	HASH_ADD(hh, uses->crowds, of, sizeof(crowd->of), crowd);
	return crowd;
}

/* Its operation is under way, as soon as there is room for it. */
static void request_enter(struct uses *uses, struct request *request)
{
	uint64_t of[USE_RECEIVES_MAX];
	size_t n = crowds_of(request, of);
	struct crowd *crowd;

	for (size_t i = 0; i < n; i++) {
		crowd = crowd_find(uses, of[i]);
		if (crowd && crowd->operations == CROWD_MAX) {
			STAILQ_INSERT_TAIL(&crowd->waiting, request, next);
			return;
		}
	}
	for (size_t i = 0; i < n; i++) {
		crowd = crowd_find(uses, of[i]);
		if (!crowd)
			crowd = crowd_new(uses, of[i]);
		crowd->operations++;
	}
	STAILQ_INSERT_TAIL(&uses->arrived, request, next);
}

/* Requests that have waited for others as long as for a worker are not begun any more. */
static void crowd_serve(struct uses *uses, struct crowd *crowd)
{
	int64_t begun_us = (uses->port.now_ms() - uses->timeout_ms) * 1000;
	struct request *request;

	while (crowd->operations < CROWD_MAX && (request = STAILQ_FIRST(&crowd->waiting))) {
		STAILQ_REMOVE_HEAD(&crowd->waiting, next);
		if (request->begun_us > begun_us) {
			request_enter(uses, request);
			continue;
		}
		uses->waiting--;
		request_fail(request, ANSWER_BUSY, NULL);
	}
}

/* Its operation is no longer under way. */
static void request_leave(struct uses *uses, const struct request *request)
{
	uint64_t of[USE_RECEIVES_MAX];
	size_t n = crowds_of(request, of);

	for (size_t i = 0; i < n; i++) {
		struct crowd *crowd = crowd_find(uses, of[i]);

		crowd->operations--;
		crowd_serve(uses, crowd);
		if (crowd->operations > 0)
			continue;
		HASH_DEL(uses->crowds, crowd);
		free(crowd);
	}
}

void uses_submit(struct uses *uses, struct request *request)
{
	const struct receive *foreign = foreign_receive(request);

	if (foreign) {
		const struct use_outcome outcome = { .result = USE_NOT_FOUND, .receive = *foreign };

		request_answer_use(request, &outcome, 1);
		return;
	}
	if (uses->waiting >= uses->inflight_max || uses->unconfirmed >= uses->inflight_max) {
		request_fail(request, ANSWER_BUSY, NULL);
		return;
	}
	uses->waiting++;
	request_enter(uses, request);
}

_Static_assert(OP_USE - OP_HOLD == USE_USE && OP_RELEASE - OP_HOLD == USE_RELEASE &&
		       OP_ROLLBACK - OP_HOLD == USE_ROLLBACK,
	       "the operations are in the order of the actions");

/* Adds the trace of the use that is appended next. */
static void trace_add(struct use_message *message, const struct request *request)
{
	struct message_traces *traces = &message->traces;

	if (request->trace_len == 0 || traces->n == MESSAGE_TRACES_MAX)
		return;
	traces->list[traces->n].index = message->uses_n;
	strcpy(traces->list[traces->n++].text, request_trace(request));
}

/* Appends what is asked for. One without a key gets the only one that it can have. */
static void message_add(struct use_message *message, const struct request *request)
{
	struct use *use = &message->uses[message->uses_n];
	char ulid[ULID_SIZE];

	*use = request->use->use;
	use->action = (enum use_action)(request->op - OP_HOLD);
	if (use->action != USE_HOLD)
		use->ttl_s = 0;
	if (!*use->key)
		snprintf(use->key, sizeof(use->key), "%s.%zu", ulid_format(&message->batch, ulid),
			 message->uses_n);
	if (request->by && !*use->by)
		strcpy(use->by, request->by->id);
	trace_add(message, request);
	memcpy(&message->receives[message->receives_n], request->use->receives,
	       use->receives_n * sizeof(message->receives[0]));
	message->uses_n++;
	message->receives_n += use->receives_n;
}

static void batch_publish(struct uses *uses)
{
	const struct use_message *message = &uses->message;
	size_t len = use_message_write(message, uses->text);
	struct batch *batch = checked(malloc(sizeof(*batch) + len));

	*batch = (struct batch){ .ulid = message->batch,
				 .way = BATCH_USES,
				 .receives = message->receives_n,
				 .wants_outcome = 1,
				 .body_len = len };
	memcpy(batch->body, uses->text, len);
	uses->unconfirmed += batch->receives;
	uses->load.receives += batch->receives;
	metrics_add(METRIC_USES, (int64_t)message->uses_n);
	fault_point(FAULT_GATEWAY_BEFORE_USES);
	uses->port.publish(uses->port.publisher, batch);
}

/* The requests at the front that go in one message. */
static void batch_send(struct uses *uses)
{
	struct use_message *message = &uses->message;
	struct request *request;

	message->at_ms = uses->port.wall_ms();
	ulid_new(&message->batch, message->at_ms);
	message->uses_n = message->receives_n = message->traces.n = 0;
	while ((request = STAILQ_FIRST(&uses->arrived)) &&
	       message->receives_n + request->use->use.receives_n <= MESSAGE_RECEIVES_MAX) {
		STAILQ_REMOVE_HEAD(&uses->arrived, next);
		waiters_add_use(uses->waiters, request, &message->batch, message->uses_n);
		message_add(message, request);
	}
	batch_publish(uses);
}

void uses_flush(struct uses *uses)
{
	while (!STAILQ_EMPTY(&uses->arrived))
		batch_send(uses);
}

void uses_answer(struct uses *uses, struct request *request, const struct use_outcome *outcomes,
		 size_t n)
{
	uses->waiting--;
	request_leave(uses, request);
	if (n > 0)
		request_answer_use(request, outcomes, n);
	else
		request_fail(request, ANSWER_UNKNOWN, NULL);
}

void uses_confirmed(struct uses *uses, const struct batch *batch)
{
	check(uses->unconfirmed >= batch->receives);
	fault_point(FAULT_GATEWAY_AFTER_USES);
	uses->unconfirmed -= batch->receives;
}

int uses_are_full(struct uses *uses)
{
	return uses->waiting > 0 && load_is_full(&uses->load, uses->port.now_ms());
}

size_t uses_waiting(const struct uses *uses)
{
	return uses->waiting;
}

size_t uses_unconfirmed(const struct uses *uses)
{
	return uses->unconfirmed;
}
