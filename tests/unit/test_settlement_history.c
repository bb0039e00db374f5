/*
 * Random histories of settlement. A model of the broker: a tag is either un-acked or acked, and an
 * ack is right only when everything it covers has been committed, or confirmed as forwarded. A tag
 * covers one batch or several; the model numbers the batches of all tags, as `item`.
 */
#include "tests/unit/settlement_rig.h"

enum truth { ABSENT, HELD, FINISHED, ACKED };

#define COUPONS 5
#define ITEMS_MAX 16384
#define PARTS_MAX 6

struct model {
	enum truth truth[ITEMS_MAX];
	unsigned settled[ITEMS_MAX]; /* a bit for each receive that was committed */
	int refused[ITEMS_MAX];      /* one of its receives was refused alone */
	unsigned locked;             /* a bit for each coupon that another session holds */
	int64_t now_ms;
	uint64_t next_tag;
	size_t first[ITEMS_MAX]; /* the first item of each tag; of next_tag: the next item */
};

/* The next tag has so many batches. */
static void model_add(struct model *model, size_t parts)
{
	size_t *first = &model->first[model->next_tag];

	assert_true(first[0] + parts < ITEMS_MAX && model->next_tag + 1 < ITEMS_MAX);
	for (size_t i = 0; i < parts; i++)
		model->truth[first[0] + i] = HELD;
	first[1] = first[0] + parts;
	model->next_tag++;
}

static size_t item_of(const struct model *model, const struct delivery *delivery)
{
	return model->first[delivery->tag] + delivery->position;
}

static int model_is_locked(const struct model *model, const struct settlement *s)
{
	for (size_t i = 0; i < s->taken_n; i++)
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
		settlement_blocked(s, NULL, model->now_ms);
	else
		blocked_by(s, locked, n, model->now_ms);
}

/* A copy of a parked delivery, from the parking queue. */
static void model_park(struct model *model, struct settlement *s, const struct delivery *delivery)
{
	add_coupon(s, model->next_tag, delivery->coupon, delivery->receives_n,
		   SETTLEMENT_FROM_PARKING);
	model_add(model, 1);
	model->truth[item_of(model, delivery)] = FINISHED;
	settlement_forwarded(s, s->epoch, delivery->tag, delivery->position, 1);
}

/*
 * The transaction in flight is committed: a delivery is finished when all of it is, and nothing of
 * it was refused.
 */
static void model_commit(struct model *model, const struct settlement *s)
{
	for (size_t i = 0; i < s->taken_n; i++) {
		const struct delivery *delivery = s->taken[i];
		size_t item = item_of(model, delivery);

		for (size_t j = delivery->first; j < delivery->end; j++) {
			assert_false(model->settled[item] & 1u << j);
			model->settled[item] |= 1u << j;
		}
		if (model->settled[item] == (1u << delivery->receives_n) - 1)
			model->truth[item] = FINISHED;
		else if (delivery->end == delivery->receives_n)
			assert_true(model->refused[item]);
	}
}

static void model_refuse(struct model *model, const struct settlement *s)
{
	const struct delivery *delivery = s->taken[0];

	if (s->taken_n == 1 && delivery->end - delivery->first == 1)
		model->refused[item_of(model, delivery)] = 1;
}

static void model_ack(struct model *model, uint64_t tag, int multiple)
{
	assert_true(tag > 0 && tag < model->next_tag);
	for (size_t item = model->first[multiple ? 1 : tag]; item < model->first[tag + 1]; item++) {
		if (model->truth[item] == ACKED && item < model->first[tag])
			continue;
		assert_int_equal(model->truth[item], FINISHED);
		model->truth[item] = ACKED;
	}
}

struct history {
	struct settlement *s;
	struct model model;
	unsigned random;
	const struct delivery *dead[4096]; /* to be dead-lettered, without a confirm yet */
	size_t dead_n;
};

static unsigned random_below(struct history *history, unsigned n)
{
	return (unsigned)rand_r(&history->random) % n;
}

