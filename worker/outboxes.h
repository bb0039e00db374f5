/*
 * What the worker writes to Redis about messages that have come to their end: a thread removes
 * settled batches from the outboxes, and adds dead-lettered ones to the set of batches that the
 * keeper does not publish again. The worker's loop only appends to lists, and never waits.
 *
 * What PostgreSQL may lose when it is put back to an earlier moment is recorded first: no batch is
 * removed before the number of its transaction has been copied (common/changes.h); and with the
 * removal the time of the batch and its rejected receives.
 *
 * Nothing is removed while Redis follows another server than the one that has settled it.
 *
 * While Redis cannot be reached, batches are kept for it, OUTBOXES_HELD_MAX of each kind, where a
 * rejected receive counts as one more. A batch that does not fit, or whose removal Redis refuses,
 * is forgotten and counted: the keeper publishes it again, and it is settled again, which changes
 * nothing, or dead-lettered again.
 */
#pragma once

#include "common/changes.h"
#include "common/message/receive.h"
#include "coupon/copies.h"

#include <stddef.h>
#include <stdint.h>

#define OUTBOXES_HELD_MAX 65536
#define OUTBOXES_STOP_MS 1000 /* no call to Redis begins so long after outboxes_stop() */

struct outboxes;

/*
 * Starts the thread, which connects at its first batch. A malformed URL ends the process. A batch
 * waits `gather_ms` for others of its coupon, because a call of the script for each would cost
 * Redis half as much as the decision did, and nobody waits for it.
 */
struct outboxes *outboxes_start(const char *redis_url, int64_t gather_ms);
/*
 * Sends what is held, and stops the thread. A call to Redis in progress is waited for, at most
 * REDIS_CLIENT_TIMEOUT_MS; while Redis cannot be reached, nothing is tried.
 */
void outboxes_stop(struct outboxes *outboxes); /* NULL is allowed */

/* The functions below: only from the thread that started it. */

/*
 * The number of a committed transaction, 'STRIPE:NUM'. Kept until outboxes_send(). 0, or -1 when it
 * is malformed.
 */
int outboxes_changed(struct outboxes *outboxes, const char *number);
/*
 * The installation and the server whose numbers these are; before the first of them is handed over.
 * What another server has committed and is still here is forgotten: this one may not have it.
 */
void outboxes_origin(struct outboxes *outboxes, const char *installation,
		     const struct postgres_server *server);
/*
 * Every receive of the batch, which was accepted at this time, has an outcome in PostgreSQL. Kept
 * until outboxes_send().
 */
void outboxes_settled(struct outboxes *outboxes, int64_t coupon, const struct ulid *batch,
		      int64_t at_ms);
/* One of them was rejected: of the batch that was passed last. */
void outboxes_rejected(struct outboxes *outboxes, size_t index, int slot, const char *reason,
		       const struct user_id *user);
/* Hands this over to the thread. A number without a settled batch waits for the next one. */
void outboxes_send(struct outboxes *outboxes);

/*
 * What copies.h asks Redis and writes to it, of deliveries that cannot be settled yet: functions of
 * a copies_port whose context is the struct. The messages are copied. It ends in the next
 * outboxes_copies_end() after Redis has replied.
 */
void outboxes_copies_look(void *outboxes, struct copies_coupon *asked, int64_t coupon);
void outboxes_copies_write(void *outboxes, struct copies_coupon *asked, int64_t coupon,
			   const struct copy *const *messages, size_t n);
/* Passes on what has ended. Returns whether more is under way. */
int outboxes_copies_end(struct outboxes *outboxes, struct copies *copies);

/* RabbitMQ has confirmed the dead letter of this batch. */
void outboxes_dead(struct outboxes *outboxes, int64_t coupon, const struct ulid *batch);
