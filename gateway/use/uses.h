/*
 * What orders do with receives (hold, use, release, rollback), on its way to a worker. Pure
 * decisions: time and the publisher are behind the port. One thread.
 *
 *	submit ─▶ arrived ─(flush, once a loop turn)─▶ batch ═ publisher
 *	   │         ▲                                   └─▶ waiters ─▶ uses_answer
 *	   └─▶ waiting, for others of the user
 *	         └─▶ too long: answered busy
 *
 * Every request that is submitted is answered exactly once. Nothing is run a second time: a batch
 * is published until it is confirmed, and a worker executes each of its uses once, by its key.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/listen/request.h"
#include "gateway/publish/batch.h"
#include "gateway/publish/waiters.h"

struct uses_port {
	int64_t (*now_ms)(void); /* monotonic */
	int64_t (*wall_ms)(void);
	struct publisher *publisher;
	void (*publish)(struct publisher *publisher, struct batch *batch); /* takes the batch */
};

struct uses;

/* What is published waits in `waiters`, whose port calls uses_answer(). */
struct uses *uses_new(const struct uses_port *port, const struct config *config,
		      struct waiters *waiters);
/* Requires that every request has been answered. */
void uses_free(struct uses *uses);

/* Takes the request. It may be answered within the call. */
void uses_submit(struct uses *uses, struct request *request);
/* Publishes what was submitted. To be called once at the end of every loop turn. */
void uses_flush(struct uses *uses);

/* As in waiters_port. */
void uses_answer(struct uses *uses, struct request *request, const struct use_outcome *outcomes,
		 size_t n);
/* The batch is in the queue. */
void uses_confirmed(struct uses *uses, const struct batch *batch);

/* Whether there are so many that others should gather (load.h). Never while none waits. */
int uses_are_full(struct uses *uses);
size_t uses_waiting(const struct uses *uses);     /* requests */
size_t uses_unconfirmed(const struct uses *uses); /* receives of batches */
