/* Deliveries that arrive, deliveries that are forwarded, acks; and the transaction in flight. */
#include "worker/consume/settlement.h"

#include "common/array.h"
#include "common/check.h"
#include "common/message/message.h"

#include <stdio.h>
#include <stdlib.h>

struct settlement *settlement_new(void (*envelope_free)(void *envelope),
				  void (*noticed)(const struct settlement_notice *notice),
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

/* A group for a delivery that goes alone: with the other batches of its message, or apart. */
static uint64_t group_of(struct settlement *settlement, uint64_t tag, unsigned how)
{
	const struct delivery *before = TAILQ_LAST(&settlement->deliveries, deliveries);

	if (before && before->tag == tag && before->group && !(how & SETTLEMENT_APART))
		return before->group;
	return settlement->next_group++;
}

void settlement_add(struct settlement *settlement, uint64_t tag, const struct message *message,
		    unsigned how, void *envelope)
{
	struct delivery *delivery = delivery_new(tag, message, envelope);
	const struct put_off_coupon *put_off = put_off_find(&settlement->put_off, message->coupon);

	delivery->from_parking = (how & SETTLEMENT_FROM_PARKING) != 0;
	delivery->awaited = (how & SETTLEMENT_AWAITED) != 0;
	if (how & (SETTLEMENT_ALONE | SETTLEMENT_APART))
		delivery->group = group_of(settlement, tag, how);
	if (how & SETTLEMENT_RESCUE)
		delivery->state = DELIVERY_RESCUE;
	else if (put_off)
		delivery->state = locked_state(settlement, delivery, put_off);
	books_append(settlement, delivery);
}

void settlement_add_dead(struct settlement *settlement, uint64_t tag, const char *reason,
			 void *envelope)
{
	books_append(settlement, delivery_new_dead(tag, reason, envelope));
}

static void dead_add(struct unpack *unpack, uint64_t tag, const char *error, void *envelope)
{
	char reason[SETTLEMENT_REASON_SIZE];

	snprintf(reason, sizeof(reason), "unreadable: %s", error);
	settlement_add_dead(unpack->settlement, tag, reason, envelope);
}

/* `whole`: the envelope of the message that carries it with others; NULL: it is the message. */
static void batch_add(struct unpack *unpack, uint64_t tag, const char *text, size_t len,
		      unsigned how, void *envelope, const void *whole)
{
	const struct message *message = &unpack->message;
	const char *error = NULL;
	int rc = message_decode(unpack->arena, text, len, &unpack->message, &error);

	if (whole)
		envelope = unpack->part_new(whole, text, len, rc ? NULL : &message->batch);
	if (rc == 0)
		settlement_add(unpack->settlement, tag, message, how, envelope);
	else
		dead_add(unpack, tag, error, envelope);
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
	while (!books_is_outgoing(delivery->state))
		delivery = TAILQ_NEXT(delivery, next);
	books_set_state(settlement, delivery, sent[delivery->state]);
	return delivery;
}

static struct delivery *delivery_find(const struct settlement *settlement, uint64_t epoch,
				      uint64_t tag, size_t position)
{
	const struct parcel *parcel;
	struct delivery *delivery;

	if (epoch != settlement->epoch)
		return NULL;
	TAILQ_FOREACH (parcel, &settlement->parcels, next)
		if (parcel->tag == tag)
			break;
	check(parcel != NULL && position < parcel->held);
	for (delivery = parcel->first; position > 0; position--)
		delivery = TAILQ_NEXT(delivery, next);
	return delivery;
}

/* It is settled as any other. */
static void rescue_over(struct settlement *settlement, struct delivery *delivery)
{
	books_set_state(settlement, delivery, DELIVERY_WAITING);
	if (put_off_find(&settlement->put_off, delivery->message->coupon))
		books_set_state(settlement, delivery, DELIVERY_PUT_OFF);
}

void settlement_forwarded(struct settlement *settlement, uint64_t epoch, uint64_t tag,
			  size_t position, int is_confirmed)
{
	struct delivery *delivery = delivery_find(settlement, epoch, tag, position);

	if (!delivery)
		return;
	if (is_confirmed) {
		books_set_state(settlement, delivery, DELIVERY_DONE);
	} else if (delivery->state == DELIVERY_DEAD_SENT) {
		books_set_state(settlement, delivery, DELIVERY_DEAD);
	} else if (delivery->state == DELIVERY_RESCUE_SENT) {
		rescue_over(settlement, delivery);
	} else {
		books_set_state(settlement, delivery, DELIVERY_PARKING);
		if (!put_off_find(&settlement->put_off, delivery->message->coupon))
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
	books_remove(settlement, parcel);
	/* What is finished at the front then had this one before it. */
	while ((parcel = TAILQ_FIRST(&settlement->parcels)) && parcel->left == 0) {
		*tag = parcel->tag;
		*multiple = 1;
		books_remove(settlement, parcel);
	}
	return 1;
}

void settlement_reset(struct settlement *settlement)
{
	books_clear(settlement);
	settlement->epoch++;
}

/* The transaction in flight: which deliveries it takes, and what its end means for each of them. */

int transaction_add(struct settlement *settlement, struct delivery *delivery, size_t receives_max)
{
	/* There is always room for one. */
	if (settlement->taken_n > 0 &&
	    settlement->taken_receives + delivery_part_size(delivery) > receives_max)
		return -1;
	settlement->taken = array_room(settlement->taken, settlement->taken_n,
				       &settlement->taken_size, sizeof(struct delivery *));
	settlement->taken[settlement->taken_n++] = delivery;
	settlement->taken_receives += delivery_part_size(delivery);
	settlement->lock_suspect |= delivery->lock_suspect;
	delivery_part_begin(delivery);
	books_set_state(settlement, delivery, DELIVERY_SENT);
	return 0;
}

/* The oldest that waits, and those that go with it. */
static void waiting_take(struct settlement *settlement, size_t receives_max)
{
	struct delivery *delivery;

	TAILQ_FOREACH (delivery, &settlement->deliveries, next) {
		if (delivery->state != DELIVERY_WAITING ||
		    (settlement->taken_n > 0 && delivery->group != settlement->taken[0]->group))
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
