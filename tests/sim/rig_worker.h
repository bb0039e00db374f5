/*
 * The broker's queue and the workers: the real books of settlement (worker/settle/settlement.c)
 * between a queue that redelivers and a database that fails. Whatever is acked is checked against
 * the database at once.
 */
#ifndef TESTS_SIM_RIG_WORKER_H
#define TESTS_SIM_RIG_WORKER_H

#include "tests/sim/model_database.h"

/* Both sides have an outcome of their own, and never meet but here. */
#define OUTCOME_ISSUED WORKER_ISSUED
#define OUTCOME_REPEATED WORKER_REPEATED
#define OUTCOME_REJECTED WORKER_REJECTED
#include "worker/settle/reply.h"
#undef OUTCOME_ISSUED
#undef OUTCOME_REPEATED
#undef OUTCOME_REJECTED

#define WORKERS 2
#define PREFETCH 8
#define TRANSACTION_RECEIVES 300
#define REDELIVERIES_ALONE 2

enum message_kind { MESSAGE_RECEIVES, MESSAGE_GARBAGE, MESSAGE_POISON };

struct queued {
	STAILQ_ENTRY(queued) next;
	enum message_kind kind;
	uint64_t tag; /* while un-acked */
	int deliveries;
	uint64_t reply_to; /* incarnation of the gateway that waits, 0: none does */
	size_t len;
	char body[];
};

STAILQ_HEAD(queued_list, queued);

struct worker_rig {
	struct settlement *settlement;
	struct json_arena *arena;
	/*
	 * rises with every crash and every new connection: what is under way to an old one is void
	 */
	uint64_t incarnation;
	uint64_t process; /* rises with every crash */
	uint64_t next_tag;
	int up;
	struct queued_list unacked;
	size_t unacked_n;
	uint64_t transaction; /* 0: none is in flight */
	struct outcome outcomes[TRANSACTION_RECEIVES + MESSAGE_RECEIVES_MAX];
	int64_t retry_ms;
};

static struct {
	struct queued_list queue;
	size_t queued_n;
	size_t odd_n;  /* messages that must end dead-lettered */
	size_t dead_n; /* dead-lettered, some of them twice */
} broker;

static struct worker_rig workers[WORKERS];
static struct message decoded;

static void worker_turn(struct worker_rig *worker);
static void gateway_outcomes_arrive(void *context, uint64_t incarnation, uint64_t len);

static void worker_delivered(void *context, uint64_t incarnation, uint64_t tag)
{
	struct worker_rig *worker = context;
	struct queued *message;
	const char *error;
	uint64_t *reply_to;

	if (incarnation != worker->incarnation)
		return;
	STAILQ_FOREACH (message, &worker->unacked, next)
		if (message->tag == tag)
			break;
	assert_non_null(message);
	reply_to = malloc(sizeof(*reply_to));
	*reply_to = message->reply_to;
	if (message_decode(worker->arena, message->body, message->len, &decoded, &error))
		settlement_add_dead(worker->settlement, tag, error, reply_to);
	else
		settlement_add(worker->settlement, tag, &decoded,
			       message->deliveries > REDELIVERIES_ALONE, reply_to);
	worker_turn(worker);
}

static void broker_deliver(void)
{
	for (size_t tries = 0; tries < WORKERS; tries++) {
		struct worker_rig *worker = &workers[sim_between(0, WORKERS - 1)];

		while (worker->up && worker->unacked_n < PREFETCH && !STAILQ_EMPTY(&broker.queue)) {
			struct queued *message = STAILQ_FIRST(&broker.queue);

			STAILQ_REMOVE_HEAD(&broker.queue, next);
			broker.queued_n--;
			STAILQ_INSERT_TAIL(&worker->unacked, message, next);
			worker->unacked_n++;
			message->tag = ++worker->next_tag;
			message->deliveries++;
			event_at(sim.now_ms + 2, worker_delivered, worker, worker->incarnation,
				 message->tag);
		}
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
		STAILQ_INSERT_TAIL(&broker.queue, message, next);
		broker.queued_n++;
		broker.odd_n += kind != MESSAGE_RECEIVES;
	}
	broker_deliver();
}

