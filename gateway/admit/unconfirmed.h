/*
 * The batches that RabbitMQ has not confirmed, and whether Redis still has them. A receive that was
 * answered "accepted" has two copies: in the memory of this process, and in the outbox of Redis. If
 * Redis loses its data, or a part of it, the outbox entry is written again from memory, so that the
 * receive does not depend on this process while RabbitMQ is away.
 *
 *	THERE ──a look shows that Redis lacks it──▶ LOST ──lua/restore.lua──▶ RESTORING ──▶ THERE
 *	                                              ▲                            │
 *	                                              └── refused, or no reply ◀───┘
 *
 * Redis is asked for the numbers of a coupon when a batch of it has been unconfirmed for
 * UNCONFIRMED_LOOK_MS, and again after each such time; and at once when this process reports what
 * it has seen (coupon_table.h). A FLUSHALL, for instance, ends no connection. Pure decisions: Redis
 * and the time are behind the port. The lists are those of the coupon table. One thread.
 */
#pragma once

#include "coupon/restore.h"
#include "gateway/admit/coupon_table.h"
#include "gateway/publish/batch.h"

#include <stddef.h>
#include <stdint.h>

#define UNCONFIRMED_LOOK_MS 1000
#define UNCONFIRMED_HURRY_MS 200 /* the same while the process ends */

struct unconfirmed_port {
	int64_t (*now_ms)(void); /* monotonic */
	/* Asks for the coupon. Ends in unconfirmed_looked(), within the call or later. */
	void (*look)(void *context, struct coupon *coupon);
	/*
	 * Writes messages again: lua/restore.lua. The bodies are lent during the call. Ends in
	 * unconfirmed_restored(), within the call or later.
	 */
	void (*restore)(void *context, struct coupon *coupon,
			const struct restore_message *messages, size_t n);
	void *context; /* of these two */
};

struct unconfirmed;

struct unconfirmed *unconfirmed_new(const struct unconfirmed_port *port);
void unconfirmed_free(struct unconfirmed *unconfirmed);

/* The script has just accepted the batch, and the coupon's outbox has it. The batch is lent. */
void unconfirmed_add(struct unconfirmed *unconfirmed, struct coupon *coupon, struct batch *batch);
/* RabbitMQ has it. */
void unconfirmed_remove(struct unconfirmed *unconfirmed, struct coupon *coupon,
			struct batch *batch);

/* Asks for coupons that are due, some at a time. To be called regularly. */
void unconfirmed_tick(struct unconfirmed *unconfirmed);
/* Asks for this coupon, or for all, in the next tick. */
void unconfirmed_look_soon(struct unconfirmed *unconfirmed, struct coupon *coupon);
void unconfirmed_look_all(struct unconfirmed *unconfirmed);
/* From now on it asks every UNCONFIRMED_HURRY_MS. */
void unconfirmed_hurry(struct unconfirmed *unconfirmed);

/*
 * The reply of the process of Redis with this run id; `look` is NULL: there was none. With
 * COUPON_REDIS_REPLICAS only after the replicas have what Redis had then.
 */
void unconfirmed_looked(struct unconfirmed *unconfirmed, struct coupon *coupon,
			const char *run_id, const struct restore_look *look);

void unconfirmed_restored(struct unconfirmed *unconfirmed, struct coupon *coupon,
			  enum restore_result result);

size_t unconfirmed_lost(const struct unconfirmed *unconfirmed); /* receives that Redis lacks */
/*
 * Receives that neither RabbitMQ nor Redis is known to have, where Redis is known to have what it
 * has shown since this time (by the port's clock).
 */
size_t unconfirmed_unsafe(const struct unconfirmed *unconfirmed, int64_t since_ms);
/* Calls `each` for these batches. */
void unconfirmed_each_unsafe(const struct unconfirmed *unconfirmed, int64_t since_ms,
			     void (*each)(void *context, const struct batch *batch), void *context);
