/*
 * Clients that wait for more than "accepted": each is answered when its batch is confirmed
 * (ack=queued), when its outcome comes from a worker (ack=issued), or, at its deadline, after one
 * look-up in PostgreSQL. Pure decisions: time, look-ups and replies go through the port. One
 * thread.
 *
 * A waiter whose receive is of an earlier batch (its key was known) has no message to wait for: it
 * is looked up at once, and again every OUTCOMES_POLL_MS until its deadline.
 */
#ifndef GATEWAY_PUBLISH_OUTCOMES_H
#define GATEWAY_PUBLISH_OUTCOMES_H

#include "gateway/listen/reply.h"

#define OUTCOMES_POLL_MS 200

struct outcomes;

/* What PostgreSQL says of a receive. */
enum outcome_state {
	OUTCOME_NONE, /* nothing yet */
	OUTCOME_ISSUED,
	OUTCOME_REJECTED,
	OUTCOME_UNKNOWN /* the look-up itself failed */
};

struct outcomes_port {
	void *context;
	int64_t (*now_ms)(void *context);
	/* Ends in outcomes_looked_up() with the same token, now or later. */
	void (*look_up)(void *context, const struct receive *receive, uint64_t token);
	void (*answer)(void *context, struct request *request, const struct result *result);
};

struct outcomes *outcomes_new(const struct outcomes_port *port, int64_t timeout_ms);
/* Every waiter must have been answered. */
void outcomes_free(struct outcomes *outcomes);

/* Takes a request whose receive was just accepted; `repeated`: its key was known. */
void outcomes_wait(struct outcomes *outcomes, struct request *request,
		   const struct receive *receive, int slot, int repeated);

void outcomes_confirmed(struct outcomes *outcomes, const struct ulid *batch);
/*
 * A worker's word on one receive; `reason` counts for OUTCOME_REJECTED. Unknown receives are
 * ignored.
 */
void outcomes_settled(struct outcomes *outcomes, const struct ulid *batch, int index,
		      enum outcome_state state, const char *reason);
void outcomes_looked_up(struct outcomes *outcomes, uint64_t token, enum outcome_state state,
			const char *reason);

/* Looks up those whose time has come. */
void outcomes_tick(struct outcomes *outcomes);
size_t outcomes_waiting(const struct outcomes *outcomes);

#endif
