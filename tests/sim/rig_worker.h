/*
 * The workers: the real books of settlement (worker/consume/settlement.c) between the broker and
 * the database. A worker may crash or lose its connection at any event.
 */
#ifndef TESTS_SIM_RIG_WORKER_H
#define TESTS_SIM_RIG_WORKER_H

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

static void worker_crash(struct worker_rig *worker)
{
	worker_disconnect(worker);
	settlement_free(worker->settlement);
	worker->settlement = settlement_new(free, PREFETCH / 4, PREFETCH);
	worker->process++;
	worker->transaction = 0;
}

static void dead_told(void *context, uint64_t process, uint64_t epoch_and_tag)
{
	struct worker_rig *worker = context;
	uint64_t epoch = epoch_and_tag >> 32, tag = epoch_and_tag & UINT32_MAX;

	if (process != worker->process)
		return;
	if (fault(FAULT_DEAD)) {
		settlement_forward_failed(worker->settlement, epoch, tag);
	} else {
		broker.dead_n++;
		settlement_forwarded(worker->settlement, epoch, tag);
	}
	worker_turn(worker);
}

/* The broker has confirmed the copy, or the publish failed. */
static void parked_confirmed(void *context, uint64_t process, uint64_t epoch_and_tag)
{
	struct worker_rig *worker = context;
	uint64_t epoch = epoch_and_tag >> 32, tag = epoch_and_tag & UINT32_MAX;
	struct queued *message, *copy;

	if (process != worker->process)
		return;
	if (epoch != settlement_epoch(worker->settlement) || fault(FAULT_DEAD)) {
		settlement_forward_failed(worker->settlement, epoch, tag);
		worker_turn(worker);
		return;
	}
	STAILQ_FOREACH (message, &worker->unacked, next)
		if (message->tag == tag)
			break;
	assert_non_null(message);
	copy = malloc(sizeof(*copy) + message->len);
	*copy = *message;
	memcpy(copy->body, message->body, message->len);
	copy->parked = 1;
	copy->deliveries = 0;
	STAILQ_INSERT_TAIL(&broker.queue[PARKING], copy, next);
	broker.queued_n++;
	settlement_forwarded(worker->settlement, epoch, tag);
	worker_turn(worker);
	broker_deliver();
}

static void forward_all(struct worker_rig *worker)
{
	const struct delivery *delivery;
	enum destination destination;

	settlement_rotate(worker->settlement, sim.now_ms);
	while ((delivery = settlement_forward(worker->settlement, &destination)))
		event_in(1, 20, destination == DESTINATION_DEAD ? dead_told : parked_confirmed,
			 worker, worker->process,
			 settlement_epoch(worker->settlement) << 32 | delivery_tag(delivery));
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
		worker->settlement = settlement_new(free, PREFETCH / 4, PREFETCH);
		worker->arena = json_arena_new();
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
		json_arena_free(workers[i].arena);
	}
}

#endif