/* A message of one batch or several, some of which cannot be read. */
static void message_arrives(struct history *history)
{
	size_t parts = random_below(history, 2) ? 1 : 1 + random_below(history, PARTS_MAX);
	unsigned how = random_below(history, 8) == 0   ? SETTLEMENT_ALONE
		       : random_below(history, 8) == 0 ? SETTLEMENT_APART
						       : 0;
	uint64_t tag = history->model.next_tag;

	for (size_t i = 0; i < parts; i++)
		if (random_below(history, 8) == 0)
			settlement_add_dead(history->s, tag, "unreadable", envelope_make());
		else
			add_coupon(history->s, tag, random_below(history, COUPONS),
				   1 + random_below(history, 5), how);
	model_add(&history->model, parts);
}

static void transaction_ends(struct history *history)
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
	const struct delivery *delivery = settlement_forward(history->s);

	if (!delivery)
		return 0;
	if (delivery->state == DELIVERY_PARKING_SENT)
		model_park(&history->model, history->s, delivery);
	else
		history->dead[history->dead_n++] = delivery;
	return 1;
}

static void dead_confirmed(struct history *history)
{
	const struct delivery *delivery = history->dead[--history->dead_n];

	history->model.truth[item_of(&history->model, delivery)] = FINISHED;
	settlement_forwarded(history->s, history->s->epoch, delivery->tag, delivery->position, 1);
}

static void dead_refused(struct history *history)
{
	const struct delivery *delivery = history->dead[--history->dead_n];

	settlement_forwarded(history->s, history->s->epoch, delivery->tag, delivery->position, 0);
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

	switch (random_below(history, 12)) {
	case 0:
	case 1:
	case 2:
	case 3:
		message_arrives(history);
		break;
	case 4:
	case 5:
		if (s->taken_n == 0)
			settlement_take(s, 1 + random_below(history, 20), history->model.now_ms);
		break;
	case 6:
	case 7:
		if (s->taken_n > 0)
			transaction_ends(history);
		break;
	case 8:
		forward_next(history);
		break;
	case 9:
		if (history->dead_n > 0 && random_below(history, 3))
			dead_confirmed(history);
		else if (history->dead_n > 0)
			dead_refused(history);
		break;
	case 10:
		acks_take(history);
		break;
	case 11:
		history->model.locked ^= 1u << random_below(history, COUPONS);
		break;
	}
}

/* The locks end, and everything is finished. */
static void history_end(struct history *history)
{
	struct model *model = &history->model;

	if (history->s->taken_n > 0)
		settlement_retry(history->s);
	for (int turn = 0; turn < 1000; turn++, model->now_ms += 100) {
		while (forward_next(history))
			;
		if (settlement_take(history->s, 1000, model->now_ms) == 0)
			continue;
		model_commit(model, history->s);
		settlement_commit(history->s);
	}
	assert_int_equal(settlement_counts(history->s).coupons, 0);
	while (history->dead_n > 0)
		dead_confirmed(history);
	acks_take(history);
	assert_int_equal(settlement_counts(history->s).held, 0);
	for (size_t item = 0; item < model->first[model->next_tag]; item++)
		assert_int_equal(model->truth[item], ACKED);
}

static void notice_ignore(const struct put_off_coupon *notice)
{
	(void)notice;
}

static void history_run(unsigned seed)
{
	struct history history = { .s = settlement_new(envelope_drop, notice_ignore, 16, 16),
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

static unsigned long environment(const char *name, unsigned long otherwise)
{
	const char *value = getenv(name);

	return value && *value ? strtoul(value, NULL, 10) : otherwise;
}

/* SEED is the first one, RUNS their number. */
static void test_random_histories(void **state)
{
	unsigned long first = environment("SEED", 1), n = environment("RUNS", 500);

	(void)state;
	for (unsigned long i = 0; i < n; i++) {
		seed_running = (unsigned)(first + i);
		history_run(seed_running);
	}
	seed_running = 0;
	assert_int_equal(envelopes, 0);
}

static int seed_report(void **state)
{
	(void)state;
	if (seed_running)
		print_error("again: SEED=%u RUNS=1\n", seed_running);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_random_histories, seed_report),
	};

	return cmocka_run_group_tests_name("settlement_history", tests, NULL, NULL);
}
