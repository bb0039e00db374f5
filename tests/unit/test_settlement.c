/*
 * The books of settlement: what goes into a transaction, what becomes of it, and above all what may
 * be acked.
 */
#include "worker/settle/settlement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int envelopes; /* not yet freed */

static void *envelope_make(void)
{
	envelopes++;
	return malloc(1);
}

static void envelope_drop(void *envelope)
{
	envelopes--;
	free(envelope);
}

static int setup(void **state)
{
	envelopes = 0;
	*state = settlement_new(envelope_drop);
	return 0;
}

/* Nothing may be left over, whatever a test did. */
static int teardown(void **state)
{
	settlement_free(*state);
	return envelopes == 0 ? 0 : -1;
}

static void add(struct settlement *s, uint64_t tag, size_t receives, int alone)
{
	static struct message message;

	message.coupon = 1001;
	message.seq = (int64_t)tag * 1000;
	message.receives_n = receives;
	for (size_t i = 0; i < receives; i++)
		message.receives[i].user = (int64_t)(tag * 1000 + i);
	settlement_add(s, tag, &message, alone, envelope_make());
}

static void ack_expect(struct settlement *s, uint64_t tag, int multiple)
{
	uint64_t got_tag = 0;
	int got_multiple = -1;

	assert_int_equal(settlement_ack(s, &got_tag, &got_multiple), 1);
	assert_int_equal(got_tag, tag);
	assert_int_equal(got_multiple, multiple);
}

static void ack_expect_none(struct settlement *s)
{
	uint64_t tag;
	int multiple;

	assert_int_equal(settlement_ack(s, &tag, &multiple), 0);
}

static void test_commit_acks_once(void **state)
{
	struct settlement *s = *state;

	for (uint64_t tag = 1; tag <= 3; tag++)
		add(s, tag, 2, 0);
	assert_int_equal(settlement_take(s, 100), 6);
	assert_int_equal(settlement_waiting(s), 0);
	ack_expect_none(s);
	settlement_commit(s);
	ack_expect(s, 3, 1);
	ack_expect_none(s);
	assert_int_equal(settlement_held(s), 0);
}

static void test_take_bounds(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 200, 0);
	add(s, 2, 60, 0);
	add(s, 3, 10, 0);
	/* One delivery always fits, and none is cut in two; order is kept, so 3 does not pass 2. */
	assert_int_equal(settlement_take(s, 100), 200);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 65), 60);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 65), 10);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 65), 0);
	ack_expect(s, 3, 1);
}

static void test_arrivals_during_transaction_wait(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 1, 0);
	assert_int_equal(settlement_take(s, 100), 1);
	add(s, 2, 1, 0);
	settlement_commit(s);
	/* Only what is committed. */
	ack_expect(s, 1, 0);
	ack_expect_none(s);
	assert_int_equal(settlement_take(s, 100), 1);
	settlement_commit(s);
	ack_expect(s, 2, 0);
}

static void test_retry_acks_nothing(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 4, 0);
	add(s, 2, 4, 0);
	assert_int_equal(settlement_take(s, 100), 8);
	settlement_retry(s);
	ack_expect_none(s);
	assert_int_equal(settlement_waiting(s), 2);
	assert_int_equal(settlement_take(s, 100), 8);
	settlement_commit(s);
	ack_expect(s, 2, 1);
}

