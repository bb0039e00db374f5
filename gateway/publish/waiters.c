#include "gateway/publish/waiters.h"

#include "common/message/answer.h"
#include "common/check.h"
#include "common/hash.h"

#include <stdlib.h>
#include <string.h>

TAILQ_HEAD(due_list, waiter);

struct waiter {
	struct waiters *waiters;
	struct request *request; /* NULL: it was answered during the look-up */
	struct receive receive;
	int slot;
	int repeated;
	int looking; /* a look-up has begun and not ended */
	int again;   /* the next look-up waits for nothing but the end of this one */
	int polls;   /* how many waits there were */
	int64_t deadline_ms;
	int64_t due_ms;
	struct due_list *due_in; /* NULL while looking */
	TAILQ_ENTRY(waiter) due;
	LIST_ENTRY(waiter) same_batch;
};

/* The waiters of one batch of this gateway. */
struct waiting_batch {
	struct ulid ulid;
	LIST_HEAD(, waiter) waiters;
	UT_hash_handle hh;
};

struct waiters {
	struct waiters_port port;
	int64_t timeout_ms;
	size_t waiting;
	struct waiting_batch *batches;
	/* Each in the order of due_ms, because each has one constant wait. */
	struct due_list fresh;                 /* wait for a message until their deadline */
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
	check(waiters->waiting == 0);
	free(waiters);
}

static struct waiting_batch *batch_find(struct waiters *waiters, const struct ulid *ulid)
{
	struct waiting_batch *batch;

	HASH_FIND(hh, waiters->batches, ulid, sizeof(*ulid), batch);
	return batch;
}

static void batch_join(struct waiters *waiters, struct waiter *waiter)
{
	struct waiting_batch *batch = batch_find(waiters, &waiter->receive.batch);

	if (!batch) {
		batch = checked(calloc(1, sizeof(*batch)));
		batch->ulid = waiter->receive.batch;
		HASH_ADD(hh, waiters->batches, ulid, sizeof(batch->ulid), batch);
	}
	LIST_INSERT_HEAD(&batch->waiters, waiter, same_batch);
}

static void batch_leave(struct waiters *waiters, struct waiter *waiter)
{
	struct waiting_batch *batch = batch_find(waiters, &waiter->receive.batch);

	LIST_REMOVE(waiter, same_batch);
	if (LIST_EMPTY(&batch->waiters)) {
		HASH_DEL(waiters->batches, batch);
		free(batch);
	}
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
	struct waiter *waiter = calloc(1, sizeof(*waiter));

	check(waiter != NULL && slot > 0);
	waiter->waiters = waiters;
	waiter->request = request;
	waiter->receive = *receive;
	waiter->slot = slot;
	waiter->repeated = repeated;
	waiter->deadline_ms = waiters->port.now_ms() + waiters->timeout_ms;
	waiters->waiting++;
	batch_join(waiters, waiter);
	if (repeated)
		look_up(waiters, waiter);
	else
		due_set(waiter, &waiters->fresh, waiter->deadline_ms);
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
	batch_leave(waiters, waiter);
	waiters->waiting--;
	waiters->port.answer(waiter->request, &result);
	waiter->request = NULL;
	if (waiter->looking)
		return;
	due_unset(waiter);
	free(waiter);
}

/*
 * Ends those of a batch whose receive has this index; -1: those that wait for ACK_QUEUED. A
 * repeated one waits for its outcome in any case, which is looked up.
 */
static void batch_end(struct waiters *waiters, const struct ulid *ulid, int index,
		      enum outcome_state state, enum request_ack reached, const char *reason)
{
	struct waiting_batch *batch = batch_find(waiters, ulid);
	struct waiter *waiter, *next;

	/* The end of the last waiter frees the batch, so `next` is read before. */
	for (waiter = batch ? LIST_FIRST(&batch->waiters) : NULL; waiter; waiter = next) {
		next = LIST_NEXT(waiter, same_batch);
		if (index < 0 ? waiter->request->ack != ACK_QUEUED : waiter->receive.index != index)
			continue;
		if (!waiter->repeated)
			waiter_end(waiter, state, reached, reason);
		else if (index >= 0 && waiter->looking)
			waiter->again = 1;
		else if (index >= 0)
			look_up(waiters, waiter);
	}
}

void waiters_confirmed(struct waiters *waiters, const struct ulid *ulid)
{
	batch_end(waiters, ulid, -1, OUTCOME_ISSUED, ACK_QUEUED, NULL);
}

void waiters_settled(struct waiters *waiters, const struct ulid *ulid, int index,
		     enum outcome_state state, const char *reason)
{
	check(index >= 0 && state != OUTCOME_UNKNOWN);
	batch_end(waiters, ulid, index, state, ACK_ISSUED, reason);
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
		while ((waiter = TAILQ_FIRST(list)) && waiter->due_ms <= now_ms)
			look_up(waiters, waiter);
	}
}

size_t waiters_count(const struct waiters *waiters)
{
	return waiters->waiting;
}

void outcome_message_list_free(struct outcome_message_list *list)
{
	struct outcome_message *message;

	while ((message = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(message);
	}
}

const char *outcome_reason(const char *text)
{
	enum reason reason = reason_find(text);

	return reason ? reason_text(reason) : "other";
}

static int outcome_decode(const cJSON *item, int64_t *index, enum outcome_state *state,
			  const char **reason)
{
	const cJSON *first = cJSON_IsArray(item) ? item->child : NULL,
		    *second = first ? first->next : NULL;

	if (!second || json_integer(first, 0, RECEIVE_INDEX_MAX, index) || !cJSON_IsString(second))
		return -1;
	*reason = NULL;
	*state = OUTCOME_ISSUED;
	if (strcmp(second->valuestring, "issued") == 0)
		return 0;
	if (strcmp(second->valuestring, "rejected") != 0 || !cJSON_IsString(second->next))
		return -1;
	*state = OUTCOME_REJECTED;
	*reason = outcome_reason(second->next->valuestring);
	return 0;
}

int outcome_message_decode(struct json_arena *arena, const char *body, size_t len, outcome_fn *each,
			   void *context)
{
	const char *error, *reason;
	const cJSON *root = json_parse(arena, body, len, &error), *item, *batch, *outcomes;
	enum outcome_state state;
	struct ulid ulid;
	int64_t index;

	batch = root ? cJSON_GetObjectItemCaseSensitive(root, "batch") : NULL;
	outcomes = root ? cJSON_GetObjectItemCaseSensitive(root, "outcomes") : NULL;
	if (!cJSON_IsString(batch) ||
	    ulid_parse(&ulid, batch->valuestring, strlen(batch->valuestring)) ||
	    !cJSON_IsArray(outcomes))
		return -1;
	cJSON_ArrayForEach(item, outcomes)
	{
		if (outcome_decode(item, &index, &state, &reason))
			return -1;
		each(context, &ulid, (int)index, state, reason);
	}
	return 0;
}
