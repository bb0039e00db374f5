/*
 * What orders do with receives (hold, use, release, rollback), on its way to a worker and back.
 * Pure decisions: time and the publisher are behind the port. One thread.
 *
 *	submit ─▶ arrived ─(flush, once a loop turn)─▶ batch ═ publisher
 *	   │         ▲                                   ├─▶ replied: answered
 *	   └─▶ waiting, for others of the user           └─▶ deadline: answered unknown
 *	         └─▶ too long: answered busy
 *
 * Every request that is submitted is answered exactly once. Nothing is run a second time: a batch
 * is published until it is confirmed, and a worker executes each of its uses once, by its key.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/listen/request.h"
#include "gateway/publish/batch.h"

struct uses_port {
	int64_t (*now_ms)(void); /* monotonic */
	int64_t (*wall_ms)(void);
	struct publisher *publisher;
	void (*publish)(struct publisher *publisher, struct batch *batch); /* takes the batch */
};

struct uses;

struct uses *uses_new(const struct uses_port *port, const struct config *config);
/* Requires that every request has been answered. */
void uses_free(struct uses *uses);

/* Takes the request. It may be answered within the call. */
void uses_submit(struct uses *uses, struct request *request);
/* Publishes what was submitted. To be called once at the end of every loop turn. */
void uses_flush(struct uses *uses);

/* A reply of a worker. 0, or -1: it is none to uses. */
int uses_replied(struct uses *uses, const char *body, size_t len);
/* The batch is in the queue. */
void uses_confirmed(struct uses *uses, const struct batch *batch);

/* Answers those that have waited for too long. */
void uses_tick(struct uses *uses);
/* Whether there are so many that others should gather (load.h). Never while none waits. */
int uses_are_full(struct uses *uses);
size_t uses_waiting(const struct uses *uses);     /* requests */
size_t uses_unconfirmed(const struct uses *uses); /* receives of batches */