static void test_outcomes_find_their_message(void **state)
{
	struct settlement *s = *state;
	const struct outcome taken = { OUTCOME_REJECTED, REASON_SLOT_TAKEN };

	add(s, 1, 2, 0);
	add(s, 2, 3, 0);
	assert_int_equal(settlement_take(s, 100), 5);
	assert_int_equal(settlement_outcome(s, 4, taken), 0);
	assert_int_equal(settlement_outcome(s, 1, taken), 0);
	assert_int_equal(settlement_outcome(s, 5, taken), -1);
	assert_int_equal(settlement_taken(s), 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(delivery_outcomes(settlement_taken_at(s, 0))[i].kind,
				 i == 1 ? OUTCOME_REJECTED : 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(delivery_outcomes(settlement_taken_at(s, 1))[i].kind,
				 i == 2 ? OUTCOME_REJECTED : 0);
	/* A second attempt begins with a clean sheet. */
	settlement_retry(s);
	assert_int_equal(settlement_take(s, 100), 5);
	assert_int_equal(delivery_outcomes(settlement_taken_at(s, 1))[2].kind, OUTCOME_ISSUED);
	settlement_commit(s);
}

static void test_alone(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 1, 0);
	add(s, 2, 1, 1);
	add(s, 3, 1, 0);
	assert_int_equal(settlement_take(s, 100), 2); /* 1 and 3 */
	settlement_commit(s);
	/* 2 is held: `multiple` stops before it. */
	ack_expect(s, 1, 0);
	ack_expect(s, 3, 0);
	ack_expect_none(s);
	add(s, 4, 1, 0);
	assert_int_equal(settlement_take(s, 100), 1);
	assert_int_equal(delivery_tag(settlement_taken_at(s, 0)), 2);
	settlement_commit(s);
	ack_expect(s, 2, 0);
	assert_int_equal(settlement_take(s, 100), 1);
	settlement_commit(s);
	ack_expect(s, 4, 0);
}

static void test_dead_holds_the_prefix_back(void **state)
{
	struct settlement *s = *state;
	const struct delivery *dead;

	add(s, 1, 1, 0);
	settlement_add_dead(s, 2, "unreadable: not JSON", envelope_make());
	add(s, 3, 1, 0);
	add(s, 4, 1, 0);
	assert_int_equal(settlement_take(s, 100), 3);
	dead = settlement_dead_take(s);
	assert_non_null(dead);
	assert_int_equal(delivery_tag(dead), 2);
	assert_null(delivery_message(dead));
	assert_string_equal(delivery_reason(dead), "unreadable: not JSON");
	assert_null(settlement_dead_take(s));
	settlement_commit(s);
	ack_expect(s, 1, 0);
	ack_expect(s, 3, 0);
	ack_expect(s, 4, 0);
	ack_expect_none(s);
	/* The broker refused it: it is tried again and not acked. */
	settlement_dead_failed(s, settlement_epoch(s), 2);
	ack_expect_none(s);
	assert_int_equal(settlement_dead_waiting(s), 1);
	assert_non_null(settlement_dead_take(s));
	settlement_dead_done(s, settlement_epoch(s), 2);
	ack_expect(s, 2, 0);
	assert_int_equal(settlement_held(s), 0);
}

static int taken_has(const struct settlement *s, uint64_t tag, size_t index)
{
	for (size_t i = 0; i < settlement_taken(s); i++) {
		const struct delivery *delivery = settlement_taken_at(s, i);

		if (delivery_tag(delivery) == tag && delivery_first(delivery) <= index &&
		    index < delivery_end(delivery))
			return 1;
	}
	return 0;
}

/*
 * Runs transactions until nothing waits; one that holds receive `index` of delivery `poison` is
 * refused. How many ran.
 */
static int settle_all(struct settlement *s, uint64_t poison, size_t index)
{
	int n = 0;

	while (settlement_take(s, 100000) > 0) {
		if (taken_has(s, poison, index))
			settlement_refuse(s, "22P02");
		else
			settlement_commit(s);
		n++;
		assert_true(n < 100);
	}
	return n;
}

static void test_bisect_finds_each_poison(void **state)
{
	struct settlement *s = *state;
	uint64_t base = 0;

	for (uint64_t poison = 1; poison <= 13; poison++, base += 13) {
		const struct delivery *dead;
		uint64_t tag, acked = 0;
		int multiple;

		for (uint64_t i = 1; i <= 13; i++)
			add(s, base + i, 1, 0);
		/* Halves of 13: at most 4 levels of two. */
		assert_in_range(settle_all(s, base + poison, 0), 4, 9);
		assert_int_equal(settlement_dead_waiting(s), 1);
		dead = settlement_dead_take(s);
		assert_int_equal(delivery_tag(dead), base + poison);
		assert_string_equal(delivery_reason(dead), "unstorable: SQLSTATE 22P02");
		while (settlement_ack(s, &tag, &multiple)) {
			assert_int_not_equal(tag, base + poison);
			/* `multiple` never reaches over the one that is held. */
			assert_true(!multiple || tag < base + poison);
			acked++;
		}
		assert_true(acked > 0);
		assert_int_equal(settlement_held(s), 1);
		settlement_dead_done(s, settlement_epoch(s), base + poison);
		ack_expect(s, base + poison, 0);
	}
}

/*
 * Each receive that is refused alone, in messages of every size: the others of the message are
 * settled, each once.
 */
static void test_bisect_goes_on_within_a_message(void **state)
{
	struct settlement *s = *state;
	uint64_t tag = 0, got;
	int multiple;

	for (size_t n = 2; n <= 17; n++) {
		for (size_t bad = 0; bad < n; bad++) {
			size_t settled[17] = { 0 };
			char reason[SETTLEMENT_REASON_SIZE];
			int runs = 0;

			add(s, ++tag, n, 0);
			for (; settlement_take(s, 1000) > 0; runs++) {
				const struct delivery *delivery = settlement_taken_at(s, 0);

				if (taken_has(s, tag, bad)) {
					settlement_refuse(s, "23514");
					continue;
				}
				for (size_t i = delivery_first(delivery);
				     i < delivery_end(delivery); i++)
					settled[i]++;
				settlement_commit(s);
				assert_int_equal(settlement_ack(s, &got, &multiple), 0);
			}
			assert_in_range(runs, 2, 16);
			for (size_t i = 0; i < n; i++)
				assert_int_equal(settled[i], i != bad);
			snprintf(reason, sizeof(reason),
				 "unstorable: SQLSTATE 23514, 1 of %zu receives from index %zu on",
				 n, bad);
			assert_string_equal(delivery_reason(settlement_dead_take(s)), reason);
			settlement_dead_done(s, settlement_epoch(s), tag);
			ack_expect(s, tag, 0);
		}
	}
}

/* PostgreSQL refuses everything: a message is given up after a few, others go on. */
static void test_a_message_of_which_everything_is_refused(void **state)
{
	struct settlement *s = *state;
	int runs = 0;

	add(s, 1, 256, 0);
	for (; settlement_take(s, 1000) > 0; runs++)
		settlement_refuse(s, "23514");
	assert_in_range(runs, 9, 40);
	assert_string_equal(delivery_reason(settlement_dead_take(s)),
			    "unstorable: SQLSTATE 23514, 256 of 256 receives from index 0 on");
	settlement_dead_done(s, settlement_epoch(s), 1);
	ack_expect(s, 1, 0);
}

/*
 * Outcomes of a part are those of its receives, and after a lost connection the part is tried
 * again.
 */
static void test_parts_have_their_outcomes(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 4, 0);
	settlement_take(s, 1000);
	settlement_refuse(s, "23514");
	assert_int_equal(settlement_take(s, 1000), 2);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 1000), 2);
	settlement_retry(s);
	assert_int_equal(settlement_take(s, 1000), 2);
	assert_int_equal(delivery_first(settlement_taken_at(s, 0)), 2);
	assert_int_equal(settlement_outcome(s, 1,
					    (struct outcome){ OUTCOME_REJECTED,
							      REASON_SLOT_TAKEN }),
			 0);
	assert_int_equal(settlement_outcome(s, 2,
					    (struct outcome){ OUTCOME_REJECTED,
							      REASON_SLOT_TAKEN }),
			 -1);
	assert_int_equal(delivery_outcomes(settlement_taken_at(s, 0))[3].kind, OUTCOME_REJECTED);
	assert_int_equal(delivery_outcomes(settlement_taken_at(s, 0))[2].kind, OUTCOME_ISSUED);
	settlement_commit(s);
	ack_expect(s, 1, 0); /* nothing of it was bad by itself */
}

