/*
 * Random histories of settlement. A model of the broker: a tag is either un-acked or acked, and an
 * ack is right only when everything it covers has been committed, or confirmed as forwarded.
 */
#include "tests/unit/settlement_rig.h"

enum truth { ABSENT, HELD, FINISHED, ACKED };

struct model {
	enum truth truth[4096];
	unsigned settled[4096]; /* a bit for each receive that was committed */
	int refused[4096];      /* one of its receives was refused alone */
	unsigned locked;        /* a bit for each coupon that another session holds */
	int64_t now_ms;
	uint64_t next_tag;
};

#define COUPONS 5

static int model_is_locked(const struct model *model, const struct settlement *s)
{
	for (size_t i = 0; i < settlement_taken(s); i++)
		if (model->locked & 1u << coupon_of(s, i))
			return 1;
	return 0;
}

/* Cancelled; or blocked, and a look shows all locks, or none. */
static void model_blocked(struct model *model, struct settlement *s, int how)
{
	int64_t locked[COUPONS];
	size_t n = 0;

	for (int64_t coupon = 0; coupon < COUPONS; coupon++)
		if (how == 1 && model->locked & 1u << coupon)
			locked[n++] = coupon;
	if (how == 2)
		settlement_cancelled(s, model->now_ms);
	else
		blocked_by(s, locked, n, model->now_ms);
}

/* A copy of a parked delivery, from the parking queue. */
static void model_park(struct model *model, struct settlement *s, const struct delivery *delivery)
{
	uint64_t tag = delivery_tag(delivery);

	model->truth[model->next_tag] = HELD;
	add_coupon(s, model->next_tag++, delivery_message(delivery)->coupon,
		   delivery_message(delivery)->receives_n, SETTLEMENT_FROM_PARKING);
	model->truth[tag] = FINISHED;
	settlement_forwarded(s, settlement_epoch(s), tag);
}

/*
 * The transaction in flight is committed: a delivery is finished when all of it is, and nothing of
 * it was refused.
 */
static void model_commit(struct model *model, const struct settlement *s)
{
	for (size_t i = 0; i < settlement_taken(s); i++) {
		const struct delivery *delivery = settlement_taken_at(s, i);
		uint64_t tag = delivery_tag(delivery);

		for (size_t j = delivery_first(delivery); j < delivery_end(delivery); j++) {
			assert_false(model->settled[tag] & 1u << j);
			model->settled[tag] |= 1u << j;
		}
		if (model->settled[tag] == (1u << delivery_message(delivery)->receives_n) - 1)
			model->truth[tag] = FINISHED;
		else if (delivery_end(delivery) == delivery_message(delivery)->receives_n)
			assert_true(model->refused[tag]);
	}
}

static void model_refuse(struct model *model, const struct settlement *s)
{
	const struct delivery *delivery = settlement_taken_at(s, 0);

	if (settlement_taken(s) == 1 && delivery_end(delivery) - delivery_first(delivery) == 1)
		model->refused[delivery_tag(delivery)] = 1;
}

static void model_ack(struct model *model, uint64_t tag, int multiple)
{
	assert_true(tag > 0 && tag < model->next_tag);
	for (uint64_t t = multiple ? 1 : tag; t <= tag; t++) {
		if (model->truth[t] == ACKED && t != tag)
			continue;
		assert_int_equal(model->truth[t], FINISHED);
		model->truth[t] = ACKED;
	}
}

struct history {
	struct settlement *s;
	struct model model;
	unsigned random;
	uint64_t dead[4096]; /* taken to be dead-lettered, without a confirm yet */
	size_t dead_n;
};

static unsigned random_below(struct history *history, unsigned n)
{
	return (unsigned)rand_r(&history->random) % n;
}

static void delivery_arrives(struct history *history)
{
	int64_t coupon = random_below(history, COUPONS);
	size_t receives = 1 + random_below(history, 5);
	unsigned how = random_below(history, 8) == 0 ? SETTLEMENT_ALONE : 0;

	history->model.truth[history->model.next_tag] = HELD;
	add_coupon(history->s, history->model.next_tag++, coupon, receives, how);
}

static void unreadable_arrives(struct history *history)
{
	history->model.truth[history->model.next_tag] = HELD;
	settlement_add_dead(history->s, history->model.next_tag++, "unreadable", envelope_make());
}

