/*
 * The transactions of a worker, in a database that fails, refuses data, or has locked coupons.
 */
#pragma once

#include "tests/sim/worker_broker.h"

enum database_says { SAYS_COMMITTED, SAYS_REFUSED, SAYS_BLOCKED, SAYS_CANCELLED, SAYS_FAILED };

/* A worker's reply to the gateway that waits for it. */
static void replies_send(const struct worker_rig *worker)
{
	for (size_t i = 0; i < worker->settlement->taken_n; i++) {
		const struct delivery *delivery = worker->settlement->taken[i];
		uint64_t reply_to = *(uint64_t *)delivery->envelope;
		static struct reply reply;
		char *text;

		if (!reply_to || fault(FAULT_OUTCOME_LOST))
			continue;
		delivery_reply(delivery, &reply);
		text = malloc(REPLY_SIZE);
		event_in(1, 20, gateway_outcomes_arrive, text, reply_to, reply_write(&reply, text));
	}
}

struct outbox_removal {
	int64_t coupon;
	struct ulid batch;
};

static void outbox_removed(void *context, uint64_t a, uint64_t b)
{
	struct outbox_removal *removal = context;
	struct redis_coupon *coupon = redis_coupon(removal->coupon);

	(void)a;
	(void)b;
	if (redis.up && coupon)
		outbox_remove(coupon, &removal->batch);
	free(removal);
}

static void outboxes_remove(const struct worker_rig *worker)
{
	for (size_t i = 0; i < worker->settlement->taken_n; i++) {
		const struct delivery *delivery = worker->settlement->taken[i];
		struct outbox_removal *removal;

		if (!delivery_is_settled_by_part(delivery) || fault(FAULT_REMOVAL))
			continue;
		removal = malloc(sizeof(*removal));
		*removal = (struct outbox_removal){ delivery->coupon, delivery->batch };
		event_in(1, 40, outbox_removed, removal, 0, 0);
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
		for (size_t i = 0; i < worker->settlement->taken_n; i++)
			for (size_t j = worker->settlement->taken[i]->first;
			     j < worker->settlement->taken[i]->end; j++, position++)
				assert_int_equal(settlement_outcome(worker->settlement, position,
								    worker->outcomes[position]),
						 0);
		replies_send(worker);
		outboxes_remove(worker);
		settlement_commit(worker->settlement);
		break;
	case SAYS_REFUSED:
		settlement_refuse(worker->settlement, "22003");
		break;
	case SAYS_BLOCKED:
		blocked(worker);
		break;
	case SAYS_CANCELLED:
		settlement_blocked(worker->settlement, NULL, sim.now_ms);
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

	for (size_t i = 0; i < worker->settlement->taken_n; i++) {
		const struct delivery *delivery = worker->settlement->taken[i];

		for (size_t j = delivery->first; j < delivery->end; j++) {
			struct receive receive = { delivery->coupon, delivery->receives[j].user,
						   delivery->batch, (int)j };
			enum settled settled = database_settle_one(&receive,
								   delivery->receives[j].slot,
								   delivery->generation,
								   delivery->seq + (int64_t)j);

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
	for (size_t i = 0; i < worker->settlement->taken_n; i++)
		if (worker->settlement->taken[i]->coupon == POISON_COUPON)
			return 1;
	return 0;
}

/* Another session locks one coupon at random times, for a while. */
static int transaction_is_locked(const struct worker_rig *worker)
{
	for (size_t i = 0; i < worker->settlement->taken_n; i++) {
		int64_t coupon = worker->settlement->taken[i]->coupon;

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
