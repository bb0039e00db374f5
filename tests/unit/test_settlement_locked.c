/*
 * Settlement of coupons that are locked or too slow: they are put off, and tried again apart from
 * the others.
 */
#include "tests/unit/settlement_rig.h"

/* The look does not show it: each of 13 coupons in turn is found in few steps. */
static void test_a_locked_coupon_is_found_and_put_off(void **state)
{
	struct settlement *s = *state;
	uint64_t base = 0;

	for (int64_t locked = 1; locked <= 13; locked++, base += 13) {
		struct put_off_coupon notice;
		int64_t now_ms = locked * 100000;
		int runs = 0;

		for (uint64_t i = 1; i <= 13; i++)
			add_coupon(s, base + i, (int64_t)i, 2, 0);
		for (; settlement_take(s, 1000, now_ms) > 0; runs++) {
			assert_int_equal(s->lock_suspect, runs > 0);
			if (taken_has_coupon(s, locked))
				blocked(s, now_ms);
			else
				settlement_commit(s);
		}
		assert_in_range(runs, 4, 9);
		notice = notice_of(s);
		assert_int_equal(notice.coupon, locked);
		assert_int_equal(notice.wait_ms, SETTLEMENT_PUT_OFF_FIRST_MS);
		assert_int_equal(notice.failures, 1);
		assert_int_equal(settlement_counts(s).put_off, 1);
		/* It is not tried before it is due, whatever other work there is. */
		now_ms = settlement_trial_ms(s);
		assert_int_equal(settlement_take(s, 1000, now_ms - 1), 0);
		assert_int_equal(settlement_take(s, 1000, now_ms), 2);
		assert_int_equal(s->lock_suspect, 1);
		commit_resumes(s, locked);
		assert_int_equal(settlement_counts(s).coupons, 0);
		while (settlement_counts(s).held > 0) {
			uint64_t tag;
			int multiple;

			assert_int_equal(settlement_ack(s, &tag, &multiple), 1);
		}
	}
}

/* A delivery that arrives for a coupon that is put off is never in a transaction with others. */
static void test_arrivals_of_a_locked_coupon_stay_apart(void **state)
{
	struct settlement *s = *state;

	add_locked(s, 1, 7);
	add_coupon(s, 2, 7, 1, 0);
	add_coupon(s, 3, 8, 1, 0);
	assert_int_equal(settlement_take(s, 100, 1), 1);
	assert_int_equal(coupon_of(s, 0), 8);
	assert_int_equal(s->lock_suspect, 0);
	settlement_commit(s);
	ack_expect(s, 3, 0);
	/* Both go into the trial, and a lost connection keeps them where they are. */
	assert_int_equal(settlement_take(s, 100, 1000), 2);
	settlement_retry(s);
	assert_int_equal(settlement_counts(s).put_off, 2);
	assert_int_equal(settlement_take(s, 100, 1000), 2);
	commit_resumes(s, 7);
	ack_expect(s, 2, 1);
}

/* A look shows 6 of 12 coupons as locked: the others are settled by the next transaction. */
static void test_many_locked_coupons_are_put_off_together(void **state)
{
	const int64_t locked[] = { 1, 3, 5, 7, 9, 11 };
	struct settlement *s = *state;
	struct put_off_coupon notice;
	unsigned put_off = 0, resumed = 0;

	for (uint64_t i = 1; i <= 12; i++)
		add_coupon(s, i, (int64_t)i, 1, 0);
	assert_int_equal(settlement_take(s, 100, 0), 12);
	blocked_by(s, locked, 6, 0);
	while (settlement_notice(s, &notice)) {
		assert_int_equal(notice.coupon % 2, 1);
		put_off++;
	}
	assert_int_equal(put_off, 6);
	assert_int_equal(settlement_take(s, 100, 1), 6);
	assert_int_equal(s->lock_suspect, 1);
	settlement_commit(s);
	/* One trial for all: the four that are locked still do not hold up the two others. */
	assert_int_equal(settlement_take(s, 100, 1000), 6);
	blocked_by(s, locked, 4, 1000);
	assert_int_equal(settlement_take(s, 100, 1000), 2);
	while (settlement_notice(s, &notice))
		assert_int_equal(notice.failures, 2);
	settlement_commit(s);
	while (settlement_notice(s, &notice)) {
		assert_int_equal(notice.failures, 0);
		assert_true(notice.coupon == 9 || notice.coupon == 11);
		resumed++;
	}
	assert_int_equal(resumed, 2);
	assert_int_equal(settlement_counts(s).coupons, 4);
}

