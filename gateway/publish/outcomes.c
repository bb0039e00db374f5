#include "gateway/publish/outcomes.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct waiter {
	uint64_t token;
	struct request *request;
	struct receive receive;
	int slot;
	int repeated;
	int looking; /* a look-up is under way */
	int64_t deadline_ms;
	TAILQ_ENTRY(waiter) due;       /* in `fresh` or `polled`, unless looking */
	LIST_ENTRY(waiter) same_batch; /* unless repeated */
	UT_hash_handle hh;             /* by token, while looking */
	int64_t due_ms;
};

TAILQ_HEAD(due_list, waiter);

/* The waiters of one batch of this gateway. */
struct waiting_batch {
	struct ulid ulid;
	LIST_HEAD(, waiter) waiters;
	UT_hash_handle hh;
};

struct outcomes {
	struct outcomes_port port;
	int64_t timeout_ms;
	uint64_t next_token;
	size_t waiting;
	struct waiting_batch *batches;
	struct waiter *looking;
	/* Each in the order of due_ms, because each has one constant wait. */
	struct due_list fresh;  /* wait for a word until their deadline */
	struct due_list polled; /* are looked up every OUTCOMES_POLL_MS */
};

struct outcomes *outcomes_new(const struct outcomes_port *port, int64_t timeout_ms)
{
	struct outcomes *outcomes = calloc(1, sizeof(*outcomes));

	check(outcomes != NULL);
	outcomes->port = *port;
	outcomes->timeout_ms = timeout_ms;
	TAILQ_INIT(&outcomes->fresh);
	TAILQ_INIT(&outcomes->polled);
	return outcomes;
}

void outcomes_free(struct outcomes *outcomes)
{
	if (!outcomes)
		return;
	check(outcomes->waiting == 0);
	free(outcomes);
}

static struct waiting_batch *batch_find(struct outcomes *outcomes, const struct ulid *ulid)
{
	struct waiting_batch *batch;

	HASH_FIND(hh, outcomes->batches, ulid, sizeof(*ulid), batch);
	return batch;
}

static void batch_join(struct outcomes *outcomes, struct waiter *waiter)
{
	struct waiting_batch *batch = batch_find(outcomes, &waiter->receive.batch);

	if (!batch) {
		batch = calloc(1, sizeof(*batch));
		check(batch != NULL);
		batch->ulid = waiter->receive.batch;
		HASH_ADD(hh, outcomes->batches, ulid, sizeof(batch->ulid), batch);
	}
	LIST_INSERT_HEAD(&batch->waiters, waiter, same_batch);
}

static void batch_leave(struct outcomes *outcomes, struct waiter *waiter)
{
	struct waiting_batch *batch = batch_find(outcomes, &waiter->receive.batch);

	LIST_REMOVE(waiter, same_batch);
	if (LIST_EMPTY(&batch->waiters)) {
		HASH_DEL(outcomes->batches, batch);
		free(batch);
	}
}

static struct due_list *due_list_of(struct outcomes *outcomes, const struct waiter *waiter)
{
	return waiter->repeated ? &outcomes->polled : &outcomes->fresh;
}

static void look_up(struct outcomes *outcomes, struct waiter *waiter)
{
	waiter->looking = 1;
	HASH_ADD(hh, outcomes->looking, token, sizeof(waiter->token), waiter);
	outcomes->port.look_up(outcomes->port.context, &waiter->receive, waiter->token);
}

void outcomes_wait(struct outcomes *outcomes, struct request *request,
		   const struct receive *receive, int slot, int repeated)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));

	check(waiter != NULL && slot > 0);
	waiter->token = ++outcomes->next_token;
	waiter->request = request;
	waiter->receive = *receive;
	waiter->slot = slot;
	waiter->repeated = repeated;
	waiter->deadline_ms = waiter->due_ms = outcomes->port.now_ms(outcomes->port.context) +
					       outcomes->timeout_ms;
	outcomes->waiting++;
	if (repeated) {
		look_up(outcomes, waiter);
		return;
	}
	batch_join(outcomes, waiter);
	TAILQ_INSERT_TAIL(&outcomes->fresh, waiter, due);
}

