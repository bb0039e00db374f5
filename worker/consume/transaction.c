/* The transaction in flight: which deliveries it takes, and what its end means for each of them. */
#include "worker/consume/settlement.h"

#include "common/check.h"
#include "worker/consume/books.h"

#include <stdlib.h>

static void taken_push(struct settlement *settlement, struct delivery *delivery)
{
	if (settlement->taken_n == settlement->taken_size) {
		settlement->taken_size = settlement->taken_size ? 2 * settlement->taken_size : 64;
		settlement->taken = realloc(settlement->taken,
					    settlement->taken_size * sizeof(struct delivery *));
		check(settlement->taken != NULL);
	}
	settlement->taken[settlement->taken_n++] = delivery;
	settlement->taken_receives += delivery_part_size(delivery);
	settlement->lock_suspect |= delivery->lock_suspect;
	delivery_part_begin(delivery);
	books_set_state(settlement, delivery, DELIVERY_SENT);
}

int transaction_add(struct settlement *settlement, struct delivery *delivery, size_t receives_max)
{
	/* There is always room for one. */
	if (settlement->taken_n > 0 &&
	    settlement->taken_receives + delivery_part_size(delivery) > receives_max)
		return -1;
	taken_push(settlement, delivery);
	return 0;
}

static void waiting_take(struct settlement *settlement, size_t receives_max)
{
	struct delivery *delivery = settlement->oldest;
	uint64_t group;

	while (delivery && delivery->state != DELIVERY_WAITING)
		delivery = delivery->newer;
	if (!delivery)
		return;
	group = delivery->group;
	for (; delivery; delivery = delivery->newer) {
		if (delivery->state != DELIVERY_WAITING || delivery->group != group)
			continue;
		if (transaction_add(settlement, delivery, receives_max))
			break;
	}
}

size_t settlement_take(struct settlement *settlement, size_t receives_max, int64_t now_ms)
{
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
	if (settlement->taken_n == 0)
		waiting_take(settlement, receives_max);
	if (settlement->taken_n == 0)
		trial_take(settlement, receives_max, now_ms);
	return settlement->taken_receives;
}

int settlement_lock_suspect(const struct settlement *settlement)
{
	return settlement->lock_suspect;
}

size_t settlement_taken(const struct settlement *settlement)
{
	return settlement->taken_n;
}

const struct delivery *settlement_taken_at(const struct settlement *settlement, size_t i)
{
	check(i < settlement->taken_n);
	return settlement->taken[i];
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

static enum delivery_state state_after(struct settlement *settlement, struct delivery *delivery,
				       enum ending ending, const char *sqlstate)
{
	enum delivery_state state = DELIVERY_WAITING;

	if (ending == ENDED_COMMITTED)
		state = delivery_part_committed(delivery);
	else if (ending == ENDED_REFUSED_ALONE)
		state = delivery_part_refused(delivery, sqlstate);
	if (state == DELIVERY_WAITING &&
	    put_off_find(&settlement->put_off, delivery->message->coupon))
		state = DELIVERY_PUT_OFF;
	return state;
}

void transaction_end(struct settlement *settlement, enum ending ending, const char *sqlstate)
{
	for (size_t i = 0; i < settlement->taken_n; i++) {
		struct delivery *delivery = settlement->taken[i];

		if (delivery->epoch == settlement->epoch)
			books_set_state(settlement, delivery,
					state_after(settlement, delivery, ending, sqlstate));
		else
			delivery_free(delivery, settlement->envelope_free);
	}
	settlement->taken_n = 0;
	settlement->taken_receives = 0;
}

static void transaction_judged(struct settlement *settlement, enum ending ending,
			       const char *sqlstate)
{
	int64_t limited = trial_succeeded(settlement);

	transaction_end(settlement, ending, sqlstate);
	trial_rest(settlement, limited);
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
