/*
 * Deliveries that settlement forwards: those of coupons that stay locked are parked, and those with
 * a high delivery count are rescued.
 */
#include "tests/unit/settlement_rig.h"

/* Not settled before it is published again, and acked only after the confirm. */
static void test_a_delivery_with_a_high_count_is_rescued(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 1, SETTLEMENT_RESCUE | SETTLEMENT_ALONE);
	assert_int_equal(settlement_take(s, 100, 0), 0);
	assert_int_equal(forward_take(s, DELIVERY_RESCUE_SENT)->tag, 1);
	assert_int_equal(settlement_take(s, 100, 0), 0);
	ack_expect_none(s);
	settlement_forwarded(s, s->epoch, 1, 0, 1);
	ack_expect(s, 1, 0);
}

static void test_a_delivery_that_cannot_be_rescued_is_settled(void **state)
{
	struct settlement *s = *state;

	add_coupon(s, 1, 7, 1, SETTLEMENT_RESCUE);
	add_coupon(s, 2, 7, 1, SETTLEMENT_RESCUE | SETTLEMENT_FROM_PARKING);
	assert_int_equal(forward_take(s, DELIVERY_RESCUE_SENT)->tag, 1);
	settlement_forwarded(s, s->epoch, 1, 0, 0);
	settlement_rescue_end(s);
	assert_null(forward_take(s, DELIVERY_RESCUE_SENT));
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
	assert_null(forward_take(s, DELIVERY_PARKING_SENT));
	assert_int_equal(settlement_take(s, 100, 1000), 2);
	notice_of(s);
	blocked(s, 1000);
	assert_int_equal(notice_of(s).failures, 2);
	add_coupon(s, 3, 7, 1, 0);
	for (uint64_t tag = 1; tag <= 3; tag++) {
		parked = forward_take(s, DELIVERY_PARKING_SENT);
		assert_non_null(parked);
		assert_int_equal(parked->tag, tag);
	}
	assert_null(forward_take(s, DELIVERY_PARKING_SENT));
	ack_expect_none(s); /* not before the confirm */
	settlement_forwarded(s, s->epoch, 2, 0, 0);
	settlement_forwarded(s, s->epoch, 1, 0, 1);
	ack_expect(s, 1, 0);
	settlement_forwarded(s, s->epoch, 3, 0, 1);
	ack_expect(s, 3, 0);
	/* They are delivered from the parking queue, and are held for the next trial. */
	add_coupon(s, 4, 7, 1, SETTLEMENT_FROM_PARKING);
	assert_int_equal(settlement_counts(s).put_off, 1);
	/* The one that the broker refused is still here, and is tried with it. */
	assert_int_equal(settlement_take(s, 100, 10000), 2);
	commit_resumes(s, 7);
	ack_expect(s, 4, 1);
	assert_null(forward_take(s, DELIVERY_PARKING_SENT));
	assert_int_equal(settlement_counts(s).held, 0);
}

/* Delivery 1 of coupon 7, whose first trial fails too: the coupon is parked. */
static void add_locked_twice(struct settlement *s)
{
	add_locked(s, 1, 7);
	assert_int_equal(settlement_take(s, 100, 1000), 1);
	blocked(s, 1000);
	assert_int_equal(notice_of(s).failures, 2);
}

/* The parking queue is full, or the broker accepts nothing: the lock may end before that does. */
static void test_what_cannot_be_parked_is_tried(void **state)
{
	struct settlement *s = *state;

	add_locked_twice(s);
	assert_non_null(forward_take(s, DELIVERY_PARKING_SENT));
	assert_int_equal(settlement_take(s, 100, 10000), 0); /* it may be in the queue by now */
	settlement_forwarded(s, s->epoch, 1, 0, 0);
	assert_int_equal(settlement_take(s, 100, 10000), 1);
	blocked(s, 10000);
	assert_int_equal(notice_of(s).failures, 3);
	assert_non_null(forward_take(s, DELIVERY_PARKING_SENT));
	settlement_forwarded(s, s->epoch, 1, 0, 0);
	assert_int_equal(settlement_take(s, 100, 20000), 1);
	commit_resumes(s, 7);
	assert_int_equal(settlement_counts(s).outgoing, 0);
	ack_expect(s, 1, 0);
	assert_int_equal(settlement_counts(s).held, 0);
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
	assert_int_equal(settlement_counts(s).put_off, 16);
	for (uint64_t tag = 21; tag <= 30; tag++)
		add_coupon(s, tag, 7, 1, 0);
	assert_int_equal(settlement_counts(s).put_off, 16);
	while (forward_take(s, DELIVERY_PARKING_SENT))
		parked++;
	assert_int_equal(parked, 14);
}

