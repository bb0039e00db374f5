/*
 * The list of the deliveries that a worker holds, and the one place where their states change. Only
 * for the files of settlement.h: settlement.c and locked.c; the functions are in delivery.c.
 */
#ifndef WORKER_CONSUME_BOOKS_H
#define WORKER_CONSUME_BOOKS_H

#include "common/backoff.h"
#include "worker/consume/delivery.h"

/*
 * All held deliveries are in one list in the order of their tags, and so are the parcels they came
 * in, so that the finished parcels at the front can be acked together. Deliveries of a transaction
 * in flight are also in `taken`; after a reset they are only there.
 */
struct settlement {
	void (*envelope_free)(void *envelope);
	TAILQ_HEAD(deliveries, delivery) deliveries; /* oldest first */
	TAILQ_HEAD(parcels, parcel) parcels;
	size_t parcels_n;
	size_t finished_parcels;          /* of these, nothing is left */
	size_t in_state[DELIVERY_STATES]; /* of those in the list */
	size_t awaited_n;                 /* of those that wait, by a client */
	uint64_t epoch;
	uint64_t next_group;
	struct delivery **taken;
	size_t taken_n;
	size_t taken_size;
	size_t taken_receives;
	int64_t taken_ms;    /* when it began */
	size_t receives_max; /* the limit that it was given */
	int lock_suspect;

	struct put_off put_off;
	size_t put_off_max;
	size_t parking_max;
	size_t put_off_parking_n; /* PUT_OFF deliveries of the parking queue */
	int64_t trial_ms;         /* no trial before this time */
	int trial;                /* the transaction in flight, or the last one, is a trial */
	int64_t waiting_first_ms; /* before this time what waits goes before any trial */
	int64_t rotated_ms;
	int64_t forgot_ms;

	struct settlement_notice *notices; /* not yet read */
	size_t notices_n;
	size_t notices_size;
};

/* Changes the state and the counts. The transition must be an allowed one. */
void books_set_state(struct settlement *settlement, struct delivery *delivery,
		     enum delivery_state state);
/* Appends to the list; tags ascend. Those with the same tag are of one parcel. */
void books_append(struct settlement *settlement, struct delivery *delivery);
/* Whether a delivery in this state is to be forwarded. */
int books_is_outgoing(enum delivery_state state);
/* Removes a finished parcel with its deliveries, and frees them. */
void books_remove(struct settlement *settlement, struct parcel *parcel);
/* Removes everything from the lists. The deliveries in flight stay in `taken`. */
void books_clear(struct settlement *settlement);

/* settlement.c, for locked.c */

/* How a transaction ended. */
enum ending { ENDED_COMMITTED, ENDED_UNKNOWN, ENDED_REFUSED_ALONE };

/* Ends the transaction; the deliveries of a lost connection are forgotten. */
void transaction_end(struct settlement *settlement, enum ending ending, const char *sqlstate);
/* Adds a delivery to the transaction, if it fits. 0, or -1 when there is no room. */
int transaction_add(struct settlement *settlement, struct delivery *delivery, size_t receives_max);

/* locked.c, for settlement.c */

/*
 * The state for a delivery of a coupon that is put off: held here while there is room, else
 * parked.
 */
enum delivery_state locked_state(const struct settlement *settlement,
				 const struct delivery *delivery,
				 const struct put_off_coupon *put_off);

/* Takes a trial into the transaction, if one is due. */
void trial_take(struct settlement *settlement, size_t receives_max, int64_t now_ms);
/*
 * The transaction in flight met no lock, and was not cancelled: its coupons are no longer put off.
 * One that is tried in small steps stays so: it is returned, else 0, and is to be passed to
 * trial_rest() when the transaction has ended.
 */
int64_t trial_succeeded(struct settlement *settlement);
/* The coupon is no longer put off if nothing is held of it. */
void trial_rest(struct settlement *settlement, int64_t coupon);

#endif
