#include "worker/settle/settlement.h"

#include "common/check.h"
#include "common/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum delivery_state {
	DELIVERY_WAITING,   /* for a transaction */
	DELIVERY_SENT,      /* in the transaction in flight */
	DELIVERY_DEAD,      /* to be dead-lettered */
	DELIVERY_DEAD_SENT, /* dead-lettered, the confirm is awaited */
	DELIVERY_DONE,      /* to be acked */
	DELIVERY_STATES
};

struct delivery {
	struct delivery *older, *newer;
	enum delivery_state state;
	uint64_t epoch;
	uint64_t tag;
	uint64_t group; /* 0: goes with any others; else only with those of the same group */
	/*
	 * the part that is tried, up to before `end`: the whole message, unless it was refused
	 * alone
	 */
	size_t first;
	size_t end;
	size_t bad_n; /* receives that were refused */
	size_t bad_first;
	void *envelope;
	char *reason;
	struct outcome *outcomes;
	struct delivery_message *message;
};

/*
 * A message with more receives that PostgreSQL refuses is not tried any further: it may well refuse
 * each.
 */
#define BAD_MAX 4

/*
 * All held deliveries stand in one list in the order of their tags, which is why a finished
 * beginning may be acked as one. Those of a transaction in flight also stand in `taken`; after a
 * reset only there.
 */
struct settlement {
	void (*envelope_free)(void *envelope);
	struct delivery *oldest, *newest;
	size_t held;
	size_t in_state[DELIVERY_STATES]; /* of those in the list */
	uint64_t epoch;
	uint64_t next_group;
	struct delivery **taken;
	size_t taken_n;
	size_t taken_size;
	size_t taken_receives;
};

static void *allocate(size_t size)
{
	void *memory = calloc(1, size);

	check(memory != NULL);
	return memory;
}

static void state_set(struct settlement *settlement, struct delivery *delivery,
		      enum delivery_state state)
{
	/* [from] is a set of states to which it may change. */
	static const unsigned allowed[DELIVERY_STATES] = {
		[DELIVERY_WAITING] = 1u << DELIVERY_SENT,
		[DELIVERY_SENT] = 1u << DELIVERY_WAITING | 1u << DELIVERY_DONE |
				  1u << DELIVERY_DEAD,
		[DELIVERY_DEAD] = 1u << DELIVERY_DEAD_SENT,
		[DELIVERY_DEAD_SENT] = 1u << DELIVERY_DEAD | 1u << DELIVERY_DONE,
		[DELIVERY_DONE] = 0,
	};
	static const char *const names[DELIVERY_STATES] = { "waiting", "sent", "dead", "dead_sent",
							    "done" };

	check(allowed[delivery->state] & 1u << state);
	trace_state(TRACE_DELIVERY, (int64_t)delivery->tag, names[delivery->state], names[state]);
	if (delivery->epoch == settlement->epoch) {
		settlement->in_state[delivery->state]--;
		settlement->in_state[state]++;
	}
	delivery->state = state;
}

static void delivery_free(struct settlement *settlement, struct delivery *delivery)
{
	if (delivery->envelope && settlement->envelope_free)
		settlement->envelope_free(delivery->envelope);
	free(delivery->reason);
	free(delivery->outcomes);
	free(delivery->message);
	free(delivery);
}

static void list_remove(struct settlement *settlement, struct delivery *delivery)
{
	*(delivery->older ? &delivery->older->newer : &settlement->oldest) = delivery->newer;
	*(delivery->newer ? &delivery->newer->older : &settlement->newest) = delivery->older;
	settlement->held--;
	settlement->in_state[delivery->state]--;
}

struct settlement *settlement_new(void (*envelope_free)(void *envelope))
{
	struct settlement *settlement = allocate(sizeof(*settlement));

	settlement->envelope_free = envelope_free;
	settlement->epoch = 1;
	settlement->next_group = 1;
	return settlement;
}

void settlement_free(struct settlement *settlement)
{
	if (!settlement)
		return;
	settlement_reset(settlement);
	for (size_t i = 0; i < settlement->taken_n; i++)
		delivery_free(settlement, settlement->taken[i]);
	free(settlement->taken);
	free(settlement);
}

static struct delivery *list_append(struct settlement *settlement, uint64_t tag,
				    enum delivery_state state, void *envelope)
{
	struct delivery *delivery = allocate(sizeof(*delivery));

	check(!settlement->newest || settlement->newest->tag < tag);
	delivery->state = state;
	delivery->epoch = settlement->epoch;
	delivery->tag = tag;
	delivery->envelope = envelope;
	delivery->older = settlement->newest;
	*(settlement->newest ? &settlement->newest->newer : &settlement->oldest) = delivery;
	settlement->newest = delivery;
	settlement->held++;
	settlement->in_state[state]++;
	return delivery;
}

static struct delivery_message *message_copy(const struct message *message)
{
	size_t receives_bytes = message->receives_n * sizeof(message->receives[0]);
	struct delivery_message *copy = allocate(sizeof(*copy) + receives_bytes);

