/*
 * One batch that a worker holds, and the outcome of each of its receives. No I/O, one thread.
 *
 * A batch that PostgreSQL refuses alone is tried in parts, so that one bad receive does not
 * prevent the others from being settled. The part that is tried is [first, end).
 */
#pragma once

#include "common/message/answer.h"
#include "common/message/message.h"
#include "common/message/use.h"
#include "common/put_off.h"
#include "coupon/copies.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define SETTLEMENT_REASON_SIZE 96

/* The outcome of a receive, as settle() names it. */

enum outcome_kind { OUTCOME_ISSUED, OUTCOME_REPEATED, OUTCOME_REJECTED };

struct outcome {
	unsigned char kind;   /* enum outcome_kind */
	unsigned char reason; /* enum reason; REASON_NONE unless rejected */
};

/*
 * 0, or -1 when settle() has no such outcome or reason. `reason` may be NULL or empty when there is
 * none.
 */
int outcome_parse(const char *kind, const char *reason, struct outcome *outcome);

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

/* Only settlement.c, transaction.c and delivery.c change it. */
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
	char *reason;             /* why it is dead-lettered */
	struct outcome *outcomes; /* one for each receive, ISSUED at first */
	struct copy copy;         /* of receives, while they are to be settled */
	/* The part that is tried: the whole batch, unless it was refused alone. */
	size_t first;
	size_t end;   /* the receive after it */
	size_t bad_n; /* receives that were refused */
	size_t bad_first;

	/*
	 * The batch, in no more memory than it needs: zeros if it could not be read. Of a message
	 * of uses each use counts as one receive, and its coupon is that of its first receive.
	 */
	struct ulid batch;
	int64_t coupon;
	struct message_traces *traces; /* NULL: there are none */
	struct use *uses;              /* of a message of uses; NULL otherwise, as the next one */
	struct receive *use_receives;  /* of all uses, in their order */
	int64_t generation;            /* of a message of receives, as the rest but receives_n */
	int64_t seq;
	int64_t at_ms;
	size_t receives_n;
	struct message_receive receives[];
};

/* `message` is copied, `envelope` taken over. */
struct delivery *delivery_new(uint64_t tag, const struct message *message, void *envelope);
struct delivery *delivery_new_uses(const struct use_message *message); /* no tag, no envelope */
/* One that cannot be settled. */
struct delivery *delivery_new_dead(uint64_t tag, const char *reason, void *envelope);
void delivery_free(struct delivery *delivery, void (*envelope_free)(void *envelope));

/* Makes the part at most this long (positive). The rest is tried when the part is committed. */
void delivery_part_limit(struct delivery *delivery, size_t receives_max);
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
 * Fills the reply to a gateway that waits for the outcomes of the part. A receive that was issued
 * earlier is reported as `issued`.
 */
void delivery_reply(const struct delivery *delivery, struct reply *reply);

size_t delivery_part_size(const struct delivery *delivery);
/* The trace of this receive, or use (trace_context.h); "": it has none. */
const char *delivery_trace(const struct delivery *delivery, size_t index);

/*
 * The books. Only settlement.c and transaction.c change them; others read `taken` and
 * `lock_suspect`.
 *
 * All held deliveries are in one list in the order of their tags, and so are the parcels they came
 * in, so that the finished parcels at the front can be acked together. Deliveries of a transaction
 * in flight are also in `taken`; after a reset they are only there.
 */
struct settlement {
	void (*envelope_free)(void *envelope);
	void (*noticed)(const struct put_off_coupon *notice);
	struct copies *copies; /* NULL: none are kept */
	const char *(*body_of)(const void *envelope, size_t *len);
	TAILQ_HEAD(deliveries, delivery) deliveries; /* oldest first */
	TAILQ_HEAD(parcels, parcel) parcels;
	size_t parcels_n;
	size_t finished_parcels;          /* of these, nothing is left */
	size_t in_state[DELIVERY_STATES]; /* of those in the list */
	size_t awaited_n;                 /* of those that wait, by a client */
	uint64_t epoch;                   /* grows with every reset */
	uint64_t next_group;
	struct delivery **taken;
	size_t taken_n;
	size_t taken_size;
	size_t taken_receives;
	int64_t taken_ms;    /* when it began */
	size_t receives_max; /* the limit that it was given */
	int lock_suspect;    /* one of these was in a transaction that met a lock */

	struct put_off put_off;
	size_t put_off_max;
	size_t parking_max;
	size_t put_off_parking_n; /* PUT_OFF deliveries of the parking queue */
	int64_t trial_ms;         /* no trial before this time */
	int trial;                /* the transaction in flight, or the last one, is a trial */
	int64_t waiting_first_ms; /* before this time what waits goes before any trial */
	int64_t rotated_ms;
	int64_t forgot_ms;
};

/* Changes the state and the counts. The transition must be an allowed one. */
void books_set_state(struct settlement *settlement, struct delivery *delivery,
		     enum delivery_state state);
