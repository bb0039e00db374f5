/*
 * The books of settlement: which deliveries the worker holds, which of them go into the next
 * transaction, what became of every receive, and what may be acked. Pure: no sockets, no clock, one
 * thread.
 *
 *	             take()             commit()
 *	WAITING ──────────────▶ SENT ──────────────▶ DONE ──acks()──▶ gone
 *	   ▲  ▲                 │  │ refuse(), alone   ▲
 *	   │  └─ retry(), split ┘  ▼                   │ dead_done()
 *	   │                     DEAD ──dead_take()─▶ DEAD_SENT
 *	   └─ add()      add() ──▶ ▲                   │
 *	                           └──── dead_failed() ┘
 *
 * A message that PostgreSQL refuses alone is tried in parts, so that one bad receive never takes
 * its neighbours with it: after commit() of a part it is WAITING with the rest, and in the end
 * DEAD, the whole of it: what was settled is told apart as repeated.
 *
 * A delivery's tag means something on the connection it came by alone. reset() tells that this
 * connection is gone: everything is forgotten, except what a transaction in flight needs, and that
 * is never acked.
 */
#ifndef WORKER_SETTLE_SETTLEMENT_H
#define WORKER_SETTLE_SETTLEMENT_H

#include "common/message.h"
#include "worker/settle/outcome.h"

#include <stddef.h>
#include <stdint.h>

#define SETTLEMENT_REASON_SIZE 96

struct settlement;
struct delivery;

/* A message in no more memory than it needs. */
struct delivery_message {
	struct ulid batch;
	int64_t coupon;
	int64_t generation;
	int64_t seq;
	int64_t at_ms;
	size_t receives_n;
	struct message_receive receives[];
};

/* `envelope_free` frees what was handed over with settlement_add(). */
struct settlement *settlement_new(void (*envelope_free)(void *envelope));
void settlement_free(struct settlement *settlement);

/*
 * A message has arrived. Tags ascend. The message is copied; `envelope` (NULL is allowed) is taken
 * over. `alone`: it is settled in a transaction of its own.
 */
void settlement_add(struct settlement *settlement, uint64_t tag, const struct message *message,
		    int alone, void *envelope);
/* A message that nobody can settle has arrived: it is to be dead-lettered. */
void settlement_add_dead(struct settlement *settlement, uint64_t tag, const char *reason,
			 void *envelope);

size_t settlement_held(const struct settlement *settlement);    /* not yet acked */
size_t settlement_waiting(const struct settlement *settlement); /* ready for a transaction */

/*
 * Begins a transaction with what waits, oldest first: whole deliveries up to `receives_max`
 * receives (one delivery always fits). Returns the number of receives, 0 when nothing waits. One
 * transaction at a time.
 */
size_t settlement_take(struct settlement *settlement, size_t receives_max);

/* Of the transaction in flight: its deliveries in order, and how each of its receives ended. */
size_t settlement_taken(const struct settlement *settlement);
const struct delivery *settlement_taken_at(const struct settlement *settlement, size_t i);
/*
 * The receive at `position` (0-based, over all deliveries in order) ended like this. 0, or -1 when
 * there is none.
 */
int settlement_outcome(struct settlement *settlement, size_t position, struct outcome outcome);

/* The transaction is committed. Look at the outcomes before. */
void settlement_commit(struct settlement *settlement);
/* It did nothing, or nobody knows: everything it held waits again. */
void settlement_retry(struct settlement *settlement);
/*
 * PostgreSQL refuses something in it: halves are tried, of the deliveries and then of the one that
 * is refused alone, and the message of what is refused alone is dead-lettered as `unstorable`.
 * After a few such receives the rest of a message is not tried.
 */
void settlement_refuse(struct settlement *settlement, const char *sqlstate);

size_t settlement_dead_waiting(const struct settlement *settlement); /* to be dead-lettered */
/* The next delivery to dead-letter, or NULL. It is to be published now. */
const struct delivery *settlement_dead_take(struct settlement *settlement);
/* What became of it; a tag that is no longer known (after a reset) is passed over. */
void settlement_dead_done(struct settlement *settlement, uint64_t epoch, uint64_t tag);
void settlement_dead_failed(struct settlement *settlement, uint64_t epoch, uint64_t tag);

/* The next ack to send: 1 with `tag` and `multiple`, or 0. The caller sends it, or resets. */
int settlement_ack(struct settlement *settlement, uint64_t *tag, int *multiple);

/* The connection is gone, and with it every tag. */
void settlement_reset(struct settlement *settlement);

uint64_t settlement_epoch(const struct settlement *settlement); /* rises with every reset */

const struct delivery_message *delivery_message(
	const struct delivery *delivery); /* NULL: it could not be read */
const struct outcome *delivery_outcomes(
	const struct delivery *delivery); /* one for each receive, ISSUED at first */
/*
 * Which receives of a message that is taken are in the transaction: from the first up to before the
 * end.
 */
size_t delivery_first(const struct delivery *delivery);
size_t delivery_end(const struct delivery *delivery);
uint64_t delivery_tag(const struct delivery *delivery);
const char *delivery_reason(const struct delivery *delivery); /* why it is dead-lettered */
void *delivery_envelope(const struct delivery *delivery);

#endif