/* A trial of several coupons that fails for a reason that no look shows: then one by one. */
static void test_a_trial_that_cannot_be_explained(void **state)
{
	const int64_t locked[] = { 1, 2, 3 };
	struct settlement *s = *state;
	int64_t now_ms = 1000;

	for (uint64_t i = 1; i <= 3; i++)
		add_coupon(s, i, (int64_t)i, 1, 0);
	settlement_take(s, 100, 0);
	blocked_by(s, locked, 3, 0);
	assert_int_equal(settlement_take(s, 100, now_ms), 3);
	blocked(s, now_ms);
	assert_int_equal(settlement_take(s, 100, now_ms), 0);
	for (int i = 0; i < 3; i++) {
		now_ms = settlement_trial_ms(s);
		assert_int_equal(settlement_take(s, 100, now_ms), 1);
		settlement_commit(s);
	}
	assert_int_equal(settlement_counts(s).coupons, 0);
}

/*
 * PostgreSQL takes 3 receives of one coupon at most before it cancels: all are settled in steps,
 * and what waits of another coupon goes between them.
 */
static void test_a_coupon_that_is_too_slow_goes_in_steps(void **state)
{
	struct settlement *s = *state;
	size_t taken, settled = 0, most = 0;
	int64_t now_ms = 0;
	int runs = 0;

	for (uint64_t tag = 1; tag <= 4; tag++)
		add_coupon(s, tag, 7, 10, 0);
	add_coupon(s, 5, 8, 1, 0);
	for (; settlement_counts(s).held > 0; now_ms += 10) {
		uint64_t tag;
		int multiple;

		taken = settlement_take(s, 1000, now_ms);
		if (taken == 0)
			continue;
		assert_true(++runs < 60);
		if (taken_has_coupon(s, 7) && taken > 3) {
			settlement_blocked(s, NULL, now_ms);
			continue;
		}
		settled += taken;
		most = taken > most ? taken : most;
		settlement_commit(s);
		while (settlement_ack(s, &tag, &multiple))
			;
	}
	assert_int_equal(settled, 41);
	assert_int_equal(most, 3);
	assert_int_equal(settlement_counts(s).coupons, 0);
}

/* After a slow trial, the other coupons are settled for as long as it took. */
static void test_slow_trials_leave_time_to_the_others(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 40, 0);
	assert_int_equal(settlement_take(s, 100, 0), 40);
	settlement_blocked(s, NULL, 5000);
	assert_int_equal(notice_of(s).failures, 1);
	assert_int_equal(settlement_take(s, 100, 6000), 20);
	settlement_commit(s);
	for (int64_t now_ms = 9000; now_ms < 12000; now_ms += 1000) {
		add_coupon(s, (uint64_t)now_ms, 8, 1, 0);
		assert_int_equal(settlement_take(s, 100, now_ms), 1);
		assert_int_equal(coupon_of(s, 0), 8);
		settlement_commit(s);
	}
	add_coupon(s, 12000, 8, 1, 0);
	assert_int_equal(settlement_take(s, 100, 12000), 20);
	commit_resumes(s, 7);
}

static void test_reset_keeps_in_mind_what_is_locked(void **state)
{
	struct settlement *s = *state;

	add_locked(s, 1, 7);
	settlement_reset(s);
	assert_int_equal(settlement_counts(s).put_off, 0);
	assert_int_equal(settlement_trial_ms(s), INT64_MAX);
	add_coupon(s, 1, 7, 1, 0);
	add_coupon(s, 2, 8, 1, 0);
	assert_int_equal(settlement_take(s, 100, 1), 1);
	assert_int_equal(coupon_of(s, 0), 8);
	settlement_commit(s);
}

/* PostgreSQL refuses the trial: the cause is the data, no longer a lock. */
static void test_a_refusal_ends_the_putting_off(void **state)
{
	struct settlement *s = *state;

	add_locked(s, 1, 7);
	assert_int_equal(settlement_take(s, 100, 1000), 1);
	settlement_refuse(s, "22003");
	assert_int_equal(settlement_counts(s).coupons, 0);
	assert_non_null(dead_take(s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_locked_coupon_is_found_and_put_off),
		TEST(test_arrivals_of_a_locked_coupon_stay_apart),
		TEST(test_many_locked_coupons_are_put_off_together),
		TEST(test_a_trial_that_cannot_be_explained),
		TEST(test_a_coupon_that_is_too_slow_goes_in_steps),
		TEST(test_slow_trials_leave_time_to_the_others),
		TEST(test_reset_keeps_in_mind_what_is_locked),
		TEST(test_a_refusal_ends_the_putting_off),
	};

	return cmocka_run_group_tests_name("settlement_locked", tests, NULL, NULL);
}
