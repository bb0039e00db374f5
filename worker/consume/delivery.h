/*
 * One batch that a worker holds, and the outcome of each of its receives. No I/O, one thread.
 *
 * A batch that PostgreSQL refuses alone is tried in parts, so that one bad receive does not
 * prevent the others from being settled. The part that is tried is [first, end).
 */
#ifndef WORKER_CONSUME_DELIVERY_H
#define WORKER_CONSUME_DELIVERY_H

#include "common/message/message.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define SETTLEMENT_REASON_SIZE 96

/* The outcome of a receive, as settle() names it. */

enum outcome_kind { OUTCOME_ISSUED, OUTCOME_REPEATED, OUTCOME_REJECTED };

enum outcome_reason {
	REASON_NONE,
#define REASON(name, text) REASON_##name,
#include "common/message/reason_table.h"
#undef REASON
	REASON_COUNT
};

struct outcome {
	unsigned char kind;   /* enum outcome_kind */
	unsigned char reason; /* enum outcome_reason; REASON_NONE unless rejected */
};

/*
 * 0, or -1 when settle() has no such outcome or reason. `reason` may be NULL or empty when there is
 * none.
 */
int outcome_parse(const char *kind, const char *reason, struct outcome *outcome);
const char *outcome_reason_text(const struct outcome *outcome);

/* A decoded message, in no more memory than it needs. */
struct delivery_message {
	struct ulid batch;
	int64_t coupon;
	int64_t generation;
	int64_t seq;
	int64_t at_ms;
	size_t receives_n;
	struct message_receive receives[];
};

/* The states and the ways between them are drawn in settlement.h. */
enum delivery_state {
	DELIVERY_WAITING,      /* for a transaction */
	DELIVERY_PUT_OFF,      /* its coupon is put off */
	DELIVERY_SENT,         /* in the transaction in flight */
	DELIVERY_DEAD,         /* to be dead-lettered */
	DELIVERY_DEAD_SENT,    /* dead-lettered, the confirm is awaited */
	DELIVERY_PARKING,      /* to be moved to the parking queue */
	DELIVERY_PARKING_SENT, /* published there, the confirm is awaited */
	DELIVERY_RESCUE,       /* to be published to its queue again, before a delivery limit */
	DELIVERY_RESCUE_SENT,  /* published there, the confirm is awaited */
	DELIVERY_DONE,         /* to be acked */
	DELIVERY_STATES
};

/*
 * A message as the broker delivered it: one batch, or several (common/message/message.h). It is
 * acked when all of them are done.
 */
struct parcel {
	TAILQ_ENTRY(parcel) next;
	uint64_t tag;
	struct delivery *first; /* of its batches, adjacent in the list of deliveries */
	size_t held;            /* how many these are */
	size_t left;            /* of these, not DONE */
	size_t outgoing;        /* of these, to be forwarded */
};

/* Only the files of books.h change it. */
struct delivery {
	/* of the books */
	TAILQ_ENTRY(delivery) next;
	struct parcel *parcel;
	enum delivery_state state;
	uint64_t epoch;
	uint64_t group;   /* 0: goes with any others; else only with those of the same group */
	int lock_suspect; /* it was in a transaction that met a lock, with other coupons */
	int from_parking; /* it was delivered from the parking queue */
	int awaited;      /* a client waits for the outcome */

	uint64_t tag;
	size_t position; /* in its message, from 0 */
	void *envelope;
	char *reason;                     /* why it is dead-lettered */
	struct outcome *outcomes;         /* one for each receive, ISSUED at first */
	struct delivery_message *message; /* NULL: it could not be read */
	/* The part that is tried: the whole message, unless it was refused alone. */
	size_t first;
	size_t end;   /* the receive after it */
	size_t bad_n; /* receives that were refused */
	size_t bad_first;
};

/* `message` is copied, `envelope` taken over. */
struct delivery *delivery_new(uint64_t tag, const struct message *message, void *envelope);
/* One that cannot be settled. */
struct delivery *delivery_new_dead(uint64_t tag, const char *reason, void *envelope);
void delivery_free(struct delivery *delivery, void (*envelope_free)(void *envelope));

/* Makes the part at most this long (positive). The rest is tried when the part is committed. */
void delivery_part_limit(struct delivery *delivery, size_t receives_max);
/* A part is about to be tried: its outcomes are ISSUED until settle() returns others. */
void delivery_part_begin(struct delivery *delivery);
/* The part is committed. What the delivery does next: WAITING with the rest, DEAD, or DONE. */
enum delivery_state delivery_part_committed(struct delivery *delivery);
/*
 * The part was refused alone. Halves of it are tried next; a single receive is skipped, and the
 * message is dead-lettered in the end. Returns as delivery_part_committed().
 */
enum delivery_state delivery_part_refused(struct delivery *delivery, const char *sqlstate);

/*
 * Whether the commit of the part gives every receive of the message its outcome: it is the last
 * part, and no receive was refused.
 */
int delivery_is_settled_by_part(const struct delivery *delivery);

/*
 * Writes the reply to a gateway that waits for the outcomes of the part, and returns its length:
 * {"v":1,"batch":"…","outcomes":[[0,"issued"],[1,"rejected","slot_taken"]]}. A receive that was
 * issued earlier is reported as `issued`.
 */
#define DELIVERY_REPLY_SIZE (128 + MESSAGE_RECEIVES_MAX * 48)
size_t delivery_reply(const struct delivery *delivery, char out[DELIVERY_REPLY_SIZE]);

size_t delivery_part_size(const struct delivery *delivery);

#endif