static void worker_up(void *context, uint64_t incarnation, uint64_t b)
{
	struct worker_rig *worker = context;

	(void)b;
	if (incarnation != worker->incarnation)
		return;
	worker->up = 1;
	broker_deliver();
}

/* The connection is gone: the broker takes back what was not acked. */
static void worker_disconnect(struct worker_rig *worker)
{
	worker->incarnation++;
	worker->next_tag = 0;
	worker->up = 0;
	STAILQ_CONCAT(&worker->unacked, &broker.queue);
	STAILQ_CONCAT(&broker.queue, &worker->unacked);
	broker.queued_n += worker->unacked_n;
	worker->unacked_n = 0;
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
	worker->settlement = settlement_new(free);
	worker->process++;
	worker->transaction = 0;
}

/* P3: what is acked is gone from the queue, so all of it must have its outcome. */
static void acked_check(struct worker_rig *worker, const struct queued *message)
{
	const char *error;

	if (message->kind != MESSAGE_RECEIVES) {
		broker.odd_n--;
		return;
	}
	sim_check(message_decode(worker->arena, message->body, message->len, &decoded, &error) == 0,
		  "a body that does not parse: %s", error);
	for (size_t i = 0; i < decoded.receives_n; i++) {
		struct receive receive = { decoded.coupon, decoded.receives[i].user, decoded.batch,
					   (int)i };

		sim_check(row_issued(&receive) || row_rejected(&receive),
			  "P3: acked before it was committed");
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
			worker->unacked_n--;
			acked_check(worker, message);
			free(message);
		}
	}
	sim_check(found, "an ack of tag %llu, which the broker does not know",
		  (unsigned long long)tag);
	broker_deliver();
}

static void dead_told(void *context, uint64_t process, uint64_t epoch_and_tag)
{
	struct worker_rig *worker = context;
	uint64_t epoch = epoch_and_tag >> 32, tag = epoch_and_tag & UINT32_MAX;

	if (process != worker->process)
		return;
	if (fault(FAULT_DEAD)) {
		settlement_dead_failed(worker->settlement, epoch, tag);
	} else {
		broker.dead_n++;
		settlement_dead_done(worker->settlement, epoch, tag);
	}
	worker_turn(worker);
}

enum database_says { SAYS_COMMITTED, SAYS_REFUSED, SAYS_FAILED };

/* A worker's word to the gateway that waits for it. */
static void replies_send(const struct worker_rig *worker)
{
	for (size_t i = 0; i < settlement_taken(worker->settlement); i++) {
		const struct delivery *delivery = settlement_taken_at(worker->settlement, i);
		uint64_t reply_to = *(uint64_t *)delivery_envelope(delivery);
		char *text;

		if (!reply_to || fault(FAULT_OUTCOME_LOST))
			continue;
		text = malloc(REPLY_SIZE);
		event_in(1, 20, gateway_outcomes_arrive, text, reply_to,
			 reply_format(delivery, text));
	}
}

static void transaction_told(void *context, uint64_t transaction, uint64_t says)
{
	struct worker_rig *worker = context;
	size_t position = 0;

	if (transaction != worker->transaction)
		return;
	worker->transaction = 0;
	switch ((enum database_says)says) {
	case SAYS_COMMITTED:
		for (size_t i = 0; i < settlement_taken(worker->settlement); i++)
			for (size_t j = delivery_first(settlement_taken_at(worker->settlement, i));
			     j < delivery_end(settlement_taken_at(worker->settlement, i));
			     j++, position++)
				assert_int_equal(settlement_outcome(worker->settlement, position,
								    worker->outcomes[position]),
						 0);
		replies_send(worker);
		settlement_commit(worker->settlement);
		break;
	case SAYS_REFUSED:
		settlement_refuse(worker->settlement, "22003");
		break;
	case SAYS_FAILED:
		settlement_retry(worker->settlement);
		worker->retry_ms = sim.now_ms + sim_between(25, 200);
		break;
	}
	worker_turn(worker);
}

