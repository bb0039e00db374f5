/*
 * The books of settlement: what goes into a transaction, its outcome, and above all what may be
 * acked.
 */
#include "tests/unit/settlement_rig.h"

static void test_commit_acks_once(void **state)
{
	struct settlement *s = *state;

	for (uint64_t tag = 1; tag <= 3; tag++)
		add(s, tag, 2, 0);
	assert_int_equal(settlement_take(s, 100, 0), 6);
	assert_int_equal(settlement_counts(s).waiting, 0);
	ack_expect_none(s);
	settlement_commit(s);
	ack_expect(s, 3, 1);
	ack_expect_none(s);
	assert_int_equal(settlement_counts(s).held, 0);
}

static void test_take_bounds(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 200, 0);
	add(s, 2, 60, 0);
	add(s, 3, 10, 0);
	/* One delivery always fits, and none is cut in two; order is kept, so 3 does not pass 2. */
	assert_int_equal(settlement_take(s, 100, 0), 200);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 65, 0), 60);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 65, 0), 10);
	settlement_commit(s);
	assert_int_equal(settlement_take(s, 65, 0), 0);
	ack_expect(s, 3, 1);
}

static void test_arrivals_during_transaction_wait(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 1, 0);
	assert_int_equal(settlement_take(s, 100, 0), 1);
	add(s, 2, 1, 0);
	settlement_commit(s);
	/* Only what is committed. */
	ack_expect(s, 1, 0);
	ack_expect_none(s);
	assert_int_equal(settlement_take(s, 100, 0), 1);
	settlement_commit(s);
	ack_expect(s, 2, 0);
}

static void test_retry_acks_nothing(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 4, 0);
	add(s, 2, 4, 0);
	assert_int_equal(settlement_take(s, 100, 0), 8);
	settlement_retry(s);
	ack_expect_none(s);
	assert_int_equal(settlement_counts(s).waiting, 2);
	assert_int_equal(settlement_take(s, 100, 0), 8);
	settlement_commit(s);
	ack_expect(s, 2, 1);
}

static void test_outcomes_find_their_message(void **state)
{
	struct settlement *s = *state;
	const struct outcome taken = { OUTCOME_REJECTED, REASON_SLOT_TAKEN };

	add(s, 1, 2, 0);
	add(s, 2, 3, 0);
	assert_int_equal(settlement_take(s, 100, 0), 5);
	assert_int_equal(settlement_outcome(s, 4, taken), 0);
	assert_int_equal(settlement_outcome(s, 1, taken), 0);
	assert_int_equal(settlement_outcome(s, 5, taken), -1);
	assert_int_equal(s->taken_n, 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(s->taken[0]->outcomes[i].kind, i == 1 ? OUTCOME_REJECTED : 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(s->taken[1]->outcomes[i].kind, i == 2 ? OUTCOME_REJECTED : 0);
	/* A second attempt starts without the outcomes of the first. */
	settlement_retry(s);
	assert_int_equal(settlement_take(s, 100, 0), 5);
	assert_int_equal(s->taken[1]->outcomes[2].kind, OUTCOME_ISSUED);
	settlement_commit(s);
}

static void test_alone(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 1, 0);
	add(s, 2, 1, 1);
	add(s, 3, 1, 0);
	assert_int_equal(settlement_take(s, 100, 0), 2); /* 1 and 3 */
	settlement_commit(s);
	/* 2 is held: `multiple` stops before it. */
	ack_expect(s, 1, 0);
	ack_expect(s, 3, 0);
	ack_expect_none(s);
	add(s, 4, 1, 0);
	assert_int_equal(settlement_take(s, 100, 0), 1);
	assert_int_equal(s->taken[0]->tag, 2);
	settlement_commit(s);
	ack_expect(s, 2, 0);
	assert_int_equal(settlement_take(s, 100, 0), 1);
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
	assert_int_equal(settlement_take(s, 100, 0), 3);
	dead = dead_take(s);
	assert_non_null(dead);
	assert_int_equal(dead->tag, 2);
	assert_int_equal(dead->receives_n, 0);
	assert_string_equal(dead->reason, "unreadable: not JSON");
	assert_null(dead_take(s));
	settlement_commit(s);
	ack_expect(s, 1, 0);
	ack_expect(s, 3, 0);
	ack_expect(s, 4, 0);
	ack_expect_none(s);
	/* The broker refused it: it is tried again and not acked. */
	settlement_forwarded(s, s->epoch, 2, 0, 0);
	ack_expect_none(s);
	assert_int_equal(settlement_counts(s).dead, 1);
	assert_non_null(dead_take(s));
	settlement_forwarded(s, s->epoch, 2, 0, 1);
	ack_expect(s, 2, 0);
	assert_int_equal(settlement_counts(s).held, 0);
}

static void test_reset_forgets_and_never_acks(void **state)
{
	struct settlement *s = *state;
	uint64_t epoch = s->epoch;

	add(s, 1, 1, 0);
	add(s, 2, 1, 0);
	settlement_add_dead(s, 3, "unreadable", envelope_make());
	assert_int_equal(settlement_take(s, 1, 0), 1);
	assert_non_null(dead_take(s));
	settlement_reset(s);
	assert_int_equal(settlement_counts(s).held, 0);
	assert_int_equal(settlement_counts(s).waiting, 0);
	/* The transaction is still there, for its replies. */
	assert_int_equal(s->taken_n, 1);
	/* The new connection delivers with the same tags again. */
	add(s, 1, 1, 0);
	settlement_forwarded(s, epoch, 3, 0, 1);
	settlement_commit(s);
	ack_expect_none(s);
	assert_int_equal(settlement_take(s, 100, 0), 1);
	settlement_commit(s);
	ack_expect(s, 1, 0);
}

static void test_reset_in_flight_then_failure(void **state)
{
	struct settlement *s = *state;

	add(s, 1, 1, 0);
	assert_int_equal(settlement_take(s, 1, 0), 1);
	settlement_reset(s);
	settlement_retry(s);
	assert_int_equal(settlement_take(s, 1, 0), 0);
	add(s, 1, 1, 0);
	assert_int_equal(settlement_take(s, 1, 0), 1);
	settlement_reset(s);
	settlement_refuse(s, "22003"); /* alone, but this worker may no longer dead-letter it */
	assert_int_equal(settlement_counts(s).dead, 0);
	ack_expect_none(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_commit_acks_once),
		TEST(test_take_bounds),
		TEST(test_arrivals_during_transaction_wait),
		TEST(test_retry_acks_nothing),
		TEST(test_outcomes_find_their_message),
		TEST(test_alone),
		TEST(test_dead_holds_the_prefix_back),
		TEST(test_reset_forgets_and_never_acks),
		TEST(test_reset_in_flight_then_failure),
	};

	return cmocka_run_group_tests_name("settlement", tests, NULL, NULL);
}
