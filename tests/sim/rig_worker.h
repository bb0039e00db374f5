/*
 * The broker's queue and the workers: the real books of settlement (worker/consume/settlement.c)
 * between a queue that redelivers and a database that fails. Every ack is checked against the
 * database at once.
 */
#ifndef TESTS_SIM_RIG_WORKER_H
#define TESTS_SIM_RIG_WORKER_H

#include "tests/sim/model_database.h"

/* Both sides have an enum outcome of their own; only here they are used together. */
#define OUTCOME_ISSUED WORKER_ISSUED
#define OUTCOME_REPEATED WORKER_REPEATED
#define OUTCOME_REJECTED WORKER_REJECTED
#include "worker/consume/settlement.h"
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
	int parked;        /* in the parking queue, or delivered from it */
	uint64_t reply_to; /* incarnation of the gateway that waits, 0: none does */
	size_t len;
	char body[];
};

STAILQ_HEAD(queued_list, queued);

struct worker_rig {
	struct settlement *settlement;
	struct json_arena *arena;
	/*
	 * rises with every crash and every new connection: data in flight to an old one is dropped
	 */
	uint64_t incarnation;
	uint64_t process; /* rises with every crash */
	uint64_t next_tag;
	int up;
	struct queued_list unacked;
	size_t unacked_n[2];  /* of the receive queue, and of the parking queue */
	uint64_t transaction; /* 0: none is in flight */
	struct outcome outcomes[TRANSACTION_RECEIVES + MESSAGE_RECEIVES_MAX];
	int64_t retry_ms;
};

/* Of the receive queue and of the parking queue. */
enum { RECEIVES, PARKING };

static struct {
	struct queued_list queue[2];
	size_t queued_n; /* in both */
	size_t odd_n;    /* messages that must end dead-lettered */
	size_t dead_n;   /* dead-lettered, some of them twice */
} broker;

static struct worker_rig workers[WORKERS];

/* What another session has locked. */
static struct {
	int64_t coupon;
	int64_t until_ms;
	int is_shown; /* by a look */
} locked;

static struct message decoded;

static size_t unacked(const struct worker_rig *worker)
{
	return worker->unacked_n[RECEIVES] + worker->unacked_n[PARKING];
}

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
			       (message->deliveries > REDELIVERIES_ALONE ? SETTLEMENT_ALONE : 0) |
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

static void worker_up(void *context, uint64_t incarnation, uint64_t b)
{
	struct worker_rig *worker = context;

	(void)b;
	if (incarnation != worker->incarnation)
		return;
	worker->up = 1;
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

/* A copy of this message is in the parking queue, or with a worker that got it from there. */
static int is_parked(const struct queued *acked)
{
	const struct queued *message;

	STAILQ_FOREACH (message, &broker.queue[PARKING], next)
		if (message->len == acked->len &&
		    memcmp(message->body, acked->body, acked->len) == 0)
			return 1;
	for (int i = 0; i < WORKERS; i++)
		STAILQ_FOREACH (message, &workers[i].unacked, next)
			if (message != acked && message->parked && message->len == acked->len &&
			    memcmp(message->body, acked->body, acked->len) == 0)
				return 1;
	return 0;
}

/*
 * P3: an acked message is gone from the queue, so all its receives must have an outcome, or it must
 * be in the parking queue.
 */
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

		sim_check(row_issued(&receive) || row_rejected(&receive) || is_parked(message),
			  "P3: acked before it was committed or parked");
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

enum database_says { SAYS_COMMITTED, SAYS_REFUSED, SAYS_BLOCKED, SAYS_CANCELLED, SAYS_FAILED };

/* A worker's reply to the gateway that waits for it. */
static void replies_send(const struct worker_rig *worker)
{
	for (size_t i = 0; i < settlement_taken(worker->settlement); i++) {
		const struct delivery *delivery = settlement_taken_at(worker->settlement, i);
		uint64_t reply_to = *(uint64_t *)delivery_envelope(delivery);
		char *text;

		if (!reply_to || fault(FAULT_OUTCOME_LOST))
			continue;
		text = malloc(DELIVERY_REPLY_SIZE);
		event_in(1, 20, gateway_outcomes_arrive, text, reply_to,
			 delivery_reply(delivery, text));
	}
}

/* The look shows some locks on rows of coupons, and none on rows of user coupons. */
static void blocked(struct worker_rig *worker)
{
	struct lock_look look = { .locked = &locked.coupon };

	look.n = sim.now_ms < locked.until_ms && locked.is_shown;
	settlement_blocked(worker->settlement, &look, sim.now_ms);
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
	case SAYS_BLOCKED:
		blocked(worker);
		break;
	case SAYS_CANCELLED:
		settlement_cancelled(worker->settlement, sim.now_ms);
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

/* Another session locks one coupon at random times, for a while. */
static int transaction_is_locked(const struct worker_rig *worker)
{
	for (size_t i = 0; i < settlement_taken(worker->settlement); i++) {
		int64_t coupon =
			delivery_message(settlement_taken_at(worker->settlement, i))->coupon;

		if (fault(FAULT_LOCK) && coupon != POISON_COUPON) {
			locked.coupon = coupon;
			locked.until_ms = sim.now_ms + sim_between(50, 3000);
			locked.is_shown = (int)sim_between(0, 1);
		}
		if (coupon == locked.coupon && sim.now_ms < locked.until_ms)
			return 1;
	}
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
	} else if (transaction_is_locked(worker)) {
		says = locked.is_shown || sim_between(0, 1) ? SAYS_BLOCKED : SAYS_CANCELLED;
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
	queued_free(&broker.queue[RECEIVES]);
	queued_free(&broker.queue[PARKING]);
	for (int i = 0; i < WORKERS; i++) {
		queued_free(&workers[i].unacked);
		settlement_free(workers[i].settlement);
		json_arena_free(workers[i].arena);
	}
}

#endif
