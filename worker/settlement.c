/*
 * Counts, states, and the lists of deliveries and parcels; deliveries that arrive, deliveries that
 * are forwarded, and acks.
 */
#include "worker/settlement.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/message.h"

#include <stdio.h>
#include <stdlib.h>

static int is_outgoing(enum delivery_state state)
{
	return state == DELIVERY_DEAD || state == DELIVERY_PARKING || state == DELIVERY_RESCUE;
}

/* Adds the delivery to the counts of the lists (`sign` 1), or subtracts it (-1). */
static void count(struct settlement *settlement, const struct delivery *delivery, int sign)
{
	struct parcel *parcel = delivery->parcel;
	struct put_off_coupon *put_off;

	settlement->in_state[delivery->state] += (size_t)sign;
	if (delivery->state == DELIVERY_WAITING && delivery->awaited)
		settlement->awaited_n += (size_t)sign;
	parcel->held += (size_t)sign;
	if (is_outgoing(delivery->state))
		parcel->outgoing += (size_t)sign;
	if (delivery->state != DELIVERY_DONE)
		parcel->left += (size_t)sign;

	if (delivery->state != DELIVERY_PUT_OFF && delivery->state != DELIVERY_PARKING)
		return;
	put_off = put_off_find(&settlement->put_off, delivery->coupon);
	if (put_off)
		put_off->held += (size_t)sign;
	if (delivery->state == DELIVERY_PUT_OFF && delivery->from_parking)
		settlement->put_off_parking_n += (size_t)sign;
}

/* The delivery is settled, or the operator's, or RabbitMQ delivers it again. */
static void copy_end(struct settlement *settlement, struct delivery *delivery)
{
	if (settlement->copies)
		copies_remove(settlement->copies, &delivery->copy);
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
	if (state == DELIVERY_DONE || state == DELIVERY_DEAD)
		copy_end(settlement, delivery);
	if (delivery->epoch != settlement->epoch)
		return;
	count(settlement, delivery, 1);
	if (delivery->parcel->left == 0)
		settlement->finished_parcels++;
}

/* Appends to the list; tags ascend. Those with the same tag are of one parcel. */
static void append(struct settlement *settlement, struct delivery *delivery)
{
	struct parcel *parcel = TAILQ_LAST(&settlement->parcels, parcels);

	check(!parcel || parcel->tag <= delivery->tag);
	if (!parcel || parcel->tag != delivery->tag) {
		parcel = checked(calloc(1, sizeof(*parcel)));
		parcel->tag = delivery->tag;
		parcel->first = delivery;
		TAILQ_INSERT_TAIL(&settlement->parcels, parcel, next);
		settlement->parcels_n++;
	}
	delivery->parcel = parcel;
	delivery->position = parcel->held;
	delivery->epoch = settlement->epoch;
	TAILQ_INSERT_TAIL(&settlement->deliveries, delivery, next);
	count(settlement, delivery, 1);

	/* A message that is only in RabbitMQ and here would be lost with RabbitMQ. */
	if (!settlement->copies || delivery->state == DELIVERY_DEAD)
		return;
	delivery->copy = (struct copy){ .batch = delivery->batch,
					.coupon = delivery->coupon,
					.generation = delivery->generation,
					.seq = delivery->seq + (int64_t)delivery->receives_n - 1,
					.receives = delivery->receives_n };
	delivery->copy.body = settlement->body_of(delivery->envelope, &delivery->copy.body_len);
	copies_add(settlement->copies, &delivery->copy);
}

/* Removes a finished parcel with its deliveries, and frees them. */
static void parcel_remove(struct settlement *settlement, struct parcel *parcel)
{
	struct delivery *delivery = parcel->first, *next;

	check(parcel->left == 0);
	for (; parcel->held > 0; delivery = next) {
		next = TAILQ_NEXT(delivery, next);
		TAILQ_REMOVE(&settlement->deliveries, delivery, next);
		count(settlement, delivery, -1);
		delivery_free(delivery, settlement->envelope_free);
	}
	TAILQ_REMOVE(&settlement->parcels, parcel, next);
	settlement->parcels_n--;
	settlement->finished_parcels--;
	free(parcel);
}

void settlement_reset(struct settlement *settlement)
{
	struct delivery *delivery;
	struct parcel *parcel;

	while ((delivery = TAILQ_FIRST(&settlement->deliveries))) {
		TAILQ_REMOVE(&settlement->deliveries, delivery, next);
		count(settlement, delivery, -1);
		copy_end(settlement, delivery);
		delivery->parcel = NULL;
		if (delivery->state != DELIVERY_SENT) /* those in flight stay in `taken` */
			delivery_free(delivery, settlement->envelope_free);
	}
	while ((parcel = TAILQ_FIRST(&settlement->parcels))) {
		TAILQ_REMOVE(&settlement->parcels, parcel, next);
		free(parcel);
	}
	settlement->parcels_n = settlement->finished_parcels = 0;
	settlement->epoch++;
}