	copy->batch = message->batch;
	copy->coupon = message->coupon;
	copy->generation = message->generation;
	copy->seq = message->seq;
	copy->at_ms = message->at_ms;
	copy->receives_n = message->receives_n;
	memcpy(copy->receives, message->receives, receives_bytes);
	return copy;
}

void settlement_add(struct settlement *settlement, uint64_t tag, const struct message *message,
		    int alone, void *envelope)
{
	struct delivery *delivery = list_append(settlement, tag, DELIVERY_WAITING, envelope);

	check(message->receives_n > 0 && message->receives_n <= MESSAGE_RECEIVES_MAX);
	delivery->message = message_copy(message);
	delivery->outcomes = allocate(message->receives_n * sizeof(*delivery->outcomes));
	delivery->end = message->receives_n;
	if (alone)
		delivery->group = settlement->next_group++;
}

static void reason_set(struct delivery *delivery, const char *reason)
{
	free(delivery->reason);
	delivery->reason = strndup(reason, SETTLEMENT_REASON_SIZE - 1);
	check(delivery->reason != NULL);
}

void settlement_add_dead(struct settlement *settlement, uint64_t tag, const char *reason,
			 void *envelope)
{
	reason_set(list_append(settlement, tag, DELIVERY_DEAD, envelope), reason);
}

size_t settlement_held(const struct settlement *settlement)
{
	return settlement->held;
}

size_t settlement_waiting(const struct settlement *settlement)
{
	return settlement->in_state[DELIVERY_WAITING];
}

size_t settlement_dead_waiting(const struct settlement *settlement)
{
	return settlement->in_state[DELIVERY_DEAD];
}

static size_t part_size(const struct delivery *delivery)
{
	return delivery->end - delivery->first;
}

static void taken_push(struct settlement *settlement, struct delivery *delivery)
{
	if (settlement->taken_n == settlement->taken_size) {
		settlement->taken_size = settlement->taken_size ? 2 * settlement->taken_size : 64;
		settlement->taken = realloc(settlement->taken,
					    settlement->taken_size * sizeof(struct delivery *));
		check(settlement->taken != NULL);
	}
	settlement->taken[settlement->taken_n++] = delivery;
	settlement->taken_receives += part_size(delivery);
	memset(delivery->outcomes + delivery->first, 0,
	       part_size(delivery) * sizeof(*delivery->outcomes));
	state_set(settlement, delivery, DELIVERY_SENT);
}

size_t settlement_take(struct settlement *settlement, size_t receives_max)
{
	struct delivery *delivery = settlement->oldest;
	uint64_t group;

	check(settlement->taken_n == 0);
	while (delivery && delivery->state != DELIVERY_WAITING)
		delivery = delivery->newer;
	if (!delivery)
		return 0;
	group = delivery->group;
	for (; delivery; delivery = delivery->newer) {
		if (delivery->state != DELIVERY_WAITING || delivery->group != group)
			continue;
		if (settlement->taken_n > 0 &&
		    settlement->taken_receives + part_size(delivery) > receives_max)
			break;
		taken_push(settlement, delivery);
	}
	return settlement->taken_receives;
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

		if (position < part_size(delivery)) {
			delivery->outcomes[delivery->first + position] = outcome;
			return 0;
		}
		position -= part_size(delivery);
	}
	return -1;
}

/* The part that was tried is done with: the rest is the next one. */
static enum delivery_state part_next(struct delivery *delivery)
{
	if (delivery->end == delivery->message->receives_n)
		return delivery->bad_n ? DELIVERY_DEAD : DELIVERY_DONE;
	delivery->first = delivery->end;
	delivery->end = delivery->message->receives_n;
	return DELIVERY_WAITING;
}

static void bad_add(struct delivery *delivery, size_t n, const char *sqlstate)
{
	char reason[SETTLEMENT_REASON_SIZE];
	size_t receives_n = delivery->message->receives_n;

	if (delivery->bad_n == 0)
		delivery->bad_first = delivery->first;
	delivery->bad_n += n;
	if (receives_n == 1)
		snprintf(reason, sizeof(reason), "unstorable: SQLSTATE %s", sqlstate);
	else
		snprintf(reason, sizeof(reason),
			 "unstorable: SQLSTATE %s, %zu of %zu receives from index %zu on", sqlstate,
			 delivery->bad_n, receives_n, delivery->bad_first);
	reason_set(delivery, reason);
}

/*
 * Refused alone: halves of it are tried; a receive that is refused alone is passed over, and the
 * message dead-lettered in the end.
 */
static enum delivery_state part_refused(struct delivery *delivery, const char *sqlstate)
{
	if (delivery->bad_n >= BAD_MAX)
		delivery->end = delivery->message->receives_n; /* none of the rest is tried */
	if (delivery->bad_n < BAD_MAX && part_size(delivery) > 1) {
		delivery->end = delivery->first + part_size(delivery) / 2;
		return DELIVERY_WAITING;
	}
	bad_add(delivery, part_size(delivery), sqlstate);
	return part_next(delivery);
}

