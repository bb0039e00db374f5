#include "worker/consume/books.h"

#include "common/check.h"
#include "common/log/log.h"

#include <stdlib.h>

static void put_off_count(struct settlement *settlement, const struct delivery *delivery, int sign)
{
	struct put_off_coupon *put_off = put_off_find(&settlement->put_off,
						      delivery->message->coupon);

	if (put_off)
		put_off->held += (size_t)sign;
	if (delivery->state == DELIVERY_PUT_OFF && delivery->from_parking)
		settlement->put_off_parking_n += (size_t)sign;
}

int books_is_outgoing(enum delivery_state state)
{
	return state == DELIVERY_DEAD || state == DELIVERY_PARKING || state == DELIVERY_RESCUE;
}

/* Adds the delivery to the counts of the lists (`sign` 1), or subtracts it (-1). */
static void count(struct settlement *settlement, const struct delivery *delivery, int sign)
{
	struct parcel *parcel = delivery->parcel;

	settlement->in_state[delivery->state] += (size_t)sign;
	if (delivery->state == DELIVERY_WAITING && delivery->awaited)
		settlement->awaited_n += (size_t)sign;
	parcel->held += (size_t)sign;
	if (books_is_outgoing(delivery->state))
		parcel->outgoing += (size_t)sign;
	if (delivery->state != DELIVERY_DONE)
		parcel->left += (size_t)sign;
	if (delivery->state == DELIVERY_PUT_OFF || delivery->state == DELIVERY_PARKING)
		put_off_count(settlement, delivery, sign);
}

void books_set_state(struct settlement *settlement, struct delivery *delivery,
		     enum delivery_state state)
{
	/* [from] is the set of states that may follow it. */
	static const unsigned allowed[DELIVERY_STATES] = {
		[DELIVERY_WAITING] = 1u << DELIVERY_SENT | 1u << DELIVERY_PUT_OFF,
		[DELIVERY_PUT_OFF] = 1u << DELIVERY_SENT | 1u << DELIVERY_WAITING |
				     1u << DELIVERY_PARKING,
		[DELIVERY_SENT] = 1u << DELIVERY_WAITING | 1u << DELIVERY_PUT_OFF |
				  1u << DELIVERY_DONE | 1u << DELIVERY_DEAD,
		[DELIVERY_DEAD] = 1u << DELIVERY_DEAD_SENT,
		[DELIVERY_DEAD_SENT] = 1u << DELIVERY_DEAD | 1u << DELIVERY_DONE,
		[DELIVERY_PARKING] = 1u << DELIVERY_PARKING_SENT | 1u << DELIVERY_WAITING |
				     1u << DELIVERY_SENT,
		[DELIVERY_PARKING_SENT] = 1u << DELIVERY_PARKING | 1u << DELIVERY_DONE,
		[DELIVERY_RESCUE] = 1u << DELIVERY_RESCUE_SENT | 1u << DELIVERY_WAITING,
		[DELIVERY_RESCUE_SENT] = 1u << DELIVERY_WAITING | 1u << DELIVERY_DONE,
		[DELIVERY_DONE] = 0,
	};
	static const char *const names[DELIVERY_STATES] = {
		"waiting", "put_off",      "sent",   "dead",        "dead_sent",
		"parking", "parking_sent", "rescue", "rescue_sent", "done"
	};

	check(allowed[delivery->state] & 1u << state);
	trace_state(TRACE_DELIVERY, (int64_t)delivery->tag, names[delivery->state], names[state]);
	if (delivery->epoch == settlement->epoch)
		count(settlement, delivery, -1);
	delivery->state = state;
	if (delivery->epoch != settlement->epoch)
		return;
	count(settlement, delivery, 1);
	if (delivery->parcel->left == 0)
		settlement->finished_parcels++;
}

static struct parcel *parcel_append(struct settlement *settlement, struct delivery *delivery)
{
	struct parcel *parcel = calloc(1, sizeof(*parcel));

	check(parcel != NULL);
	parcel->tag = delivery->tag;
	parcel->first = delivery;
	parcel->older = settlement->newest_parcel;
	*(parcel->older ? &parcel->older->newer : &settlement->oldest_parcel) = parcel;
	settlement->newest_parcel = parcel;
	settlement->parcels++;
	return parcel;
}

void books_append(struct settlement *settlement, struct delivery *delivery)
{
	struct parcel *parcel = settlement->newest_parcel;

	check(!parcel || parcel->tag <= delivery->tag);
	if (!parcel || parcel->tag != delivery->tag)
		parcel = parcel_append(settlement, delivery);
	parcel->last = delivery;
	delivery->parcel = parcel;
	delivery->position = parcel->held;
	delivery->epoch = settlement->epoch;
	delivery->older = settlement->newest;
	*(settlement->newest ? &settlement->newest->newer : &settlement->oldest) = delivery;
	settlement->newest = delivery;
	count(settlement, delivery, 1);
}

void books_remove(struct settlement *settlement, struct parcel *parcel)
{
	struct delivery *delivery = parcel->first, *older = delivery->older,
			*newer = parcel->last->newer, *next;

	check(parcel->left == 0);
	*(older ? &older->newer : &settlement->oldest) = newer;
	*(newer ? &newer->older : &settlement->newest) = older;
	for (; delivery != newer; delivery = next) {
		next = delivery->newer;
		count(settlement, delivery, -1);
		delivery_free(delivery, settlement->envelope_free);
	}
	*(parcel->older ? &parcel->older->newer : &settlement->oldest_parcel) = parcel->newer;
	*(parcel->newer ? &parcel->newer->older : &settlement->newest_parcel) = parcel->older;
	settlement->parcels--;
	settlement->finished_parcels--;
	free(parcel);
}

static void parcels_free(struct settlement *settlement)
{
	struct parcel *next;

	for (struct parcel *parcel = settlement->oldest_parcel; parcel; parcel = next) {
		next = parcel->newer;
		free(parcel);
	}
	settlement->oldest_parcel = settlement->newest_parcel = NULL;
	settlement->parcels = settlement->finished_parcels = 0;
}

void books_clear(struct settlement *settlement)
{
	struct delivery *next;

	for (struct delivery *delivery = settlement->oldest; delivery; delivery = next) {
		next = delivery->newer;
		count(settlement, delivery, -1);
		delivery->parcel = NULL;
		if (delivery->state != DELIVERY_SENT)
			delivery_free(delivery, settlement->envelope_free);
	}
	settlement->oldest = settlement->newest = NULL;
	parcels_free(settlement);
}