struct settlement *settlement_new(void (*envelope_free)(void *envelope),
				  void (*noticed)(const struct put_off_coupon *notice),
				  size_t put_off_max, size_t parking_max)
{
	struct settlement *settlement = checked(calloc(1, sizeof(*settlement)));

	TAILQ_INIT(&settlement->deliveries);
	TAILQ_INIT(&settlement->parcels);
	settlement->envelope_free = envelope_free;
	settlement->noticed = noticed;
	settlement->epoch = 1;
	settlement->next_group = 1;
	settlement->put_off.first_ms = SETTLEMENT_PUT_OFF_FIRST_MS;
	settlement->put_off.longest_ms = SETTLEMENT_PUT_OFF_LONGEST_MS;
	settlement->put_off_max = put_off_max;
	settlement->parking_max = parking_max;
	return settlement;
}

void settlement_keep_copies(struct settlement *settlement, struct copies *copies,
			    const char *(*body_of)(const void *envelope, size_t *len))
{
	settlement->copies = copies;
	settlement->body_of = body_of;
}

void settlement_free(struct settlement *settlement)
{
	if (!settlement)
		return;
	settlement_reset(settlement);
	for (size_t i = 0; i < settlement->taken_n; i++)
		delivery_free(settlement->taken[i], settlement->envelope_free);
	put_off_clear(&settlement->put_off);
	free(settlement->taken);
	free(settlement);
}

void settlement_add(struct settlement *settlement, struct delivery *delivery, unsigned how)
{
	const struct delivery *before = TAILQ_LAST(&settlement->deliveries, deliveries);
	const struct put_off_coupon *put_off = put_off_find(&settlement->put_off, delivery->coupon);

	delivery->from_parking = (how & SETTLEMENT_FROM_PARKING) != 0;
	delivery->awaited = (how & SETTLEMENT_AWAITED) != 0;

	/* One that goes alone goes with the other batches of its message, or apart from them. */
	if (how & (SETTLEMENT_ALONE | SETTLEMENT_APART)) {
		if (before && before->tag == delivery->tag && before->group &&
		    !(how & SETTLEMENT_APART))
			delivery->group = before->group;
		else
			delivery->group = settlement->next_group++;
	}

	/*
	 * The coupon is put off: the delivery is held here while there is room, else parked. If
	 * nothing is held of the coupon, the trial takes this delivery.
	 */
	if (put_off)
		delivery->state = DELIVERY_PUT_OFF;
	if (put_off && !delivery->from_parking && settlement->parking_max > 0 &&
	    ((put_off->failures >= SETTLEMENT_PARK_FAILURES && put_off->held > 0) ||
	     settlement->in_state[DELIVERY_PUT_OFF] - settlement->put_off_parking_n >=
		     settlement->put_off_max))
		delivery->state = DELIVERY_PARKING;
	if (how & SETTLEMENT_RESCUE)
		delivery->state = DELIVERY_RESCUE;
	append(settlement, delivery);
}

void settlement_add_dead(struct settlement *settlement, uint64_t tag, const char *reason,
			 void *envelope)
{
	append(settlement, delivery_new_dead(tag, reason, envelope));
}

static void dead_add(struct unpack *unpack, uint64_t tag, const char *error, void *envelope)
{
	char reason[SETTLEMENT_REASON_SIZE];

	snprintf(reason, sizeof(reason), "unreadable: %s", error);
	settlement_add_dead(unpack->settlement, tag, reason, envelope);
}

struct delivery *receives_read(struct unpack *unpack, const char *text, size_t len,
			       const char **error)
{
	struct message *message = &unpack->batch.receives;

	return message_decode(unpack->arena, text, len, message, error)
		       ? NULL
		       : delivery_new(0, message, NULL);
}

struct delivery *uses_read(struct unpack *unpack, const char *text, size_t len, const char **error)
{
	struct use_message *message = &unpack->batch.uses;

	return use_message_decode(unpack->arena, text, len, message, error)
		       ? NULL
		       : delivery_new_uses(message);
}

/* `whole`: the envelope of the message that carries it with others; NULL: it is the message. */
static void batch_add(struct unpack *unpack, uint64_t tag, const char *text, size_t len,
		      unsigned how, void *envelope, const void *whole)
{
	const char *error = NULL;
	struct delivery *delivery = unpack->read(unpack, text, len, &error);

	if (whole)
		envelope = unpack->batch_envelope(whole, text, len,
						  delivery ? &delivery->batch : NULL);
	if (!delivery) {
		dead_add(unpack, tag, error, envelope);
		return;
	}
	delivery->tag = tag;
	delivery->envelope = envelope;
	settlement_add(unpack->settlement, delivery, how);
}

