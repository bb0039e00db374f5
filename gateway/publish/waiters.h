/*
 * The batches of this process whose clients wait for a worker. A client that waits for more than
 * "accepted" is answered when its batch is confirmed (ack=queued), when the worker's reply comes
 * (ack=issued), or, at its deadline, after one look-up in PostgreSQL. A use is answered by the
 * worker's reply, or at its deadline with `unknown`: nothing is looked up, because its client asks
 * again with the same key. Pure decisions: time, look-ups and answers go through the port. One
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

#include "common/message/use.h"
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
	void *uses;
	/* Answers a use with the outcomes of its receives; 0: they are unknown at its deadline. */
	void (*answer_use)(void *uses, struct request *request, const struct use_outcome *outcomes,
			   size_t n);
};

struct waiters *waiters_new(const struct waiters_port *port, int64_t timeout_ms);
/* Requires that every waiter has been answered. */
void waiters_free(struct waiters *waiters);

/* Takes a request whose receive was just accepted; `repeated`: its key was known. */
void waiters_add(struct waiters *waiters, struct request *request, const struct receive *receive,
		 int slot, int repeated);

/* Takes a use, which is at this place of the batch. */
void waiters_add_use(struct waiters *waiters, struct request *request, const struct ulid *batch,
		     size_t place);

void waiters_confirmed(struct waiters *waiters, const struct ulid *batch);
/* Answers those that the reply names. A use of which it lacks a receive goes on waiting. */
void waiters_replied(struct waiters *waiters, const struct reply *reply);
/* Ends a look-up, which the waiter outlives even if its outcome arrives by message meanwhile. */
void waiters_looked_up(struct waiter *waiter, enum outcome_state state, const char *reason);

/* Looks up the receives that are due, and answers the uses that are. */
void waiters_tick(struct waiters *waiters);
/* Requests for receives that wait. */
size_t waiters_count(const struct waiters *waiters);
