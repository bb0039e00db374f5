/*
 * Settlement when PostgreSQL refuses a transaction: halves, until each receive that it refuses is
 * found.
 */
#include "tests/unit/settlement_rig.h"

/*
 * Runs transactions until nothing waits; one that holds receive `index` of delivery `poison` is
 * refused. How many ran.
 */
static int settle_all(struct settlement *s, uint64_t poison, size_t index)
{
	int n = 0;

	while (settlement_take(s, 100000, 0) > 0) {
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
		assert_int_equal(settlement_counts(s).dead, 1);
		dead = dead_take(s);
		assert_int_equal(dead->tag, base + poison);
		assert_string_equal(dead->reason, "unstorable: SQLSTATE 22P02");
		while (settlement_ack(s, &tag, &multiple)) {
			assert_int_not_equal(tag, base + poison);
			/* `multiple` never includes the one that is held. */
			assert_true(!multiple || tag < base + poison);
			acked++;
		}
		assert_true(acked > 0);
		assert_int_equal(settlement_counts(s).held, 1);
		settlement_forwarded(s, s->epoch, base + poison, 0, 1);
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
			for (; settlement_take(s, 1000, 0) > 0; runs++) {
				const struct delivery *delivery = s->taken[0];

				if (taken_has(s, tag, bad)) {
					settlement_refuse(s, "23514");
					continue;
				}
				for (size_t i = delivery->first; i < delivery->end; i++)
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
			assert_string_equal(dead_take(s)->reason, reason);
			settlement_forwarded(s, s->epoch, tag, 0, 1);
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
	for (; settlement_take(s, 1000, 0) > 0; runs++)
		settlement_refuse(s, "23514");
	assert_in_range(runs, 9, 40);
	assert_string_equal(dead_take(s)->reason,
			    "unstorable: SQLSTATE 23514, 256 of 256 receives from index 0 on");
	settlement_forwarded(s, s->epoch, 1, 0, 1);
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
	settlement_take(s, 1000, 0);
	settlement_refuse(s, "23514");
	assert_int_equal(settlement_take(s, 1000, 0), 2);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 1000, 0), 2);
	settlement_retry(s);
	assert_int_equal(settlement_take(s, 1000, 0), 2);
	assert_int_equal(s->taken[0]->first, 2);
	assert_int_equal(settlement_outcome(s, 1,
					    (struct outcome){ OUTCOME_REJECTED,
							      REASON_SLOT_TAKEN }),
			 0);
	assert_int_equal(settlement_outcome(s, 2,
					    (struct outcome){ OUTCOME_REJECTED,
							      REASON_SLOT_TAKEN }),
			 -1);
	assert_int_equal(s->taken[0]->outcomes[3].kind, OUTCOME_REJECTED);
	assert_int_equal(s->taken[0]->outcomes[2].kind, OUTCOME_ISSUED);
	settlement_commit(s);
	ack_expect(s, 1, 0); /* no receive was refused alone */
}

static void test_split_goes_on_after_retry(void **state)
{
	struct settlement *s = *state;

	for (uint64_t tag = 1; tag <= 4; tag++)
		add(s, tag, 1, 0);
	assert_int_equal(settlement_take(s, 100, 0), 4);
	settlement_refuse(s, "23514");
	add(s, 5, 1, 0);
	assert_int_equal(settlement_take(s, 100, 0), 2);
	settlement_retry(s); /* the connection broke: the halves stay halves */
	assert_int_equal(settlement_take(s, 100, 0), 2);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 100, 0), 2);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 100, 0), 1);
	settlement_commit(s);
	ack_expect(s, 5, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_bisect_finds_each_poison),
		TEST(test_bisect_goes_on_within_a_message),
		TEST(test_a_message_of_which_everything_is_refused),
		TEST(test_parts_have_their_outcomes),
		TEST(test_split_goes_on_after_retry),
	};

	return cmocka_run_group_tests_name("settlement_refused", tests, NULL, NULL);
}