void unpack_add(struct unpack *unpack, uint64_t tag, const char *body, size_t len, unsigned how,
		void *envelope)
{
	struct packed packed;
	const char *text, *error;
	int is_packed = packed_open(&packed, body, len, &error);

	if (is_packed < 0) {
		dead_add(unpack, tag, error, envelope);
		return;
	}
	if (!is_packed) {
		batch_add(unpack, tag, body, len, how, envelope, NULL);
		return;
	}
	while (packed_next(&packed, &text, &len))
		batch_add(unpack, tag, text, len, how, NULL, envelope);
	unpack->settlement->envelope_free(envelope);
}

struct settlement_counts settlement_counts(const struct settlement *settlement)
{
	const size_t *in_state = settlement->in_state;

	return (struct settlement_counts){
		.held = settlement->parcels_n,
		.waiting = in_state[DELIVERY_WAITING],
		.awaited = settlement->awaited_n,
		.put_off = in_state[DELIVERY_PUT_OFF],
		.coupons = HASH_COUNT(settlement->put_off.coupons),
		.dead = in_state[DELIVERY_DEAD],
		.outgoing = in_state[DELIVERY_DEAD] + in_state[DELIVERY_PARKING] +
			    in_state[DELIVERY_RESCUE],
	};
}

int settlement_rests(const struct settlement *settlement)
{
	size_t n = 0;

	for (int state = 0; state < DELIVERY_STATES; state++)
		if (state != DELIVERY_DONE && state != DELIVERY_PUT_OFF)
			n += settlement->in_state[state];
	return n == 0 && settlement->finished_parcels == 0 && settlement->taken_n == 0;
}

const struct delivery *settlement_forward(struct settlement *settlement)
{
	static const enum delivery_state sent[DELIVERY_STATES] = {
		[DELIVERY_DEAD] = DELIVERY_DEAD_SENT,
		[DELIVERY_PARKING] = DELIVERY_PARKING_SENT,
		[DELIVERY_RESCUE] = DELIVERY_RESCUE_SENT,
	};
	const struct parcel *parcel = TAILQ_FIRST(&settlement->parcels);
	struct delivery *delivery;

	if (settlement_counts(settlement).outgoing == 0)
		return NULL;
	while (parcel->outgoing == 0)
		parcel = TAILQ_NEXT(parcel, next);
	delivery = parcel->first;
	while (!is_outgoing(delivery->state))
		delivery = TAILQ_NEXT(delivery, next);
	books_set_state(settlement, delivery, sent[delivery->state]);
	return delivery;
}

/* Nothing was published: the delivery is settled as any other. */
static void rescue_over(struct settlement *settlement, struct delivery *delivery)
{
	books_set_state(settlement, delivery, DELIVERY_WAITING);
	if (put_off_find(&settlement->put_off, delivery->coupon))
		books_set_state(settlement, delivery, DELIVERY_PUT_OFF);
}

void settlement_forwarded(struct settlement *settlement, uint64_t epoch, uint64_t tag,
			  size_t position, int is_confirmed)
{
	const struct parcel *parcel;
	struct delivery *delivery;

	if (epoch != settlement->epoch)
		return;
	TAILQ_FOREACH (parcel, &settlement->parcels, next)
		if (parcel->tag == tag)
			break;
	check(parcel != NULL && position < parcel->held);
	for (delivery = parcel->first; position > 0; position--)
		delivery = TAILQ_NEXT(delivery, next);

	if (is_confirmed) {
		books_set_state(settlement, delivery, DELIVERY_DONE);
	} else if (delivery->state == DELIVERY_DEAD_SENT) {
		books_set_state(settlement, delivery, DELIVERY_DEAD);
	} else if (delivery->state == DELIVERY_RESCUE_SENT) {
		rescue_over(settlement, delivery);
	} else {
		books_set_state(settlement, delivery, DELIVERY_PARKING);
		if (!put_off_find(&settlement->put_off, delivery->coupon))
			books_set_state(settlement, delivery,
					DELIVERY_WAITING); /* the lock ended meanwhile */
	}
}

void settlement_rescue_end(struct settlement *settlement)
{
	struct delivery *delivery;

	if (settlement->in_state[DELIVERY_RESCUE] == 0)
		return;
	TAILQ_FOREACH (delivery, &settlement->deliveries, next)
		if (delivery->state == DELIVERY_RESCUE)
			rescue_over(settlement, delivery);
}

int settlement_ack(struct settlement *settlement, uint64_t *tag, int *multiple)
{
	struct parcel *parcel = TAILQ_FIRST(&settlement->parcels);

	if (settlement->finished_parcels == 0)
		return 0;
	*multiple = 0;
	while (parcel->left > 0) /* an older one is still held: this one is acked alone */
		parcel = TAILQ_NEXT(parcel, next);
	*tag = parcel->tag;
	parcel_remove(settlement, parcel);
	/* Finished parcels at the front had only this one before them. */
	while ((parcel = TAILQ_FIRST(&settlement->parcels)) && parcel->left == 0) {
		*tag = parcel->tag;
		*multiple = 1;
		parcel_remove(settlement, parcel);
	}
	return 1;
}
