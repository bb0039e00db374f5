#include "worker/consume/books.h"

#include "common/check.h"
#include "common/log/trace.h"

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

/* Adds the delivery to the counts of the list (`sign` 1), or subtracts it (-1). */
static void count(struct settlement *settlement, const struct delivery *delivery, int sign)
{
	settlement->in_state[delivery->state] += (size_t)sign;
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
	if (delivery->epoch == settlement->epoch)
		count(settlement, delivery, 1);
}

void books_append(struct settlement *settlement, struct delivery *delivery)
{
	check(!settlement->newest || settlement->newest->tag < delivery->tag);
	delivery->epoch = settlement->epoch;
	delivery->older = settlement->newest;
	*(settlement->newest ? &settlement->newest->newer : &settlement->oldest) = delivery;
	settlement->newest = delivery;
	settlement->held++;
	count(settlement, delivery, 1);
}

void books_remove(struct settlement *settlement, struct delivery *delivery)
{
	*(delivery->older ? &delivery->older->newer : &settlement->oldest) = delivery->newer;
	*(delivery->newer ? &delivery->newer->older : &settlement->newest) = delivery->older;
	settlement->held--;
	count(settlement, delivery, -1);
}

void books_clear(struct settlement *settlement)
{
	struct delivery *next;

	for (struct delivery *delivery = settlement->oldest; delivery; delivery = next) {
		next = delivery->newer;
		count(settlement, delivery, -1);
		if (delivery->state != DELIVERY_SENT)
			delivery_free(delivery, settlement->envelope_free);
	}
	settlement->oldest = settlement->newest = NULL;
	settlement->held = 0;
}
