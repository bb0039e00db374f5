/*
 * The broker: it delivers, redelivers and duplicates messages, and checks every ack against the
 * database at once.
 */
#pragma once

#include "common/message/message.h"
#include "tests/sim/worker_state.h"

struct text {
	const char *at;
	size_t len;
};

/* The batch at this position of a message; NULL: it has no more. */
static struct text batch_text(const struct queued *message, size_t position)
{
	struct packed packed;
	struct text batch = { message->body, message->len };
	const char *error;

	if (packed_open(&packed, message->body, message->len, &error) <= 0)
		return position == 0 ? batch : (struct text){ 0 };
	do {
		if (!packed_next(&packed, &batch.at, &batch.len))
			return (struct text){ 0 };
	} while (position-- > 0);
	return batch;
}

static void worker_delivered(void *context, uint64_t incarnation, uint64_t tag)
{
	struct worker_rig *worker = context;
	struct queued *message;
	uint64_t *reply_to;

	if (incarnation != worker->incarnation)
		return;
	STAILQ_FOREACH (message, &worker->unacked, next)
		if (message->tag == tag)
			break;
	assert_non_null(message);
	reply_to = malloc(sizeof(*reply_to));
	*reply_to = message->reply_to;
	unpack_add(&worker->unpack, tag, message->body, message->len,
		   (message->deliveries > REDELIVERIES_ALONE ? SETTLEMENT_ALONE : 0) |
			   (message->deliveries > REDELIVERIES_APART ? SETTLEMENT_APART : 0) |
			   (message->parked ? SETTLEMENT_FROM_PARKING : 0),
		   reply_to);
	worker_turn(worker);
}

static void queue_deliver(struct worker_rig *worker, int queue)
{
	while (worker->up && worker->unacked_n[queue] < PREFETCH &&
	       !STAILQ_EMPTY(&broker.queue[queue])) {
		struct queued *message = STAILQ_FIRST(&broker.queue[queue]);

		STAILQ_REMOVE_HEAD(&broker.queue[queue], next);
		broker.queued_n--;
		STAILQ_INSERT_TAIL(&worker->unacked, message, next);
		worker->unacked_n[queue]++;
		message->tag = ++worker->next_tag;
		message->deliveries++;
		message->purges = broker.purges;
		event_at(sim.now_ms + 2, worker_delivered, worker, worker->incarnation,
			 message->tag);
	}
}

static void broker_deliver(void)
{
	for (size_t tries = 0; tries < WORKERS; tries++) {
		struct worker_rig *worker = &workers[sim_between(0, WORKERS - 1)];

		queue_deliver(worker, RECEIVES);
		queue_deliver(worker, PARKING);
	}
}

static void broker_enqueue(enum message_kind kind, const char *body, size_t len, uint64_t reply_to)
{
	for (int copies = 1 + fault(FAULT_DUPLICATE); copies > 0; copies--) {
		struct queued *message = malloc(sizeof(*message) + len);

		message->kind = kind;
		message->deliveries = 0;
		message->reply_to = reply_to;
		message->len = len;
		memcpy(message->body, body, len);
		message->parked = 0;
		STAILQ_INSERT_TAIL(&broker.queue[RECEIVES], message, next);
		broker.queued_n++;
		broker.odd_n += kind != MESSAGE_RECEIVES;
	}
	broker_deliver();
}

/* Messages that were not acked return to the head of their queue. */
static void broker_take_back(struct worker_rig *worker)
{
	struct queued_list back[2] = { STAILQ_HEAD_INITIALIZER(back[0]),
				       STAILQ_HEAD_INITIALIZER(back[1]) };
	struct queued *message;

	while ((message = STAILQ_FIRST(&worker->unacked))) {
		STAILQ_REMOVE_HEAD(&worker->unacked, next);
		STAILQ_INSERT_TAIL(&back[message->parked], message, next);
		broker.queued_n++;
	}
	for (int queue = RECEIVES; queue <= PARKING; queue++) {
		STAILQ_CONCAT(&back[queue], &broker.queue[queue]);
		STAILQ_CONCAT(&broker.queue[queue], &back[queue]);
		worker->unacked_n[queue] = 0;
	}
}

static int is_same_text(const struct queued *message, const struct text *batch)
{
	return message->len == batch->len && memcmp(message->body, batch->at, batch->len) == 0;
}

/* A copy of this batch is in the parking queue, or with a worker that got it from there. */
static int is_parked(const struct queued *acked, const struct text *batch)
{
	const struct queued *message;

	STAILQ_FOREACH (message, &broker.queue[PARKING], next)
		if (is_same_text(message, batch))
			return 1;
	for (int i = 0; i < WORKERS; i++)
		STAILQ_FOREACH (message, &workers[i].unacked, next)
			if (message != acked && message->parked && is_same_text(message, batch))
				return 1;
	return 0;
}

/*
 * P3: an acked message is gone from the queue, so all its receives must have an outcome, or they
 * must be in the parking queue, unless that was purged while a worker held the message.
 */
static void acked_check(struct worker_rig *worker, const struct queued *message)
{
	const char *error;
	struct text batch;

	if (message->kind != MESSAGE_RECEIVES) {
		broker.odd_n--;
		return;
	}
	for (size_t position = 0; (batch = batch_text(message, position)).at; position++) {
		sim_check(message_decode(worker->unpack.arena, batch.at, batch.len, &decoded,
					 &error) == 0,
			  "a body that does not parse: %s", error);
		for (size_t i = 0; i < decoded.receives_n; i++) {
			struct receive receive = { decoded.coupon, decoded.receives[i].user,
						   decoded.batch, (int)i };

			sim_check(row_issued(&receive) || row_rejected(&receive) ||
					  is_parked(message, &batch) ||
					  message->purges < broker.purges,
				  "P3: acked before it was committed or parked");
		}
	}
}

static void broker_ack(struct worker_rig *worker, uint64_t tag, int multiple)
{
	struct queued *message, *next;
	int found = 0;

	for (message = STAILQ_FIRST(&worker->unacked); message; message = next) {
		next = STAILQ_NEXT(message, next);
		if (message->tag == tag || (multiple && message->tag < tag)) {
			found |= message->tag == tag;
			STAILQ_REMOVE(&worker->unacked, message, queued, next);
			worker->unacked_n[message->parked]--;
			acked_check(worker, message);
			free(message);
		}
	}
	sim_check(found, "an ack of tag %llu, which is unknown to the broker",
		  (unsigned long long)tag);
	broker_deliver();
}

/* The messages that wait in the queue of receives. */
static size_t broker_waiting(void)
{
	const struct queued *message;
	size_t n = 0;

	STAILQ_FOREACH (message, &broker.queue[RECEIVES], next)
		n++;
	return n;
}

/* The broker loses every receive that waits in its queues. */
static void broker_purge(void)
{
	broker.purges++;
	for (int queue = RECEIVES; queue <= PARKING; queue++) {
		struct queued *message, *next;

		for (message = STAILQ_FIRST(&broker.queue[queue]); message; message = next) {
			next = STAILQ_NEXT(message, next);
			if (message->kind != MESSAGE_RECEIVES)
				continue;
			STAILQ_REMOVE(&broker.queue[queue], message, queued, next);
			broker.queued_n--;
			free(message);
		}
	}
}

static void queued_free(struct queued_list *list)
{
	struct queued *message;

	while ((message = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(message);
	}
}