static void test_split_goes_on_after_retry(void **state)
{
	struct settlement *s = *state;

	for (uint64_t tag = 1; tag <= 4; tag++)
		add(s, tag, 1, 0);
	assert_int_equal(settlement_take(s, 100), 4);
	settlement_refuse(s, "23514");
	add(s, 5, 1, 0);
	assert_int_equal(settlement_take(s, 100), 2);
	settlement_retry(s); /* the connection broke: the halves stay halves */
	assert_int_equal(settlement_take(s, 100), 2);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 100), 2);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 100), 1);
	settlement_commit(s);
	ack_expect(s, 5, 1);
}

static void test_reset_forgets_and_never_acks(void **state)
{
	struct settlement *s = *state;
	uint64_t epoch = settlement_epoch(s);

	add(s, 1, 1, 0);
	add(s, 2, 1, 0);
	settlement_add_dead(s, 3, "unreadable", envelope_make());
	assert_int_equal(settlement_take(s, 1), 1);
	assert_non_null(settlement_dead_take(s));
	settlement_reset(s);
	assert_int_equal(settlement_held(s), 0);
	assert_int_equal(settlement_waiting(s), 0);
	/* The transaction is still there, for its replies. */
	assert_int_equal(settlement_taken(s), 1);
	/* The same tags again, on the new connection. */
	add(s, 1, 1, 0);
	settlement_dead_done(s, epoch, 3);
	settlement_commit(s);
	ack_expect_none(s);
	assert_int_equal(settlement_take(s, 100), 1);
	settlement_commit(s);
	ack_expect(s, 1, 0);
}

