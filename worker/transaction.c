/*
 * The transaction in flight: which deliveries it takes, and what its end means for each of them;
 * and coupons that cannot be settled now, because another session has locked rows of them, or
 * because it takes too long: finds them, puts them off, parks their messages, and tries them again.
 * See settlement.h.
 */
#include "worker/settlement.h"

#include "common/array.h"
#include "common/check.h"

#include <stdlib.h>
#include <string.h>

/* How a transaction ended. */
enum ending { ENDED_COMMITTED, ENDED_UNKNOWN, ENDED_REFUSED_ALONE };

/* Adds a delivery, if it goes with those that were added before. -1: there is no room. */
static int transaction_add(struct settlement *settlement, struct delivery *delivery,
			   size_t receives_max)
{
	size_t n = delivery_part_size(delivery);

	if (settlement->taken_n > 0 && delivery->group != settlement->taken[0]->group)
		return 0;
	delivery->lock_suspect |= settlement->trial;
	/* There is always room for one. */
	if (settlement->taken_n > 0 && settlement->taken_receives + n > receives_max)
		return -1;
	settlement->taken = array_room(settlement->taken, settlement->taken_n,
				       &settlement->taken_size, sizeof(struct delivery *));
	settlement->taken[settlement->taken_n++] = delivery;
	settlement->taken_receives += n;
	settlement->lock_suspect |= delivery->lock_suspect;
	/* The outcomes of a delivery are ISSUED until settle() returns others. */
	memset(delivery->outcomes + delivery->first, 0, n * sizeof(*delivery->outcomes));
	books_set_state(settlement, delivery, DELIVERY_SENT);
	return 0;
}

/* Ends the transaction: sets the state of each delivery, or frees it if its connection was lost. */
static void transaction_end(struct settlement *settlement, enum ending ending, const char *sqlstate)
{
	for (size_t i = 0; i < settlement->taken_n; i++) {
		struct delivery *delivery = settlement->taken[i];
		enum delivery_state state = DELIVERY_WAITING;

		if (delivery->epoch != settlement->epoch) {
			delivery_free(delivery, settlement->envelope_free);
			continue;
		}
		if (ending == ENDED_COMMITTED)
			state = delivery_part_committed(delivery);
		else if (ending == ENDED_REFUSED_ALONE)
			state = delivery_part_refused(delivery, sqlstate);
		if (state == DELIVERY_WAITING &&
		    put_off_find(&settlement->put_off, delivery->coupon))
			state = DELIVERY_PUT_OFF;
		books_set_state(settlement, delivery, state);
	}
	settlement->taken_n = 0;
	settlement->taken_receives = 0;
}

int settlement_crowded(const struct settlement *settlement)
{
	size_t n = settlement->in_state[DELIVERY_PUT_OFF] - settlement->put_off_parking_n +
		   settlement->in_state[DELIVERY_PARKING] +
		   settlement->in_state[DELIVERY_PARKING_SENT];

	return 2 * n >= settlement->parking_max;
}

/*
 * Whether it waits because its coupon is put off; it goes into no transaction but a trial.
 * Deliveries that wait to be parked are tried too: the parking queue may refuse them for longer
 * than the lock is held.
 */
static int is_put_off(const struct delivery *delivery)
{
	return delivery->state == DELIVERY_PUT_OFF || delivery->state == DELIVERY_PARKING;
}

static int is_locked(const struct lock_look *look, int64_t coupon)
{
	for (size_t i = 0; look && i < look->n; i++)
		if (look->locked[i] == coupon)
			return 1;
	return 0;
}

