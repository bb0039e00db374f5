/*
 * The workers: the real books of settlement (worker/settlement.c) between the broker and
 * the database. A worker may crash or lose its connection at any event.
 */
#pragma once

#include "tests/sim/worker_transactions.h"

static void worker_up(void *context, uint64_t incarnation, uint64_t b)
{
	struct worker_rig *worker = context;

	(void)b;
	if (incarnation != worker->incarnation)
		return;
	worker->up = 1;
	broker_deliver();
}

/* The connection is lost: the broker requeues the messages that were not acked. */
static void worker_disconnect(struct worker_rig *worker)
{
	worker->incarnation++;
	worker->next_tag = 0;
	worker->up = 0;
	broker_take_back(worker);
	event_in(10, 500, worker_up, worker, worker->incarnation, 0);
	broker_deliver();
}

static void worker_connection_cut(struct worker_rig *worker)
{
	worker_disconnect(worker);
	settlement_reset(worker->settlement);
}

static void *batch_envelope(const void *whole, const char *text, size_t len,
			    const struct ulid *batch)
{
	uint64_t *reply_to = malloc(sizeof(*reply_to));

	(void)text;
	(void)len;
	(void)batch;
	*reply_to = *(const uint64_t *)whole;
	return reply_to;
}

static void notice_ignore(const struct put_off_coupon *notice)
{
	(void)notice;
}

static void settlement_make(struct worker_rig *worker)
{
	worker->settlement = settlement_new(free, notice_ignore, PREFETCH / 4, PREFETCH);
	worker->unpack.settlement = worker->settlement;
	worker->unpack.read = receives_read;
	worker->unpack.batch_envelope = batch_envelope;
}

static void worker_crash(struct worker_rig *worker)
{
	worker_disconnect(worker);
	settlement_free(worker->settlement);
	settlement_make(worker);
	worker->process++;
	worker->transaction = 0;
}

/* A delivery whose copy is on its way, in the number that an event carries. */
struct forwarding {
	uint64_t epoch, tag;
	size_t position;
};

static uint64_t forwarding_number(const struct worker_rig *worker, const struct delivery *delivery)
{
	return worker->settlement->epoch << 40 | delivery->tag << 8 | delivery->position;
}

static struct forwarding forwarding_of(uint64_t number)
{
	return (struct forwarding){ number >> 40, number >> 8 & UINT32_MAX, number & UINT8_MAX };
}

static void forward_told(struct worker_rig *worker, const struct forwarding *it, int succeeded)
{
	if (succeeded)
		settlement_forwarded(worker->settlement, it->epoch, it->tag, it->position, 1);
	else
		settlement_forwarded(worker->settlement, it->epoch, it->tag, it->position, 0);
}

static void dead_told(void *context, uint64_t process, uint64_t number)
{
	struct worker_rig *worker = context;
	struct forwarding it = forwarding_of(number);
	int succeeded = !fault(FAULT_DEAD);

	if (process != worker->process)
		return;
	broker.dead_n += (size_t)succeeded;
	forward_told(worker, &it, succeeded);
	worker_turn(worker);
}

/* The broker has confirmed the copy, or the publish failed. */
static void parked_confirmed(void *context, uint64_t process, uint64_t number)
{
	struct worker_rig *worker = context;
	struct forwarding it = forwarding_of(number);
	struct queued *message, *copy;
	struct text batch;

	if (process != worker->process)
		return;
	if (it.epoch != worker->settlement->epoch || fault(FAULT_DEAD)) {
		forward_told(worker, &it, 0);
		worker_turn(worker);
		return;
	}
	STAILQ_FOREACH (message, &worker->unacked, next)
		if (message->tag == it.tag)
			break;
	assert_non_null(message);
	batch = batch_text(message, it.position);
	copy = malloc(sizeof(*copy) + batch.len);
	*copy = *message;
	copy->len = batch.len;
	memcpy(copy->body, batch.at, batch.len);
	copy->parked = 1;
	copy->deliveries = 0;
	STAILQ_INSERT_TAIL(&broker.queue[PARKING], copy, next);
	broker.queued_n++;
	forward_told(worker, &it, 1);
	worker_turn(worker);
	broker_deliver();
}

static void forward_all(struct worker_rig *worker)
{
	const struct delivery *delivery;

	settlement_rotate(worker->settlement, sim.now_ms);
	while ((delivery = settlement_forward(worker->settlement)))
		event_in(1, 20,
			 delivery->state == DELIVERY_DEAD_SENT ? dead_told : parked_confirmed,
			 worker, worker->process, forwarding_number(worker, delivery));
}

static void worker_wakes(void *context, uint64_t process, uint64_t b)
{
	struct worker_rig *worker = context;

	(void)b;
	if (process == worker->process)
		worker_turn(worker);
}

static void transaction_try(struct worker_rig *worker)
{
	static uint64_t transactions;
	int64_t trial_ms = settlement_trial_ms(worker->settlement);

	if (worker->transaction)
		return;
	if (worker->retry_ms > sim.now_ms) {
		event_at(worker->retry_ms, worker_wakes, worker, worker->process, 0);
	} else if (settlement_take(worker->settlement, TRANSACTION_RECEIVES, sim.now_ms) > 0) {
		worker->transaction = ++transactions;
		event_in(1, 15, transaction_arrived, worker, worker->transaction, 0);
	} else if (trial_ms < INT64_MAX) {
		event_at(trial_ms, worker_wakes, worker, worker->process, 0);
	}
}

/* One turn of the worker's loop. */
static void worker_turn(struct worker_rig *worker)
{
	uint64_t tag;
	int multiple;

	transaction_try(worker);
	forward_all(worker);
	while (settlement_ack(worker->settlement, &tag, &multiple)) {
		if (fault(FAULT_ACK_LOST)) {
			worker_connection_cut(worker);
			return;
		}
		broker_ack(worker, tag, multiple);
	}
}

static void workers_start(void)
{
	memset(&broker, 0, sizeof(broker));
	STAILQ_INIT(&broker.queue[RECEIVES]);
	STAILQ_INIT(&broker.queue[PARKING]);
	for (int i = 0; i < WORKERS; i++) {
		struct worker_rig *worker = &workers[i];

		memset(worker, 0, sizeof(*worker));
		STAILQ_INIT(&worker->unacked);
		worker->unpack.arena = json_arena_new();
		settlement_make(worker);
		worker->up = 1;
	}
}

static void workers_stop(void)
{
	queued_free(&broker.queue[RECEIVES]);
	queued_free(&broker.queue[PARKING]);
	for (int i = 0; i < WORKERS; i++) {
		queued_free(&workers[i].unacked);
		settlement_free(workers[i].settlement);
		json_arena_free(workers[i].unpack.arena);
	}
}
