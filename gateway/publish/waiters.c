#include "gateway/publish/waiters.h"

#include "common/check.h"
#include "common/hash.h"

#include <stdlib.h>
#include <string.h>

TAILQ_HEAD(due_list, waiter);

struct waiter {
	struct waiters *waiters;
	struct waiting_batch *batch;
	struct request *request; /* NULL: it was answered during the look-up */
	size_t place;            /* in the batch */
	struct receive receive;  /* unless it is a use, as the next ones */
	int slot;
	int repeated;
	int looking; /* a look-up has begun and not ended */
	int again;   /* the next look-up waits for nothing but the end of this one */
	int polls;   /* how many waits there were */
	int64_t deadline_ms;
	int64_t due_ms;
	struct due_list *due_in; /* NULL while looking */
	TAILQ_ENTRY(waiter) due;
	TAILQ_ENTRY(waiter) same_batch;
};

struct waiting_batch {
	struct ulid ulid;
	int is_of_uses;               /* else of receives */
	TAILQ_HEAD(, waiter) waiters; /* at least one */
	UT_hash_handle hh;
};

struct waiters {
	struct waiters_port port;
	int64_t timeout_ms;
	size_t waiting; /* requests for receives */
	struct waiting_batch *batches;
	/* Each in the order of due_ms, because each has one constant wait. */
	struct due_list fresh;                 /* wait for a reply until their deadline */
	struct due_list polled[WAITERS_POLLS]; /* wait for their next look-up */
};

struct waiters *waiters_new(const struct waiters_port *port, int64_t timeout_ms)
{
	struct waiters *waiters = checked(calloc(1, sizeof(*waiters)));

	waiters->port = *port;
	waiters->timeout_ms = timeout_ms;
	TAILQ_INIT(&waiters->fresh);
	for (int i = 0; i < WAITERS_POLLS; i++)
		TAILQ_INIT(&waiters->polled[i]);
	return waiters;
}

void waiters_free(struct waiters *waiters)
{
	check(!waiters->batches);
	free(waiters);
}

static struct waiting_batch *batch_find(struct waiters *waiters, const struct ulid *ulid)
{
	struct waiting_batch *batch;

	HASH_FIND(hh, waiters->batches, ulid, sizeof(*ulid), batch);
	return batch;
}

static struct waiter *waiter_new(struct waiters *waiters, struct request *request,
				 const struct ulid *ulid, size_t place, int is_use)
{
	struct waiter *waiter = checked(calloc(1, sizeof(*waiter)));
	struct waiting_batch *batch = batch_find(waiters, ulid);

	if (!batch) {
		batch = checked(calloc(1, sizeof(*batch)));
		batch->ulid = *ulid;
		batch->is_of_uses = is_use;
		TAILQ_INIT(&batch->waiters);
		HASH_ADD(hh, waiters->batches, ulid, sizeof(batch->ulid), batch);
	}
	check(batch->is_of_uses == is_use);
	waiter->waiters = waiters;
	waiter->batch = batch;
	waiter->request = request;
	waiter->place = place;
	waiter->deadline_ms = waiters->port.now_ms() + waiters->timeout_ms;
	TAILQ_INSERT_TAIL(&batch->waiters, waiter, same_batch);
	return waiter;
}

static void batch_leave(struct waiter *waiter)
{
	struct waiting_batch *batch = waiter->batch;

	TAILQ_REMOVE(&batch->waiters, waiter, same_batch);
	if (!TAILQ_EMPTY(&batch->waiters))
		return;
	HASH_DEL(waiter->waiters->batches, batch);
	free(batch);
}

static void due_set(struct waiter *waiter, struct due_list *list, int64_t due_ms)
{
	waiter->due_in = list;
	waiter->due_ms = due_ms;
	TAILQ_INSERT_TAIL(list, waiter, due);
}

static void due_unset(struct waiter *waiter)
{
	if (waiter->due_in)
		TAILQ_REMOVE(waiter->due_in, waiter, due);
	waiter->due_in = NULL;
}

static void look_up(const struct waiters *waiters, struct waiter *waiter)
{
	due_unset(waiter);
	waiter->looking = 1;
	waiter->again = 0;
	waiters->port.look_up(waiters->port.lookup, &waiter->receive, waiter);
}

void waiters_add(struct waiters *waiters, struct request *request, const struct receive *receive,
		 int slot, int repeated)
{
	struct waiter *waiter = waiter_new(waiters, request, &receive->batch,
					   (size_t)receive->index, 0);

	check(slot > 0);
	waiter->receive = *receive;
	waiter->slot = slot;
	waiter->repeated = repeated;
	waiters->waiting++;
	if (repeated)
		look_up(waiters, waiter);
	else
		due_set(waiter, &waiters->fresh, waiter->deadline_ms);
}

void waiters_add_use(struct waiters *waiters, struct request *request, const struct ulid *batch,
		     size_t place)
{
	struct waiter *waiter = waiter_new(waiters, request, batch, place, 1);

	due_set(waiter, &waiters->fresh, waiter->deadline_ms);
}

