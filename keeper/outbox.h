/*
 * Sends receives of a coupon to PostgreSQL again, as resend.h decides. Messages of its outbox that
 * RabbitMQ may have lost are published again; they stay in the outbox until a worker has settled
 * them. Receives that have a slot in Redis, and whose outbox entry was removed before they were
 * settled, are settled from their slots. What is in the dead-letter queue, or was dropped from it,
 * is the operator's, and is left alone. The keeper's thread; waits for no connection to RabbitMQ.
 */
#pragma once

#include "common/rabbit/rabbit_publisher.h"
#include "keeper/context.h"

struct keeper_outbox;

struct keeper_outbox *keeper_outbox_new(const char *amqp_url, struct keeper_context *context,
					int64_t resend_after_ms);
void keeper_outbox_free(struct keeper_outbox *outbox);

/* After an election: nothing of an earlier term of office is true any more. */
void keeper_outbox_restart(struct keeper_outbox *outbox);
/* A round begins. */
void keeper_outbox_round(struct keeper_outbox *outbox);

/*
 * Publishes or settles what is due of one coupon, until about `until_ms`; the next step goes on. 0,
 * or -1 when the lock, Redis or PostgreSQL is lost.
 */
int keeper_outbox_step(struct keeper_outbox *outbox, const struct coupon_row *row,
		       const struct coupon_look *look, int64_t until_ms);

/*
 * The time at which the oldest message read since the last call was accepted, by Redis' clock; 0:
 * no message was read.
 */
int64_t keeper_outbox_oldest_take(struct keeper_outbox *outbox);

/*
 * The AMQP connection. While the keeper waits, it polls and reads it, which keeps heartbeats going.
 */
struct rabbit_link *keeper_outbox_link(struct keeper_outbox *outbox);