static void transaction_run(struct worker_rig *worker)
{
	size_t position = 0;

	for (size_t i = 0; i < settlement_taken(worker->settlement); i++) {
		const struct delivery *delivery = settlement_taken_at(worker->settlement, i);
		const struct delivery_message *m = delivery_message(delivery);

		for (size_t j = delivery_first(delivery); j < delivery_end(delivery); j++) {
			struct receive receive = { m->coupon, m->receives[j].user, m->batch,
						   (int)j };
			enum settled settled = database_settle_one(&receive, m->receives[j].slot,
								   m->generation,
								   m->seq + (int64_t)j);

			worker->outcomes[position++] = (struct outcome){
				settled == SETTLED_ISSUED     ? WORKER_ISSUED
				: settled == SETTLED_REPEATED ? WORKER_REPEATED
							      : WORKER_REJECTED,
				settled == SETTLED_REJECTED ? REASON_SLOT_TAKEN : REASON_NONE,
			};
		}
	}
}

static int transaction_has_poison(const struct worker_rig *worker)
{
	for (size_t i = 0; i < settlement_taken(worker->settlement); i++)
		if (delivery_message(settlement_taken_at(worker->settlement, i))->coupon ==
		    POISON_COUPON)
			return 1;
	return 0;
}

static void transaction_arrived(void *context, uint64_t transaction, uint64_t b)
{
	struct worker_rig *worker = context;
	enum database_says says = SAYS_COMMITTED;

	(void)b;
	if (transaction != worker->transaction)
		return;
	if (fault(FAULT_SETTLE)) {
		says = SAYS_FAILED;
	} else if (transaction_has_poison(worker)) {
		says = SAYS_REFUSED;
	} else {
		transaction_run(worker);
		if (fault(FAULT_COMMIT_LOST))
			says = SAYS_FAILED;
	}
	event_in(1, 10, transaction_told, worker, transaction, says);
}

static void worker_wakes(void *context, uint64_t process, uint64_t b)
{
	struct worker_rig *worker = context;

	(void)b;
	if (process == worker->process)
		worker_turn(worker);
}

/* One turn of the worker's loop. */
static void worker_turn(struct worker_rig *worker)
{
	static uint64_t transactions;
	const struct delivery *delivery;
	uint64_t tag;
	int multiple;

	if (!worker->transaction && worker->retry_ms > sim.now_ms)
		event_at(worker->retry_ms, worker_wakes, worker, worker->process, 0);
	else if (!worker->transaction &&
		 settlement_take(worker->settlement, TRANSACTION_RECEIVES) > 0) {
		worker->transaction = ++transactions;
		event_in(1, 15, transaction_arrived, worker, worker->transaction, 0);
	}
	while ((delivery = settlement_dead_take(worker->settlement)))
		event_in(1, 20, dead_told, worker, worker->process,
			 settlement_epoch(worker->settlement) << 32 | delivery_tag(delivery));
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
	STAILQ_INIT(&broker.queue);
	for (int i = 0; i < WORKERS; i++) {
		struct worker_rig *worker = &workers[i];

		memset(worker, 0, sizeof(*worker));
		STAILQ_INIT(&worker->unacked);
		worker->settlement = settlement_new(free);
		worker->arena = json_arena_new();
		worker->up = 1;
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

static void workers_stop(void)
{
	queued_free(&broker.queue);
	for (int i = 0; i < WORKERS; i++) {
		queued_free(&workers[i].unacked);
		settlement_free(workers[i].settlement);
		json_arena_free(workers[i].arena);
	}
}

#endif
