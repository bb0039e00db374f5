/*
 * The books of settlement: what goes into a transaction, its outcome, and above all what may be
 * acked.
 */
#include "worker/consume/settlement.h"

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
	*state = settlement_new(envelope_drop, 16, 16);
	return 0;
}

/* Nothing may be left after any test. */
static int teardown(void **state)
{
	settlement_free(*state);
	return envelopes == 0 ? 0 : -1;
}

static void add_coupon(struct settlement *s, uint64_t tag, int64_t coupon, size_t receives,
		       unsigned how)
{
	static struct message message;

	message.coupon = coupon;
	message.seq = (int64_t)tag * 1000;
	message.receives_n = receives;
	for (size_t i = 0; i < receives; i++)
		message.receives[i].user = (int64_t)(tag * 1000 + i);
	settlement_add(s, tag, &message, how, envelope_make());
}

static void add(struct settlement *s, uint64_t tag, size_t receives, int alone)
{
	add_coupon(s, tag, 1001, receives, alone ? SETTLEMENT_ALONE : 0);
}

/* The next delivery to forward, which must go to `wanted`; NULL: none. */
static const struct delivery *forward_take(struct settlement *s, enum destination wanted)
{
	enum destination destination;
	const struct delivery *delivery = settlement_forward(s, &destination);

	if (delivery)
		assert_int_equal(destination, wanted);
	return delivery;
}

