/*
 * What orders do with receives (hold, use, release, rollback), on its way to a worker. Pure
 * decisions: time and the publisher are behind the port. One thread.
 *
 *	submit ─▶ arrived ─(flush, once a loop turn)─▶ batch ═ publisher
 *	   │         ▲                                   └─▶ waiters ─▶ use_requests_answer
 *	   └─▶ waiting, for others of the user
 *	         └─▶ too long: answered busy
 *
 * Every request that is submitted is answered exactly once. Nothing is run a second time: a batch
 * is published until it is confirmed, and a worker executes each of its uses once, by its key.
 */
#pragma once

#include "common/program/config.h"
#include "gateway/listen/request.h"
#include "gateway/publish/publisher.h"
#include "gateway/publish/waiters.h"

struct use_requests_port {
	int64_t (*now_ms)(void); /* monotonic */
	int64_t (*wall_ms)(void);
	struct publisher *publisher;
	void (*publish)(struct publisher *publisher, struct batch *batch); /* takes the batch */
};

struct use_requests;

/* What is published waits in `waiters`, whose port calls use_requests_answer(). */
struct use_requests *use_requests_new(const struct use_requests_port *port,
				      const struct config *config, struct waiters *waiters);
/* Requires that every request has been answered. */
void use_requests_free(struct use_requests *uses);

/* Takes the request. It may be answered within the call. */
void use_requests_submit(struct use_requests *uses, struct request *request);
/* Publishes what was submitted. To be called once at the end of every loop turn. */
void use_requests_flush(struct use_requests *uses);

/* As in waiters_port. */
void use_requests_answer(struct use_requests *uses, struct request *request,
			 const struct use_outcome *outcomes, size_t n);
/* The batch is in the queue. */
void use_requests_confirmed(struct use_requests *uses, const struct batch *batch);

/* Whether there are so many that others should gather (publisher.h). Never while none waits. */
int use_requests_are_full(struct use_requests *uses);
size_t use_requests_waiting(const struct use_requests *uses);     /* requests */
size_t use_requests_unconfirmed(const struct use_requests *uses); /* receives of batches */
