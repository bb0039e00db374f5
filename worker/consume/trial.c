/*
 * Trials: transactions of coupons that are put off, which end the putting off when they are
 * committed. See settlement.h.
 */
#include "worker/consume/settlement.h"

#include "worker/consume/books.h"

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

/* Adds a delivery, if it goes with those that were added before. -1: there is no room. */
static int delivery_try(struct settlement *settlement, struct delivery *delivery,
			size_t receives_max)
{
	if (settlement->taken_n > 0 && delivery->group != settlement->taken[0]->group)
		return 0;
	delivery->lock_suspect = 1;
	return transaction_add(settlement, delivery, receives_max);
}

/* The coupon of the trial; in steps of a limited size where more was too slow. */
static void coupon_take(struct settlement *settlement, const struct put_off_coupon *put_off,
			size_t receives_max)
{
	if (put_off->items_max && put_off->items_max < receives_max)
		receives_max = put_off->items_max;
	for (struct delivery *delivery = settlement->oldest; delivery; delivery = delivery->newer) {
		if (!locked_is_put_off(delivery) || delivery->message->coupon != put_off->coupon)
			continue;
		if (put_off->items_max && settlement->taken_n == 0)
			delivery_part_limit(delivery, receives_max);
		if (delivery_try(settlement, delivery, receives_max))
			return;
	}
}

/* Every other coupon that is due. */
static void others_take(struct settlement *settlement, size_t receives_max, int64_t now_ms)
{
	const struct put_off_coupon *put_off;

	for (struct delivery *delivery = settlement->oldest; delivery; delivery = delivery->newer) {
		if (!locked_is_put_off(delivery))
			continue;
		put_off = put_off_find(&settlement->put_off, delivery->message->coupon);
		if (!put_off->apart && put_off->due_ms <= now_ms &&
		    delivery_try(settlement, delivery, receives_max))
			return;
	}
}

void trial_take(struct settlement *settlement, size_t receives_max, int64_t now_ms)
{
	const struct put_off_coupon *first;

	if (settlement_trial_ms(settlement) > now_ms)
		return;
	first = trial_next(settlement);
	settlement->trial = 1;
	coupon_take(settlement, first, receives_max);
	if (!first->apart)
		others_take(settlement, receives_max, now_ms);
}

/* The coupon can be settled again. */
static void put_off_over(struct settlement *settlement, int64_t coupon)
{
	for (struct delivery *delivery = settlement->oldest; delivery; delivery = delivery->newer)
		if (locked_is_put_off(delivery) && delivery->message->coupon == coupon)
			books_set_state(settlement, delivery, DELIVERY_WAITING);
	put_off_end(&settlement->put_off, coupon);
	locked_notice(settlement, &(struct settlement_notice){ .coupon = coupon });
}

int64_t trial_succeeded(struct settlement *settlement)
{
	int64_t limited = 0;

	for (size_t i = 0; i < settlement->taken_n; i++) {
		int64_t coupon = settlement->taken[i]->message->coupon;
		struct put_off_coupon *put_off = put_off_find(&settlement->put_off, coupon);

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
	return limited;
}

void trial_rest(struct settlement *settlement, int64_t coupon)
{
	const struct put_off_coupon *put_off = put_off_find(&settlement->put_off, coupon);

	if (put_off && put_off->held == 0)
		put_off_over(settlement, coupon);
}
