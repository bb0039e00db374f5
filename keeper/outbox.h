/*
 * Sends the messages in a coupon's outbox again that are older than a limit: their gateway did not
 * get a confirm for them. The keeper removes an entry only when RabbitMQ has confirmed it. The
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
 * Sends the due entries of one coupon's outbox, until about `until_ms`; the next step sends the
 * rest. 0, or -1 when the lock or Redis is lost. `stop` is checked between the steps.
 */
int keeper_outbox_step(struct keeper_outbox *outbox, int64_t coupon, int64_t until_ms,
		       struct keeper_lock *lock, const atomic_int *stop);

/*
 * The time at which the oldest entry read since the last call was accepted, by Redis' clock; 0:
 * no entry was read.
 */
int64_t keeper_outbox_oldest_take(struct keeper_outbox *outbox);

/*
 * The AMQP connection. While the keeper waits, it polls and reads it, which keeps heartbeats going.
 */
struct rabbit_link *keeper_outbox_link(struct keeper_outbox *outbox);

#endif