static void test_reset_in_flight_then_failure(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 1, 0);
	assert_int_equal(settlement_take(s, 1), 1);
	settlement_reset(s);
	settlement_retry(s);
	assert_int_equal(settlement_take(s, 1), 0);
	add(s, 1, 1, 0);
	assert_int_equal(settlement_take(s, 1), 1);
	settlement_reset(s);
	settlement_refuse(s, "22003"); /* alone, but no longer ours to dead-letter */
	assert_int_equal(settlement_dead_waiting(s), 0);
	ack_expect_none(s);
}

/*
 * Random histories. A model of the broker: a tag is either un-acked or acked, and an ack is right
 * only when everything it covers has been committed or confirmed as dead-lettered.
 */
enum truth { ABSENT, HELD, FINISHED, ACKED };

struct model {
	enum truth truth[4096];
	unsigned settled[4096]; /* a bit for each receive that was committed */
	int refused[4096];      /* one of it was refused alone */
	uint64_t next_tag;
};

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

static void history_run(unsigned seed)
{
	struct settlement *s = settlement_new(envelope_drop);
	struct model model = { .next_tag = 1 };
	uint64_t dead[4096], tag;
	size_t dead_n = 0;
	int multiple;

	for (int step = 0; step < 600; step++) {
		switch (rand_r(&seed) % 12) {
		case 0:
		case 1:
		case 2:
		case 3:
			model.truth[model.next_tag] = HELD;
			add(s, model.next_tag++, 1 + (size_t)rand_r(&seed) % 5,
			    rand_r(&seed) % 8 == 0);
			break;
		case 4:
			model.truth[model.next_tag] = HELD;
			settlement_add_dead(s, model.next_tag++, "unreadable", envelope_make());
			break;
		case 5:
		case 6:
			if (settlement_taken(s) == 0)
				settlement_take(s, 1 + (size_t)rand_r(&seed) % 20);
			break;
		case 7:
		case 8:
			if (settlement_taken(s) == 0)
				break;
			if (rand_r(&seed) % 4 == 0) {
				settlement_retry(s);
			} else if (rand_r(&seed) % 4 == 0) {
				model_refuse(&model, s);
				settlement_refuse(s, "22000");
			} else {
				model_commit(&model, s);
				settlement_commit(s);
			}
			break;
		case 9: {
			const struct delivery *delivery = settlement_dead_take(s);

			if (delivery)
				dead[dead_n++] = delivery_tag(delivery);
			break;
		}
		case 10:
			if (dead_n == 0)
				break;
			tag = dead[--dead_n];
			if (rand_r(&seed) % 3) {
				model.truth[tag] = FINISHED;
				settlement_dead_done(s, settlement_epoch(s), tag);
			} else {
				settlement_dead_failed(s, settlement_epoch(s), tag);
			}
			break;
		case 11:
			while (settlement_ack(s, &tag, &multiple))
				model_ack(&model, tag, multiple);
			break;
		}
	}
	/* Everything comes to an end. */
	if (settlement_taken(s) > 0)
		settlement_retry(s);
	while (settlement_take(s, 1000) > 0) {
		model_commit(&model, s);
		settlement_commit(s);
	}
	for (const struct delivery *delivery; (delivery = settlement_dead_take(s));)
		dead[dead_n++] = delivery_tag(delivery);
	while (dead_n > 0) {
		model.truth[dead[--dead_n]] = FINISHED;
		settlement_dead_done(s, settlement_epoch(s), dead[dead_n]);
	}
	while (settlement_ack(s, &tag, &multiple))
		model_ack(&model, tag, multiple);
	assert_int_equal(settlement_held(s), 0);
	for (uint64_t t = 1; t < model.next_tag; t++)
		assert_int_equal(model.truth[t], ACKED);
	settlement_free(s);
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

static int seed_tell(void **state)
{
	(void)state;
	if (seed_running)
		print_error("failed with seed %u\n", seed_running);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_commit_acks_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_take_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_arrivals_during_transaction_wait, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_retry_acks_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_outcomes_find_their_message, setup, teardown),
		cmocka_unit_test_setup_teardown(test_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dead_holds_the_prefix_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bisect_finds_each_poison, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bisect_goes_on_within_a_message, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_message_of_which_everything_is_refused,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_parts_have_their_outcomes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_split_goes_on_after_retry, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reset_forgets_and_never_acks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reset_in_flight_then_failure, setup, teardown),
		cmocka_unit_test_teardown(test_random_histories, seed_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