/*
 * Where a delivery of a transaction goes that was committed, refused alone (`sqlstate`), or
 * neither.
 */
static enum delivery_state taken_next(struct delivery *delivery, int committed,
				      const char *sqlstate)
{
	if (committed)
		return part_next(delivery);
	return sqlstate ? part_refused(delivery, sqlstate) : DELIVERY_WAITING;
}

/* Ends the transaction; the deliveries of a lost connection are forgotten. */
static void taken_end(struct settlement *settlement, int committed, const char *sqlstate)
{
	for (size_t i = 0; i < settlement->taken_n; i++) {
		struct delivery *delivery = settlement->taken[i];

		if (delivery->epoch == settlement->epoch)
			state_set(settlement, delivery, taken_next(delivery, committed, sqlstate));
		else
			delivery_free(settlement, delivery);
	}
	settlement->taken_n = 0;
	settlement->taken_receives = 0;
}

void settlement_commit(struct settlement *settlement)
{
	taken_end(settlement, 1, NULL);
}

void settlement_retry(struct settlement *settlement)
{
	taken_end(settlement, 0, NULL);
}

void settlement_refuse(struct settlement *settlement, const char *sqlstate)
{
	size_t half = settlement->taken_n / 2;

	for (size_t i = 0; i < settlement->taken_n; i++)
		settlement->taken[i]->group = settlement->next_group + (i >= half);
	settlement->next_group += 2;
	taken_end(settlement, 0, settlement->taken_n == 1 ? sqlstate : NULL);
}

const struct delivery *settlement_dead_take(struct settlement *settlement)
{
	struct delivery *delivery = settlement->oldest;

	if (settlement->in_state[DELIVERY_DEAD] == 0)
		return NULL;
	while (delivery->state != DELIVERY_DEAD)
		delivery = delivery->newer;
	state_set(settlement, delivery, DELIVERY_DEAD_SENT);
	return delivery;
}

static void dead_end(struct settlement *settlement, uint64_t epoch, uint64_t tag,
		     enum delivery_state state)
{
	struct delivery *delivery = settlement->oldest;

	if (epoch != settlement->epoch)
		return;
	while (delivery && delivery->tag != tag)
		delivery = delivery->newer;
	check(delivery != NULL);
	state_set(settlement, delivery, state);
}

void settlement_dead_done(struct settlement *settlement, uint64_t epoch, uint64_t tag)
{
	dead_end(settlement, epoch, tag, DELIVERY_DONE);
}

void settlement_dead_failed(struct settlement *settlement, uint64_t epoch, uint64_t tag)
{
	dead_end(settlement, epoch, tag, DELIVERY_DEAD);
}

static void prefix_remove(struct settlement *settlement)
{
	while (settlement->oldest && settlement->oldest->state == DELIVERY_DONE) {
		struct delivery *delivery = settlement->oldest;

		list_remove(settlement, delivery);
		delivery_free(settlement, delivery);
	}
}

int settlement_ack(struct settlement *settlement, uint64_t *tag, int *multiple)
{
	struct delivery *delivery = settlement->oldest;

	if (settlement->in_state[DELIVERY_DONE] == 0)
		return 0;
	*multiple = 0;
	if (delivery->state == DELIVERY_DONE) {
		while (delivery->newer && delivery->newer->state == DELIVERY_DONE) {
			delivery = delivery->newer;
			*multiple = 1;
		}
		*tag = delivery->tag;
		prefix_remove(settlement);
		return 1;
	}
	/* Something older is still held: this one alone. */
	while (delivery->state != DELIVERY_DONE)
		delivery = delivery->newer;
	*tag = delivery->tag;
	list_remove(settlement, delivery);
	delivery_free(settlement, delivery);
	return 1;
}

void settlement_reset(struct settlement *settlement)
{
	struct delivery *next;

	for (struct delivery *delivery = settlement->oldest; delivery; delivery = next) {
		next = delivery->newer;
		if (delivery->state != DELIVERY_SENT)
			delivery_free(settlement, delivery);
	}
	settlement->oldest = settlement->newest = NULL;
	settlement->held = 0;
	memset(settlement->in_state, 0, sizeof(settlement->in_state));
	settlement->epoch++;
}

uint64_t settlement_epoch(const struct settlement *settlement)
{
	return settlement->epoch;
}

const struct delivery_message *delivery_message(const struct delivery *delivery)
{
	return delivery->message;
}

const struct outcome *delivery_outcomes(const struct delivery *delivery)
{
	return delivery->outcomes;
}

size_t delivery_first(const struct delivery *delivery)
{
	return delivery->first;
}

size_t delivery_end(const struct delivery *delivery)
{
	return delivery->end;
}

uint64_t delivery_tag(const struct delivery *delivery)
{
	return delivery->tag;
}

const char *delivery_reason(const struct delivery *delivery)
{
	return delivery->reason;
}

void *delivery_envelope(const struct delivery *delivery)
{
	return delivery->envelope;
}
