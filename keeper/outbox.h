/*
 * Sends again what a gateway accepted and never got confirmed: entries of a coupon's outbox that
 * are older than a limit. An entry leaves the outbox only when RabbitMQ has confirmed it. The
 * keeper's thread.
 */
#ifndef KEEPER_OUTBOX_H
#define KEEPER_OUTBOX_H

#include "keeper/lock.h"
#include "common/rabbit/publisher.h"

#include <stdatomic.h>

struct keeper_outbox;

struct keeper_outbox *keeper_outbox_new(const char *amqp_url, struct redis_client *redis,
					int64_t resend_after_ms);
void keeper_outbox_free(struct keeper_outbox *outbox);

/*
 * One coupon's outbox, until about `until_ms`; the next step sends what is left. 0, or -1 when the
 * lock or Redis is lost. `stop` is looked at between the steps.
 */
int keeper_outbox_step(struct keeper_outbox *outbox, int64_t coupon, int64_t until_ms,
		       struct keeper_lock *lock, const atomic_int *stop);

/*
 * When the oldest entry was accepted that was looked at since the last call, by Redis' clock; 0:
 * there was none.
 */
int64_t keeper_outbox_oldest_take(struct keeper_outbox *outbox);

/*
 * The AMQP connection: for poll() while the keeper waits, and to be read then, for its heartbeats.
 */
struct rabbit_link *keeper_outbox_link(struct keeper_outbox *outbox);

#endif