void settlement_blocked(struct settlement *settlement, const struct lock_look *look, int64_t now_ms)
{
	int64_t *coupons = checked(calloc(settlement->taken_n, sizeof(*coupons)));
	size_t half = (settlement->taken_receives + 1) / 2, coupons_n, found = 0;
	int is_trial;
	struct put_off_coupon *put_off;
	struct delivery *delivery;

	check(settlement->taken_n > 0);
	is_trial = put_off_find(&settlement->put_off, settlement->taken[0]->coupon) != NULL;

	/* The coupons of the transaction, each once, ascending. */
	for (size_t i = 0; i < settlement->taken_n; i++)
		coupons[i] = settlement->taken[i]->coupon;
	coupons_n = numbers_unique(coupons, settlement->taken_n);
	for (size_t i = 0; i < coupons_n; i++)
		found += (size_t)is_locked(look, coupons[i]);

	if (found == 0 && coupons_n > 1 && !is_trial) {
		/* No locked row explains it: two halves, until one coupon is alone. */
		for (size_t i = 0; i < settlement->taken_n; i++) {
			delivery = settlement->taken[i];
			delivery->group = settlement->next_group +
					  (delivery->coupon >= coupons[coupons_n / 2]);
			delivery->lock_suspect = 1;
		}
		settlement->next_group += 2;
	} else {
		if (found == 0 || found == coupons_n || !is_trial)
			settlement->trial_ms = now_ms + SETTLEMENT_TRIAL_PAUSE_MS;
		/* The coupons that are not locked are retried together, without the others. */
		for (size_t i = 0; found > 0 && i < settlement->taken_n; i++) {
			delivery = settlement->taken[i];
			if (!is_locked(look, delivery->coupon))
				delivery->group = settlement->next_group;
			delivery->lock_suspect = 1;
		}
		settlement->next_group += found > 0;
		for (size_t i = 0; i < coupons_n; i++) {
			if (found > 0 && !is_locked(look, coupons[i]))
				continue;
			put_off = put_off_add(&settlement->put_off, coupons[i], now_ms);
			put_off->apart = found == 0 || put_off->items_max;
			settlement->noticed(put_off);
			if (!look && coupons_n == 1)
				put_off->items_max = half;
		}
	}
	free(coupons);
	transaction_end(settlement, ENDED_UNKNOWN, NULL);

	/* Holds deliveries of coupons that have just failed while there is room; parks others. */
	TAILQ_FOREACH (delivery, &settlement->deliveries, next) {
		put_off = put_off_find(&settlement->put_off, delivery->coupon);
		if (!put_off || put_off->due_ms <= now_ms)
			continue;
		if (delivery->state == DELIVERY_WAITING)
			books_set_state(settlement, delivery, DELIVERY_PUT_OFF);
		/* The count below includes this delivery. */
		if (delivery->state == DELIVERY_PUT_OFF && !delivery->from_parking &&
		    settlement->parking_max > 0 &&
		    (put_off->failures >= SETTLEMENT_PARK_FAILURES ||
		     settlement->in_state[DELIVERY_PUT_OFF] - settlement->put_off_parking_n >
			     settlement->put_off_max))
			books_set_state(settlement, delivery, DELIVERY_PARKING);
	}
}

void settlement_rotate(struct settlement *settlement, int64_t now_ms)
{
	struct delivery *delivery;
	int full = settlement->put_off_parking_n >= settlement->parking_max;

	if (now_ms - settlement->forgot_ms >= SETTLEMENT_PUT_OFF_LONGEST_MS) {
		settlement->forgot_ms = now_ms;
		put_off_forget(&settlement->put_off, now_ms - SETTLEMENT_FORGET_MS);
	}

	if (settlement->put_off_parking_n == 0)
		settlement->rotated_ms = now_ms;
	if (now_ms - settlement->rotated_ms <
	    (full ? SETTLEMENT_ROTATE_MS : SETTLEMENT_ROTATE_IDLE_MS))
		return;
	settlement->rotated_ms = now_ms;
	TAILQ_FOREACH (delivery, &settlement->deliveries, next)
		if (delivery->state == DELIVERY_PUT_OFF && delivery->from_parking)
			books_set_state(settlement, delivery, DELIVERY_PARKING);
}

/* Trials: transactions of coupons that are put off, which end that when they are committed. */

/* The coupon whose trial is due first, among those that are put off and have deliveries here. */
static const struct put_off_coupon *trial_next(const struct settlement *settlement)
{
	struct put_off_coupon *entry, *next, *first = NULL;

	HASH_ITER (hh, settlement->put_off.coupons, entry, next)
		if (entry->held > 0 && (!first || entry->due_ms < first->due_ms))
			first = entry;
	return first;
}

int64_t settlement_trial_ms(const struct settlement *settlement)
{
	const struct put_off_coupon *next = trial_next(settlement);

	if (!next)
		return INT64_MAX;
	return next->due_ms > settlement->trial_ms ? next->due_ms : settlement->trial_ms;
}

/*
 * Takes a trial into the transaction, if one is due: the coupon whose trial is due first, in steps
 * of a limited size where more was too slow; then every other coupon that is due.
 */
