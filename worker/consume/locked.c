/*
 * Coupons that another session has locked: finds them, puts them off, tries them alone, and parks
 * their messages. See settlement.h.
 */
#include "worker/consume/settlement.h"

#include "common/check.h"
#include "worker/consume/books.h"

#include <stdlib.h>

enum delivery_state locked_state(const struct settlement *settlement,
				 const struct delivery *delivery,
				 const struct put_off_coupon *put_off)
{
	if (delivery->from_parking)
		return DELIVERY_PUT_OFF;
	if (put_off->failures >= SETTLEMENT_PARK_FAILURES)
		return DELIVERY_PARKING;
	return settlement->in_state[DELIVERY_PUT_OFF] - settlement->put_off_parking_n <
			       settlement->put_off_max
		       ? DELIVERY_PUT_OFF
		       : DELIVERY_PARKING;
}

size_t settlement_put_off(const struct settlement *settlement)
{
	return settlement->in_state[DELIVERY_PUT_OFF];
}

size_t settlement_put_off_coupons(const struct settlement *settlement)
{
	return HASH_COUNT(settlement->put_off.coupons);
}

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
 * Deliveries that wait to be parked are tried too: the parking queue may refuse them for longer
 * than the lock is held.
 */
static int is_put_off(const struct delivery *delivery)
{
	return delivery->state == DELIVERY_PUT_OFF || delivery->state == DELIVERY_PARKING;
}

static void trial_take(struct settlement *settlement, int64_t coupon, size_t receives_max)
{
	for (struct delivery *delivery = settlement->oldest; delivery; delivery = delivery->newer) {
		if (!is_put_off(delivery) || delivery->message->coupon != coupon)
			continue;
		if (settlement->taken_n > 0 && delivery->group != settlement->taken[0]->group)
			continue;
		delivery->lock_suspect = 1;
		if (transaction_add(settlement, delivery, receives_max))
			break;
	}
}

void locked_take(struct settlement *settlement, size_t receives_max, int64_t now_ms)
{
	if (settlement_trial_ms(settlement) <= now_ms)
		trial_take(settlement, trial_next(settlement)->coupon, receives_max);
}

/* The coupon can be settled again. */
static void put_off_over(struct settlement *settlement, int64_t coupon)
{
	for (struct delivery *delivery = settlement->oldest; delivery; delivery = delivery->newer)
		if (is_put_off(delivery) && delivery->message->coupon == coupon)
			books_set_state(settlement, delivery, DELIVERY_WAITING);
	put_off_end(&settlement->put_off, coupon);
}

/* The entry of the coupon of the transaction in flight, if that coupon is put off. */
static struct put_off_coupon *taken_put_off(const struct settlement *settlement)
{
	if (settlement->taken_n == 0)
		return NULL;
	return put_off_find(&settlement->put_off, settlement->taken[0]->message->coupon);
}

int64_t locked_end(struct settlement *settlement)
{
	struct put_off_coupon *put_off = taken_put_off(settlement);
	int64_t coupon = put_off ? put_off->coupon : 0;

	for (size_t i = 0; i < settlement->taken_n; i++)
		settlement->taken[i]->lock_suspect = 0;
	if (put_off)
		put_off_over(settlement, coupon);
	return coupon;
}

static int id_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* The middle one of the coupons in the transaction; they go from `*least` to `*most`. */
static int64_t taken_middle(const struct settlement *settlement, int64_t *least, int64_t *most)
{
	int64_t *ids = calloc(settlement->taken_n, sizeof(*ids)), middle;
	size_t n = 0;

	check(ids != NULL);
	for (size_t i = 0; i < settlement->taken_n; i++)
		ids[i] = settlement->taken[i]->message->coupon;
	qsort(ids, settlement->taken_n, sizeof(*ids), id_compare);
	for (size_t i = 0; i < settlement->taken_n; i++)
		if (n == 0 || ids[i] != ids[n - 1])
			ids[n++] = ids[i];
	*least = ids[0];
	*most = ids[n - 1];
	middle = ids[n / 2];
	free(ids);
	return middle;
}

/* Splits the transaction into two: the coupons below `middle`, and the others. */
static void taken_split(struct settlement *settlement, int64_t middle)
{
	for (size_t i = 0; i < settlement->taken_n; i++) {
		struct delivery *delivery = settlement->taken[i];

		delivery->group = settlement->next_group + (delivery->message->coupon >= middle);
		delivery->lock_suspect = 1;
	}
	settlement->next_group += 2;
}

/* Holds the coupon's deliveries while there is room, and parks the others. */
static void put_off_begin(struct settlement *settlement, const struct put_off_coupon *put_off)
{
	for (struct delivery *delivery = settlement->oldest; delivery; delivery = delivery->newer) {
		if (!delivery->message || delivery->message->coupon != put_off->coupon)
			continue;
		if (delivery->state == DELIVERY_WAITING)
			books_set_state(settlement, delivery, DELIVERY_PUT_OFF);
		/* The count below includes this delivery. */
		if (delivery->state == DELIVERY_PUT_OFF && !delivery->from_parking &&
		    (put_off->failures >= SETTLEMENT_PARK_FAILURES ||
		     settlement->in_state[DELIVERY_PUT_OFF] - settlement->put_off_parking_n >
			     settlement->put_off_max))
			books_set_state(settlement, delivery, DELIVERY_PARKING);
	}
}

struct settlement_blocked settlement_blocked(struct settlement *settlement, int64_t now_ms)
{
	int64_t least, most, middle = taken_middle(settlement, &least, &most);
	struct put_off_coupon *put_off;

	if (least != most) {
		taken_split(settlement, middle);
		transaction_end(settlement, ENDED_UNKNOWN, NULL);
		return (struct settlement_blocked){ 0 };
	}
	put_off = put_off_add(&settlement->put_off, least, now_ms);
	settlement->trial_ms = now_ms + SETTLEMENT_TRIAL_PAUSE_MS;
	transaction_end(settlement, ENDED_UNKNOWN, NULL);
	put_off_begin(settlement, put_off);
	return (struct settlement_blocked){ .coupon = least,
					    .wait_ms = put_off->wait_ms,
					    .failures = put_off->failures };
}

void settlement_rotate(struct settlement *settlement, int64_t now_ms)
{
	int full = settlement->put_off_parking_n >= settlement->parking_max;

	if (settlement->put_off_parking_n == 0)
		settlement->rotated_ms = now_ms;
	if (now_ms - settlement->rotated_ms <
	    (full ? SETTLEMENT_ROTATE_MS : SETTLEMENT_ROTATE_IDLE_MS))
		return;
	settlement->rotated_ms = now_ms;
	for (struct delivery *delivery = settlement->oldest; delivery; delivery = delivery->newer)
		if (delivery->state == DELIVERY_PUT_OFF && delivery->from_parking)
			books_set_state(settlement, delivery, DELIVERY_PARKING);
}