static const struct delivery *dead_take(struct settlement *s)
{
	return forward_take(s, DESTINATION_DEAD);
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
	assert_int_equal(settlement_take(s, 100, 0), 6);
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
	assert_int_equal(settlement_waiting(s), 2);
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
	assert_int_equal(settlement_taken(s), 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(delivery_outcomes(settlement_taken_at(s, 0))[i].kind,
				 i == 1 ? OUTCOME_REJECTED : 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(delivery_outcomes(settlement_taken_at(s, 1))[i].kind,
				 i == 2 ? OUTCOME_REJECTED : 0);
	/* A second attempt starts without the outcomes of the first. */
	settlement_retry(s);
	assert_int_equal(settlement_take(s, 100, 0), 5);
	assert_int_equal(delivery_outcomes(settlement_taken_at(s, 1))[2].kind, OUTCOME_ISSUED);
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
	assert_int_equal(delivery_tag(settlement_taken_at(s, 0)), 2);
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
	assert_int_equal(delivery_tag(dead), 2);
	assert_null(delivery_message(dead));
	assert_string_equal(delivery_reason(dead), "unreadable: not JSON");
	assert_null(dead_take(s));
	settlement_commit(s);
	ack_expect(s, 1, 0);
	ack_expect(s, 3, 0);
	ack_expect(s, 4, 0);
	ack_expect_none(s);
	/* The broker refused it: it is tried again and not acked. */
	settlement_forward_failed(s, settlement_epoch(s), 2);
	ack_expect_none(s);
	assert_int_equal(settlement_dead_waiting(s), 1);
	assert_non_null(dead_take(s));
	settlement_forwarded(s, settlement_epoch(s), 2);
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
		assert_int_equal(settlement_dead_waiting(s), 1);
		dead = dead_take(s);
		assert_int_equal(delivery_tag(dead), base + poison);
		assert_string_equal(delivery_reason(dead), "unstorable: SQLSTATE 22P02");
		while (settlement_ack(s, &tag, &multiple)) {
			assert_int_not_equal(tag, base + poison);
			/* `multiple` never includes the one that is held. */
			assert_true(!multiple || tag < base + poison);
			acked++;
		}
		assert_true(acked > 0);
		assert_int_equal(settlement_held(s), 1);
		settlement_forwarded(s, settlement_epoch(s), base + poison);
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
			assert_string_equal(delivery_reason(dead_take(s)), reason);
			settlement_forwarded(s, settlement_epoch(s), tag);
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
	assert_string_equal(delivery_reason(dead_take(s)),
			    "unstorable: SQLSTATE 23514, 256 of 256 receives from index 0 on");
	settlement_forwarded(s, settlement_epoch(s), 1);
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

static void test_reset_forgets_and_never_acks(void **state)
{
	struct settlement *s = *state;
	uint64_t epoch = settlement_epoch(s);

	add(s, 1, 1, 0);
	add(s, 2, 1, 0);
	settlement_add_dead(s, 3, "unreadable", envelope_make());
	assert_int_equal(settlement_take(s, 1, 0), 1);
	assert_non_null(dead_take(s));
	settlement_reset(s);
	assert_int_equal(settlement_held(s), 0);
	assert_int_equal(settlement_waiting(s), 0);
	/* The transaction is still there, for its replies. */
	assert_int_equal(settlement_taken(s), 1);
	/* The same tags again, on the new connection. */
	add(s, 1, 1, 0);
	settlement_forwarded(s, epoch, 3);
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
	assert_int_equal(settlement_dead_waiting(s), 0);
	ack_expect_none(s);
}

/* Locked coupons. */

static int64_t coupon_of(const struct settlement *s, size_t i)
{
	return delivery_message(settlement_taken_at(s, i))->coupon;
}

static int taken_has_coupon(const struct settlement *s, int64_t coupon)
{
	for (size_t i = 0; i < settlement_taken(s); i++)
		if (coupon_of(s, i) == coupon)
			return 1;
	return 0;
}

/* The transaction is blocked, and a look shows these coupons as locked. */
static void blocked_by(struct settlement *s, const int64_t *coupons, size_t n, int64_t now_ms)
{
	const struct lock_look look = { .locked = coupons, .n = n };

	settlement_blocked(s, &look, now_ms);
}

/* What a look does not show: a lock on the row of a user coupon. */
static void blocked(struct settlement *s, int64_t now_ms)
{
	blocked_by(s, NULL, 0, now_ms);
}

/* The only notice. */
static struct settlement_notice notice_of(struct settlement *s)
{
	struct settlement_notice notice, more;

	assert_int_equal(settlement_notice(s, &notice), 1);
	assert_int_equal(settlement_notice(s, &more), 0);
	return notice;
}

/* Commits; exactly this coupon is no longer put off. */
static void commit_resumes(struct settlement *s, int64_t coupon)
{
	settlement_commit(s);
	assert_int_equal(notice_of(s).coupon, coupon);
}

/* The look does not show it: each of 13 coupons in turn is found in few steps. */
static void test_a_locked_coupon_is_found_and_put_off(void **state)
{
	struct settlement *s = *state;
	uint64_t base = 0;

	for (int64_t locked = 1; locked <= 13; locked++, base += 13) {
		struct settlement_notice notice;
		int64_t now_ms = locked * 100000;
		int runs = 0;

		for (uint64_t i = 1; i <= 13; i++)
			add_coupon(s, base + i, (int64_t)i, 2, 0);
		for (; settlement_take(s, 1000, now_ms) > 0; runs++) {
			assert_int_equal(settlement_lock_suspect(s), runs > 0);
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
		assert_int_equal(settlement_put_off(s), 1);
		/* It is not tried before it is due, whatever other work there is. */
		now_ms = settlement_trial_ms(s);
		assert_int_equal(settlement_take(s, 1000, now_ms - 1), 0);
		assert_int_equal(settlement_take(s, 1000, now_ms), 2);
		assert_int_equal(settlement_lock_suspect(s), 1);
		commit_resumes(s, locked);
		assert_int_equal(settlement_put_off_coupons(s), 0);
		while (settlement_held(s) > 0) {
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

	add_coupon(s, 1, 7, 1, 0);
	assert_int_equal(settlement_take(s, 100, 0), 1);
	blocked(s, 0);
	assert_int_equal(notice_of(s).coupon, 7);
	add_coupon(s, 2, 7, 1, 0);
	add_coupon(s, 3, 8, 1, 0);
	assert_int_equal(settlement_take(s, 100, 1), 1);
	assert_int_equal(coupon_of(s, 0), 8);
	assert_int_equal(settlement_lock_suspect(s), 0);
	settlement_commit(s);
	ack_expect(s, 3, 0);
	/* Both go into the trial, and a lost connection keeps them where they are. */
	assert_int_equal(settlement_take(s, 100, 1000), 2);
	settlement_retry(s);
	assert_int_equal(settlement_put_off(s), 2);
	assert_int_equal(settlement_take(s, 100, 1000), 2);
	commit_resumes(s, 7);
	ack_expect(s, 2, 1);
}

/* Not settled before it is published again, and acked only after the confirm. */
static void test_a_delivery_with_a_high_count_is_rescued(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 1, SETTLEMENT_RESCUE | SETTLEMENT_ALONE);
	assert_int_equal(settlement_take(s, 100, 0), 0);
	assert_int_equal(delivery_tag(forward_take(s, DESTINATION_RESCUE)), 1);
	assert_int_equal(settlement_take(s, 100, 0), 0);
	ack_expect_none(s);
	settlement_forwarded(s, settlement_epoch(s), 1);
	ack_expect(s, 1, 0);
}

static void test_a_delivery_that_cannot_be_rescued_is_settled(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 1, SETTLEMENT_RESCUE);
	add_coupon(s, 2, 7, 1, SETTLEMENT_RESCUE | SETTLEMENT_FROM_PARKING);
	assert_int_equal(delivery_tag(forward_take(s, DESTINATION_RESCUE)), 1);
	settlement_forward_failed(s, settlement_epoch(s), 1);
	settlement_rescue_end(s);
	assert_null(forward_take(s, DESTINATION_RESCUE));
	assert_int_equal(settlement_take(s, 100, 0), 2);
	settlement_commit(s);
	ack_expect(s, 2, 1);
}

/*
 * After the second failure all its deliveries are parked, and later ones too, until a trial
 * succeeds.
 */
static void test_a_coupon_that_stays_locked_is_parked(void **state)
{
	struct settlement *s = *state;
	const struct delivery *parked;

	add_coupon(s, 1, 7, 1, 0);
	add_coupon(s, 2, 7, 1, 0);
	settlement_take(s, 100, 0);
	blocked(s, 0);
	assert_null(forward_take(s, DESTINATION_PARKING));
	assert_int_equal(settlement_take(s, 100, 1000), 2);
	notice_of(s);
	blocked(s, 1000);
	assert_int_equal(notice_of(s).failures, 2);
	add_coupon(s, 3, 7, 1, 0);
	for (uint64_t tag = 1; tag <= 3; tag++) {
		parked = forward_take(s, DESTINATION_PARKING);
		assert_non_null(parked);
		assert_int_equal(delivery_tag(parked), tag);
	}
	assert_null(forward_take(s, DESTINATION_PARKING));
	ack_expect_none(s); /* not before the confirm */
	settlement_forward_failed(s, settlement_epoch(s), 2);
	settlement_forwarded(s, settlement_epoch(s), 1);
	ack_expect(s, 1, 0);
	settlement_forwarded(s, settlement_epoch(s), 3);
	ack_expect(s, 3, 0);
	/* They are delivered from the parking queue, and are held for the next trial. */
	add_coupon(s, 4, 7, 1, SETTLEMENT_FROM_PARKING);
	assert_int_equal(settlement_put_off(s), 1);
	/* The one that the broker refused is still here, and is tried with it. */
	assert_int_equal(settlement_take(s, 100, 10000), 2);
	commit_resumes(s, 7);
	ack_expect(s, 4, 1);
	assert_null(forward_take(s, DESTINATION_PARKING));
	assert_int_equal(settlement_held(s), 0);
}

/* The parking queue is full, or the broker accepts nothing: the lock may end before that does. */
static void test_what_cannot_be_parked_is_tried(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 1, 0);
	for (int64_t now_ms = 0; now_ms <= 1000; now_ms += 1000) {
		assert_int_equal(settlement_take(s, 100, now_ms), 1);
		blocked(s, now_ms);
		notice_of(s);
	}
	assert_non_null(forward_take(s, DESTINATION_PARKING));
	assert_int_equal(settlement_take(s, 100, 10000), 0); /* it may be in the queue by now */
	settlement_forward_failed(s, settlement_epoch(s), 1);
	assert_int_equal(settlement_take(s, 100, 10000), 1);
	blocked(s, 10000);
	assert_int_equal(notice_of(s).failures, 3);
	assert_non_null(forward_take(s, DESTINATION_PARKING));
	settlement_forward_failed(s, settlement_epoch(s), 1);
	assert_int_equal(settlement_take(s, 100, 20000), 1);
	commit_resumes(s, 7);
	assert_int_equal(settlement_outgoing(s), 0);
	ack_expect(s, 1, 0);
	assert_int_equal(settlement_held(s), 0);
}

/* A locked coupon holds its share of the prefetch at most (16 here). */
static void test_a_locked_coupon_never_fills_the_worker(void **state)
{
	struct settlement *s = *state;
	size_t parked = 0;

	for (uint64_t tag = 1; tag <= 20; tag++)
		add_coupon(s, tag, 7, 1, 0);
	settlement_take(s, 100, 0);
	blocked(s, 0);
	assert_int_equal(settlement_put_off(s), 16);
	for (uint64_t tag = 21; tag <= 30; tag++)
		add_coupon(s, tag, 7, 1, 0);
	assert_int_equal(settlement_put_off(s), 16);
	while (forward_take(s, DESTINATION_PARKING))
		parked++;
	assert_int_equal(parked, 14);
}

/* One locked coupon that fills the prefetch of the parking queue makes room in time. */
static void test_the_parking_queue_rotates(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 1, 0);
	settlement_take(s, 100, 0);
	blocked(s, 0);
	settlement_rotate(s, 0);
	for (uint64_t tag = 2; tag <= 16; tag++)
		add_coupon(s, tag, 7, 1, SETTLEMENT_FROM_PARKING);
	settlement_rotate(s, SETTLEMENT_ROTATE_MS); /* 15 of 16: there is room */
	assert_null(forward_take(s, DESTINATION_PARKING));
	add_coupon(s, 17, 7, 1, SETTLEMENT_FROM_PARKING);
	settlement_rotate(s, SETTLEMENT_ROTATE_MS - 1);
	assert_null(forward_take(s, DESTINATION_PARKING));
	settlement_rotate(s, SETTLEMENT_ROTATE_MS);
	for (uint64_t tag = 2; tag <= 17; tag++)
		assert_int_equal(delivery_tag(forward_take(s, DESTINATION_PARKING)), tag);
	assert_null(forward_take(s, DESTINATION_PARKING));
	assert_int_equal(settlement_put_off(s), 1);
}

/* A look shows 6 of 12 coupons as locked: the others are settled by the next transaction. */
static void test_many_locked_coupons_are_put_off_together(void **state)
{
	const int64_t locked[] = { 1, 3, 5, 7, 9, 11 };
	struct settlement *s = *state;
	struct settlement_notice notice;
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
	assert_int_equal(settlement_lock_suspect(s), 1);
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
	assert_int_equal(settlement_put_off_coupons(s), 4);
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
	assert_int_equal(settlement_put_off_coupons(s), 0);
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
	for (; settlement_held(s) > 0; now_ms += 10) {
		uint64_t tag;
		int multiple;

		taken = settlement_take(s, 1000, now_ms);
		if (taken == 0)
			continue;
		assert_true(++runs < 60);
		if (taken_has_coupon(s, 7) && taken > 3) {
			settlement_cancelled(s, now_ms);
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
	assert_int_equal(settlement_put_off_coupons(s), 0);
}

/* After a slow trial, the other coupons are settled for as long as it took. */
static void test_slow_trials_leave_time_to_the_others(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 40, 0);
	assert_int_equal(settlement_take(s, 100, 0), 40);
	settlement_cancelled(s, 5000);
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

/* Another worker has settled what was parked: the entry that is left does not park what arrives. */
static void test_a_stale_entry_does_no_harm(void **state)
{
	struct settlement *s = *state;
	uint64_t tag;
	int multiple;

	add_coupon(s, 1, 7, 1, 0);
	for (int64_t now_ms = 0; now_ms <= 1000; now_ms += 1000) {
		assert_int_equal(settlement_take(s, 100, now_ms), 1);
		blocked(s, now_ms);
		notice_of(s);
	}
	assert_non_null(forward_take(s, DESTINATION_PARKING));
	settlement_forwarded(s, settlement_epoch(s), 1);
	assert_int_equal(settlement_ack(s, &tag, &multiple), 1);
	add_coupon(s, 2, 7, 1, 0);
	assert_null(forward_take(s, DESTINATION_PARKING));
	assert_int_equal(settlement_take(s, 100, 5000), 1);
	blocked(s, 5000); /* the lock has not ended */
	assert_non_null(forward_take(s, DESTINATION_PARKING));
	settlement_forwarded(s, settlement_epoch(s), 2);
	assert_int_equal(settlement_put_off_coupons(s), 1);
	settlement_rotate(s, 5000 + SETTLEMENT_FORGET_MS);
	assert_int_equal(settlement_put_off_coupons(s), 1);
	settlement_rotate(s, 7000 + SETTLEMENT_FORGET_MS);
	assert_int_equal(settlement_put_off_coupons(s), 0);
}

/* What cannot be rescued waits for its coupon as any other. */
static void test_a_rescue_that_fails_while_its_coupon_is_put_off(void **state)
{
	enum destination destination;
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 1, 0);
	settlement_take(s, 100, 0);
	blocked(s, 0);
	add_coupon(s, 2, 7, 1, SETTLEMENT_RESCUE);
	add_coupon(s, 3, 7, 1, SETTLEMENT_RESCUE);
	assert_int_equal(delivery_tag(settlement_forward(s, &destination)), 2);
	settlement_forward_failed(s, settlement_epoch(s), 2);
	settlement_rescue_end(s);
	assert_int_equal(settlement_put_off(s), 3);
	assert_int_equal(settlement_waiting(s), 0);
}

static void test_reset_keeps_in_mind_what_is_locked(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 1, 0);
	settlement_take(s, 100, 0);
	blocked(s, 0);
	settlement_reset(s);
	assert_int_equal(settlement_put_off(s), 0);
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

	add_coupon(s, 1, 7, 1, 0);
	settlement_take(s, 100, 0);
	blocked(s, 0);
	assert_int_equal(settlement_take(s, 100, 1000), 1);
	settlement_refuse(s, "22003");
	assert_int_equal(settlement_put_off_coupons(s), 0);
	assert_non_null(dead_take(s));
}

/*
 * Random histories. A model of the broker: a tag is either un-acked or acked, and an ack is right
 * only when everything it covers has been committed or confirmed as dead-lettered.
 */
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

static void history_run(unsigned seed)
{
	struct settlement *s = settlement_new(envelope_drop, 16, 16);
	struct model model = { .next_tag = 1 };
	uint64_t dead[4096], tag;
	size_t dead_n = 0;
	int multiple;

	for (int step = 0; step < 600; step++) {
		model.now_ms += rand_r(&seed) % 50;
		settlement_rotate(s, model.now_ms);
		switch (rand_r(&seed) % 13) {
		case 0:
		case 1:
		case 2:
		case 3:
			model.truth[model.next_tag] = HELD;
			add_coupon(s, model.next_tag++, rand_r(&seed) % COUPONS,
				   1 + (size_t)rand_r(&seed) % 5,
				   rand_r(&seed) % 8 == 0 ? SETTLEMENT_ALONE : 0);
			break;
		case 12:
			model.locked ^= 1u << rand_r(&seed) % COUPONS;
			break;
		case 4:
			model.truth[model.next_tag] = HELD;
			settlement_add_dead(s, model.next_tag++, "unreadable", envelope_make());
			break;
		case 5:
		case 6:
			if (settlement_taken(s) == 0)
				settlement_take(s, 1 + (size_t)rand_r(&seed) % 20, model.now_ms);
			break;
		case 7:
		case 8:
			if (settlement_taken(s) == 0)
				break;
			if (rand_r(&seed) % 4 == 0) {
				settlement_retry(s);
			} else if (model_is_locked(&model, s)) {
				model_blocked(&model, s, rand_r(&seed) % 3);
			} else if (rand_r(&seed) % 4 == 0) {
				model_refuse(&model, s);
				settlement_refuse(s, "22000");
			} else {
				model_commit(&model, s);
				settlement_commit(s);
			}
			break;
		case 9: {
			enum destination destination;
			const struct delivery *delivery = settlement_forward(s, &destination);

			if (delivery && destination == DESTINATION_PARKING)
				model_park(&model, s, delivery);
			else if (delivery)
				dead[dead_n++] = delivery_tag(delivery);
			break;
		}
		case 10:
			if (dead_n == 0)
				break;
			tag = dead[--dead_n];
			if (rand_r(&seed) % 3) {
				model.truth[tag] = FINISHED;
				settlement_forwarded(s, settlement_epoch(s), tag);
			} else {
				settlement_forward_failed(s, settlement_epoch(s), tag);
			}
			break;
		case 11:
			while (settlement_ack(s, &tag, &multiple))
				model_ack(&model, tag, multiple);
			break;
		}
	}
	/* The locks end, and everything is finished. */
	if (settlement_taken(s) > 0)
		settlement_retry(s);
	for (int turn = 0; turn < 1000; turn++, model.now_ms += 100) {
		enum destination destination;
		const struct delivery *delivery;

		while ((delivery = settlement_forward(s, &destination))) {
			if (destination == DESTINATION_PARKING)
				model_park(&model, s, delivery);
			else
				dead[dead_n++] = delivery_tag(delivery);
		}
		if (settlement_take(s, 1000, model.now_ms) == 0)
			continue;
		model_commit(&model, s);
		settlement_commit(s);
	}
	assert_int_equal(settlement_put_off_coupons(s), 0);
	while (dead_n > 0) {
		model.truth[dead[--dead_n]] = FINISHED;
		settlement_forwarded(s, settlement_epoch(s), dead[dead_n]);
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
		cmocka_unit_test_setup_teardown(test_a_locked_coupon_is_found_and_put_off, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_arrivals_of_a_locked_coupon_stay_apart, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_delivery_with_a_high_count_is_rescued, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_delivery_that_cannot_be_rescued_is_settled,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_coupon_that_stays_locked_is_parked, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_what_cannot_be_parked_is_tried, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_locked_coupon_never_fills_the_worker, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_the_parking_queue_rotates, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_locked_coupons_are_put_off_together,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_trial_that_cannot_be_explained, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_coupon_that_is_too_slow_goes_in_steps, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_slow_trials_leave_time_to_the_others, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_a_rescue_that_fails_while_its_coupon_is_put_off, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_stale_entry_does_no_harm, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reset_keeps_in_mind_what_is_locked, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_refusal_ends_the_putting_off, setup,
						teardown),
		cmocka_unit_test_teardown(test_random_histories, seed_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