/* One locked coupon that fills the prefetch of the parking queue makes room in time. */
static void test_the_parking_queue_rotates(void **state)
{
	struct settlement *s = *state;

	add_locked(s, 1, 7);
	settlement_rotate(s, 0);
	for (uint64_t tag = 2; tag <= 16; tag++)
		add_coupon(s, tag, 7, 1, SETTLEMENT_FROM_PARKING);
	settlement_rotate(s, SETTLEMENT_ROTATE_MS); /* 15 of 16: there is room */
	assert_null(forward_take(s, DELIVERY_PARKING_SENT));
	add_coupon(s, 17, 7, 1, SETTLEMENT_FROM_PARKING);
	settlement_rotate(s, SETTLEMENT_ROTATE_MS - 1);
	assert_null(forward_take(s, DELIVERY_PARKING_SENT));
	settlement_rotate(s, SETTLEMENT_ROTATE_MS);
	for (uint64_t tag = 2; tag <= 17; tag++)
		assert_int_equal(forward_take(s, DELIVERY_PARKING_SENT)->tag, tag);
	assert_null(forward_take(s, DELIVERY_PARKING_SENT));
	assert_int_equal(settlement_counts(s).put_off, 1);
}

/* Another worker has settled what was parked: the entry that is left does not park what arrives. */
static void test_a_stale_entry_does_no_harm(void **state)
{
	struct settlement *s = *state;
	uint64_t tag;
	int multiple;

	add_locked_twice(s);
	assert_non_null(forward_take(s, DELIVERY_PARKING_SENT));
	settlement_forwarded(s, s->epoch, 1, 0, 1);
	assert_int_equal(settlement_ack(s, &tag, &multiple), 1);
	add_coupon(s, 2, 7, 1, 0);
	assert_null(forward_take(s, DELIVERY_PARKING_SENT));
	assert_int_equal(settlement_take(s, 100, 5000), 1);
	blocked(s, 5000); /* the lock has not ended */
	assert_non_null(forward_take(s, DELIVERY_PARKING_SENT));
	settlement_forwarded(s, s->epoch, 2, 0, 1);
	assert_int_equal(settlement_counts(s).coupons, 1);
	settlement_rotate(s, 5000 + SETTLEMENT_FORGET_MS);
	assert_int_equal(settlement_counts(s).coupons, 1);
	settlement_rotate(s, 7000 + SETTLEMENT_FORGET_MS);
	assert_int_equal(settlement_counts(s).coupons, 0);
}

/* What cannot be rescued waits for its coupon as any other. */
static void test_a_rescue_that_fails_while_its_coupon_is_put_off(void **state)
{
	struct settlement *s = *state;

	add_locked(s, 1, 7);
	add_coupon(s, 2, 7, 1, SETTLEMENT_RESCUE);
	add_coupon(s, 3, 7, 1, SETTLEMENT_RESCUE);
	assert_int_equal(settlement_forward(s)->tag, 2);
	settlement_forwarded(s, s->epoch, 2, 0, 0);
	settlement_rescue_end(s);
	assert_int_equal(settlement_counts(s).put_off, 3);
	assert_int_equal(settlement_counts(s).waiting, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_delivery_with_a_high_count_is_rescued),
		TEST(test_a_delivery_that_cannot_be_rescued_is_settled),
		TEST(test_a_coupon_that_stays_locked_is_parked),
		TEST(test_what_cannot_be_parked_is_tried),
		TEST(test_a_locked_coupon_never_fills_the_worker),
		TEST(test_the_parking_queue_rotates),
		TEST(test_a_stale_entry_does_no_harm),
		TEST(test_a_rescue_that_fails_while_its_coupon_is_put_off),
	};

	return cmocka_run_group_tests_name("settlement_forwarded", tests, NULL, NULL);
}