static void use_end(struct waiter *waiter, const struct use_outcome *outcomes, size_t n)
{
	const struct waiters_port *port = &waiter->waiters->port;

	batch_leave(waiter);
	due_unset(waiter);
	port->answer_use(port->uses, waiter->request, outcomes, n);
	free(waiter);
}

/* Answers the waiter, and forgets it when no look-up is under way. */
static void waiter_end(struct waiter *waiter, enum outcome_state state, enum request_ack reached,
		       const char *reason)
{
	struct waiters *waiters = waiter->waiters;
	struct result result = { .answer = ANSWER_UNKNOWN,
				 .slot = waiter->slot,
				 .is_replayed = waiter->repeated,
				 .receive = waiter->receive };

	if (state == OUTCOME_ISSUED) {
		result.answer = ANSWER_OK;
		result.reached = reached;
	} else if (state == OUTCOME_REJECTED) {
		result.answer = ANSWER_REJECTED;
		result.reason = reason;
	}
	batch_leave(waiter);
	waiters->waiting--;
	waiters->port.answer(waiter->request, &result);
	waiter->request = NULL;
	if (waiter->looking)
		return;
	due_unset(waiter);
	free(waiter);
}

void waiters_confirmed(struct waiters *waiters, const struct ulid *ulid)
{
	struct waiting_batch *batch = batch_find(waiters, ulid);
	struct waiter *waiter, *next;

	/* The end of the last waiter frees the batch, so `next` is read before. */
	for (waiter = batch ? TAILQ_FIRST(&batch->waiters) : NULL; waiter; waiter = next) {
		next = TAILQ_NEXT(waiter, same_batch);
		if (waiter->request->ack == ACK_QUEUED && !waiter->repeated)
			waiter_end(waiter, OUTCOME_ISSUED, ACK_QUEUED, NULL);
	}
}

void waiters_replied(struct waiters *waiters, const struct reply *reply)
{
	struct waiting_batch *batch = batch_find(waiters, &reply->batch);
	unsigned short behind[RECEIVE_INDEX_MAX + 1] = { 0 }; /* 0: it is not in the reply */
	struct waiter *waiter, *next;

	if (!batch || batch->is_of_uses != reply->is_to_uses)
		return;
	for (size_t i = reply->outcomes_n; i-- > 0;)
		behind[reply->is_to_uses ? reply->uses[i].use : (size_t)reply->receives[i].index] =
			(unsigned short)(i + 1);

	for (waiter = TAILQ_FIRST(&batch->waiters); waiter; waiter = next) {
		size_t end = behind[waiter->place], first;
		const struct receive_outcome *outcome;

		next = TAILQ_NEXT(waiter, same_batch); /* the batch may end with this one */
		if (end == 0)
			continue;
		first = end - 1;
		if (reply->is_to_uses) {
			while (end < reply->outcomes_n &&
			       reply->uses[end].use == reply->uses[first].use)
				end++;
			if (end - first == waiter->request->use->use.receives_n)
				use_end(waiter, &reply->uses[first], end - first);
			continue;
		}
		outcome = &reply->receives[first];
		if (!waiter->repeated)
			waiter_end(waiter, outcome->reason ? OUTCOME_REJECTED : OUTCOME_ISSUED,
				   ACK_ISSUED, outcome->reason);
		else if (waiter->looking)
			waiter->again = 1;
		else
			look_up(waiters, waiter);
	}
}

void waiters_looked_up(struct waiter *waiter, enum outcome_state state, const char *reason)
{
	struct waiters *waiters = waiter->waiters;
	int64_t now_ms = waiters->port.now_ms(), wait_ms;
	int poll;

	waiter->looking = 0;
	if (!waiter->request) {
		free(waiter);
		return;
	}
	if (state != OUTCOME_UNKNOWN || now_ms >= waiter->deadline_ms) {
		waiter_end(waiter, state, ACK_ISSUED, reason);
		return;
	}
	check(waiter->repeated);
	if (waiter->again) {
		look_up(waiters, waiter);
		return;
	}
	/* near the deadline shorter waits again, so that the last look-up is at it */
	poll = waiter->polls < WAITERS_POLLS - 1 ? waiter->polls++ : WAITERS_POLLS - 1;
	while ((wait_ms = WAITERS_POLL_MIN_MS << poll) > waiter->deadline_ms - now_ms && poll > 0)
		poll--;
	due_set(waiter, &waiters->polled[poll], now_ms + wait_ms);
}

void waiters_tick(struct waiters *waiters)
{
	int64_t now_ms = waiters->port.now_ms();
	struct due_list *list;
	struct waiter *waiter;

	for (int i = 0; i <= WAITERS_POLLS; i++) {
		list = i < WAITERS_POLLS ? &waiters->polled[i] : &waiters->fresh;
		while ((waiter = TAILQ_FIRST(list)) && waiter->due_ms <= now_ms) {
			if (waiter->batch->is_of_uses)
				use_end(waiter, NULL, 0);
			else
				look_up(waiters, waiter);
		}
	}
}

size_t waiters_count(const struct waiters *waiters)
{
	return waiters->waiting;
}
