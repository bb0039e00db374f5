/*
 * Clients that wait for more than "accepted": each is answered when its batch is confirmed
 * (ack=queued), when its outcome comes from a worker (ack=issued), or, at its deadline, after one
 * look-up in PostgreSQL. Pure decisions: time, look-ups and replies go through the port. One
 * thread.
 *
 * A waiter whose receive is of an earlier batch (its key was known) may have no message to wait
 * for: it is looked up at once, and again until its deadline, after waits that double. So its
 * answer takes about twice as long as the outcome at most, and one that takes long costs few
 * look-ups. An outcome that this process gets of that batch does not answer it: it may be older
 * than the request, and the receive may have been taken back meanwhile. It is looked up then,
 * without a wait.
 */
#pragma once

#include "common/message/json.h"
#include "gateway/listen/request.h"

#define WAITERS_POLL_MIN_MS 25 /* the first wait, */
#define WAITERS_POLLS 6        /* which doubles so often, less one */

struct waiters;

/* OUTCOME_UNKNOWN: PostgreSQL has none yet, or the look-up itself failed. */
enum outcome_state { OUTCOME_UNKNOWN, OUTCOME_ISSUED, OUTCOME_REJECTED };

struct waiter;

struct waiters_port {
	int64_t (*now_ms)(void);
	void *lookup;
	/* Ends in waiters_looked_up() of the same waiter, now or later. */
	void (*look_up)(void *lookup, const struct receive *receive, struct waiter *waiter);
	void (*answer)(struct request *request, const struct result *result);
};

struct waiters *waiters_new(const struct waiters_port *port, int64_t timeout_ms);
/* Requires that every waiter has been answered. */
void waiters_free(struct waiters *waiters);

/* Takes a request whose receive was just accepted; `repeated`: its key was known. */
void waiters_add(struct waiters *waiters, struct request *request, const struct receive *receive,
		 int slot, int repeated);

void waiters_confirmed(struct waiters *waiters, const struct ulid *batch);
/*
 * An outcome of one receive from a worker; `reason` is for OUTCOME_REJECTED. Unknown receives
 * are ignored.
 */
void waiters_settled(struct waiters *waiters, const struct ulid *batch, int index,
		     enum outcome_state state, const char *reason);
/* Ends a look-up, which the waiter outlives even if its outcome arrives by message meanwhile. */
void waiters_looked_up(struct waiter *waiter, enum outcome_state state, const char *reason);

/* Looks up the receives that are due. */
void waiters_tick(struct waiters *waiters);
size_t waiters_count(const struct waiters *waiters);

/*
 * A message from a worker, the outcomes of one batch:
 * {"v":1,"batch":"…","outcomes":[[0,"issued"],[1,"rejected","slot_taken"]]}.
 */
struct outcome_message {
	STAILQ_ENTRY(outcome_message) next;
	size_t len;
	char body[];
};

STAILQ_HEAD(outcome_message_list, outcome_message);

void outcome_message_list_free(struct outcome_message_list *list);

typedef void outcome_fn(void *context, const struct ulid *batch, int index,
			enum outcome_state state, const char *reason);

/*
 * Calls `each` for every outcome. 0, or -1 when the message is malformed; `each` was called for the
 * outcomes before the fault.
 */
int outcome_message_decode(struct json_arena *arena, const char *body, size_t len, outcome_fn *each,
			   void *context);

/* The constant for this reason of a rejection; "other" for an unknown one. */
const char *outcome_reason(const char *text);