/* Answers the waiter and forgets it. */
static void waiter_end(struct outcomes *outcomes, struct waiter *waiter, enum outcome_state state,
		       enum request_ack reached, const char *reason)
{
	struct result result = { .answer = ANSWER_UNKNOWN,
				 .slot = waiter->slot,
				 .receive = waiter->receive };

	if (state == OUTCOME_ISSUED) {
		result.answer = ANSWER_OK;
		result.reached = reached;
	} else if (state == OUTCOME_REJECTED) {
		result.answer = ANSWER_REJECTED;
		result.reason = reason;
	}
	if (waiter->looking)
		HASH_DEL(outcomes->looking, waiter);
	else
		TAILQ_REMOVE(due_list_of(outcomes, waiter), waiter, due);
	if (!waiter->repeated)
		batch_leave(outcomes, waiter);
	outcomes->waiting--;
	outcomes->port.answer(outcomes->port.context, waiter->request, &result);
	free(waiter);
}

void outcomes_confirmed(struct outcomes *outcomes, const struct ulid *ulid)
{
	struct waiting_batch *batch = batch_find(outcomes, ulid);
	struct waiter *waiter, *next;

	/* The last waiter's end frees the batch: `next` is read before. */
	for (waiter = batch ? LIST_FIRST(&batch->waiters) : NULL; waiter; waiter = next) {
		next = LIST_NEXT(waiter, same_batch);
		if (waiter->request->ack == ACK_QUEUED)
			waiter_end(outcomes, waiter, OUTCOME_ISSUED, ACK_QUEUED, NULL);
	}
}

void outcomes_settled(struct outcomes *outcomes, const struct ulid *ulid, int index,
		      enum outcome_state state, const char *reason)
{
	struct waiting_batch *batch = batch_find(outcomes, ulid);
	struct waiter *waiter, *next;

	check(state == OUTCOME_ISSUED || state == OUTCOME_REJECTED);
	for (waiter = batch ? LIST_FIRST(&batch->waiters) : NULL; waiter; waiter = next) {
		next = LIST_NEXT(waiter, same_batch);
		if (waiter->receive.index == index)
			waiter_end(outcomes, waiter, state, ACK_ISSUED, reason);
	}
}

void outcomes_looked_up(struct outcomes *outcomes, uint64_t token, enum outcome_state state,
			const char *reason)
{
	int64_t now_ms = outcomes->port.now_ms(outcomes->port.context);
	struct waiter *waiter;

	HASH_FIND(hh, outcomes->looking, &token, sizeof(token), waiter);
	if (!waiter)
		return; /* its word came while it was looked up */
	if (state == OUTCOME_ISSUED || state == OUTCOME_REJECTED || now_ms >= waiter->deadline_ms) {
		waiter_end(outcomes, waiter, state, ACK_ISSUED, reason);
		return;
	}
	check(waiter->repeated);
	HASH_DEL(outcomes->looking, waiter);
	waiter->looking = 0;
	waiter->due_ms = now_ms + OUTCOMES_POLL_MS;
	TAILQ_INSERT_TAIL(&outcomes->polled, waiter, due);
}

void outcomes_tick(struct outcomes *outcomes)
{
	int64_t now_ms = outcomes->port.now_ms(outcomes->port.context);
	struct due_list *lists[] = { &outcomes->fresh, &outcomes->polled };
	struct waiter *waiter;

	for (int i = 0; i < 2; i++) {
		while ((waiter = TAILQ_FIRST(lists[i])) && waiter->due_ms <= now_ms) {
			TAILQ_REMOVE(lists[i], waiter, due);
			look_up(outcomes, waiter);
		}
	}
}

size_t outcomes_waiting(const struct outcomes *outcomes)
{
	return outcomes->waiting;
}