static void trial_take(struct settlement *settlement, size_t receives_max, int64_t now_ms)
{
	const struct put_off_coupon *first, *put_off;
	struct delivery *delivery;
	size_t first_max = receives_max;

	if (settlement_trial_ms(settlement) > now_ms)
		return;
	settlement->trial = 1;
	first = trial_next(settlement);
	if (first->items_max && first->items_max < receives_max)
		first_max = first->items_max;
	TAILQ_FOREACH (delivery, &settlement->deliveries, next) {
		if (!is_put_off(delivery) || delivery->coupon != first->coupon)
			continue;
		if (first->items_max && settlement->taken_n == 0)
			delivery_part_limit(delivery, first_max);
		if (transaction_add(settlement, delivery, first_max))
			break;
	}

	if (first->apart)
		return;
	TAILQ_FOREACH (delivery, &settlement->deliveries, next) {
		if (!is_put_off(delivery))
			continue;
		put_off = put_off_find(&settlement->put_off, delivery->coupon);
		if (!put_off->apart && put_off->due_ms <= now_ms &&
		    transaction_add(settlement, delivery, receives_max))
			return;
	}
}

/* The coupon can be settled again. */
static void put_off_over(struct settlement *settlement, int64_t coupon)
{
	struct delivery *delivery;

	TAILQ_FOREACH (delivery, &settlement->deliveries, next)
		if (is_put_off(delivery) && delivery->coupon == coupon)
			books_set_state(settlement, delivery, DELIVERY_WAITING);
	put_off_end(&settlement->put_off, coupon);
	settlement->noticed(&(struct put_off_coupon){ .coupon = coupon });
}

size_t settlement_take(struct settlement *settlement, size_t receives_max, int64_t now_ms)
{
	struct delivery *delivery;

	check(settlement->taken_n == 0);
	/* A slow trial leaves the same time to the other coupons. */
	if (settlement->trial)
		settlement->waiting_first_ms = now_ms + (now_ms - settlement->taken_ms);
	settlement->trial = 0;
	settlement->lock_suspect = 0;
	settlement->taken_ms = now_ms;
	settlement->receives_max = receives_max;
	if (now_ms >= settlement->waiting_first_ms)
		trial_take(settlement, receives_max, now_ms);
	/* The oldest that waits, and those that go with it. */
	if (settlement->taken_n == 0)
		TAILQ_FOREACH (delivery, &settlement->deliveries, next)
			if (delivery->state == DELIVERY_WAITING &&
			    transaction_add(settlement, delivery, receives_max))
				break;
	if (settlement->taken_n == 0)
		trial_take(settlement, receives_max, now_ms);
	return settlement->taken_receives;
}

int settlement_outcome(struct settlement *settlement, size_t position, struct outcome outcome)
{
	for (size_t i = 0; i < settlement->taken_n; i++) {
		struct delivery *delivery = settlement->taken[i];

		if (position < delivery_part_size(delivery)) {
			delivery->outcomes[delivery->first + position] = outcome;
			return 0;
		}
		position -= delivery_part_size(delivery);
	}
	return -1;
}

/*
 * The transaction in flight met no lock, and was not cancelled: its coupons are no longer put off.
 * One that is tried in small steps stays so while deliveries of it are held.
 */
static void transaction_judged(struct settlement *settlement, enum ending ending,
			       const char *sqlstate)
{
	struct put_off_coupon *put_off;
	int64_t limited = 0; /* the coupon that stays put off */

	for (size_t i = 0; i < settlement->taken_n; i++) {
		int64_t coupon = settlement->taken[i]->coupon;

		put_off = put_off_find(&settlement->put_off, coupon);
		settlement->taken[i]->lock_suspect = 0;
		if (!put_off || limited)
			continue;
		if (put_off->items_max && put_off->items_max < settlement->receives_max) {
			put_off->items_max += put_off->items_max / 4 + 1;
			put_off->due_ms = 0;
			limited = coupon;
		} else {
			put_off_over(settlement, coupon);
		}
	}
	transaction_end(settlement, ending, sqlstate);
	put_off = put_off_find(&settlement->put_off, limited);
	if (put_off && put_off->held == 0)
		put_off_over(settlement, limited);
}

void settlement_commit(struct settlement *settlement)
{
	transaction_judged(settlement, ENDED_COMMITTED, NULL);
}

void settlement_retry(struct settlement *settlement)
{
	transaction_end(settlement, ENDED_UNKNOWN, NULL);
}

void settlement_refuse(struct settlement *settlement, const char *sqlstate)
{
	size_t half = settlement->taken_n / 2;
	enum ending ending = settlement->taken_n == 1 ? ENDED_REFUSED_ALONE : ENDED_UNKNOWN;

	for (size_t i = 0; i < settlement->taken_n; i++)
		settlement->taken[i]->group = settlement->next_group + (i >= half);
	settlement->next_group += 2;
	/* PostgreSQL has checked the data, so no lock was in the way. */
	transaction_judged(settlement, ending, sqlstate);
}