static void transaction_end(struct history *history)
{
	struct settlement *s = history->s;

	if (random_below(history, 4) == 0) {
		settlement_retry(s);
	} else if (model_is_locked(&history->model, s)) {
		model_blocked(&history->model, s, (int)random_below(history, 3));
	} else if (random_below(history, 4) == 0) {
		model_refuse(&history->model, s);
		settlement_refuse(s, "22000");
	} else {
		model_commit(&history->model, s);
		settlement_commit(s);
	}
}

/* Takes the next delivery to forward; returns whether there was one. */
static int forward_next(struct history *history)
{
	enum destination destination;
	const struct delivery *delivery = settlement_forward(history->s, &destination);

	if (!delivery)
		return 0;
	if (destination == DESTINATION_PARKING)
		model_park(&history->model, history->s, delivery);
	else
		history->dead[history->dead_n++] = delivery_tag(delivery);
	return 1;
}

static void dead_confirmed(struct history *history)
{
	uint64_t tag = history->dead[--history->dead_n];

	history->model.truth[tag] = FINISHED;
	settlement_forwarded(history->s, settlement_epoch(history->s), tag);
}

static void dead_refused(struct history *history)
{
	settlement_forward_failed(history->s, settlement_epoch(history->s),
				  history->dead[--history->dead_n]);
}

static void acks_take(struct history *history)
{
	uint64_t tag;
	int multiple;

	while (settlement_ack(history->s, &tag, &multiple))
		model_ack(&history->model, tag, multiple);
}

static void history_step(struct history *history)
{
	struct settlement *s = history->s;

	switch (random_below(history, 13)) {
	case 0:
	case 1:
	case 2:
	case 3:
		delivery_arrives(history);
		break;
	case 4:
		unreadable_arrives(history);
		break;
	case 5:
	case 6:
		if (settlement_taken(s) == 0)
			settlement_take(s, 1 + random_below(history, 20), history->model.now_ms);
		break;
	case 7:
	case 8:
		if (settlement_taken(s) > 0)
			transaction_end(history);
		break;
	case 9:
		forward_next(history);
		break;
	case 10:
		if (history->dead_n > 0 && random_below(history, 3))
			dead_confirmed(history);
		else if (history->dead_n > 0)
			dead_refused(history);
		break;
	case 11:
		acks_take(history);
		break;
	case 12:
		history->model.locked ^= 1u << random_below(history, COUPONS);
		break;
	}
}

/* The locks end, and everything is finished. */
static void history_end(struct history *history)
{
	struct model *model = &history->model;

	if (settlement_taken(history->s) > 0)
		settlement_retry(history->s);
	for (int turn = 0; turn < 1000; turn++, model->now_ms += 100) {
		while (forward_next(history))
			;
		if (settlement_take(history->s, 1000, model->now_ms) == 0)
			continue;
		model_commit(model, history->s);
		settlement_commit(history->s);
	}
	assert_int_equal(settlement_put_off_coupons(history->s), 0);
	while (history->dead_n > 0)
		dead_confirmed(history);
	acks_take(history);
	assert_int_equal(settlement_held(history->s), 0);
	for (uint64_t tag = 1; tag < model->next_tag; tag++)
		assert_int_equal(model->truth[tag], ACKED);
}

static void history_run(unsigned seed)
{
	struct history history = { .s = settlement_new(envelope_drop, 16, 16),
				   .model = { .next_tag = 1 },
				   .random = seed };

	for (int step = 0; step < 600; step++) {
		history.model.now_ms += random_below(&history, 50);
		settlement_rotate(history.s, history.model.now_ms);
		history_step(&history);
	}
	history_end(&history);
	settlement_free(history.s);
}

static unsigned seed_running; /* 0: none */

static void test_random_histories(void **state)
{
	(void)state;
	for (seed_running = 1; seed_running <= 500; seed_running++)
		history_run(seed_running);
	seed_running = 0;
	assert_int_equal(envelopes, 0);
}

static int seed_report(void **state)
{
	(void)state;
	if (seed_running)
		print_error("failed with seed %u\n", seed_running);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_random_histories, seed_report),
	};

	return cmocka_run_group_tests_name("settlement_history", tests, NULL, NULL);
}
