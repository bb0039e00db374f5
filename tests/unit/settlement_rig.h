/*
 * For the tests of settlement: deliveries that arrive, locks, and what is expected next.
 */
#pragma once

#include "worker/settlement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int envelopes; /* not yet freed */

static inline void *envelope_make(void)
{
	envelopes++;
	return malloc(1);
}

static inline void envelope_drop(void *envelope)
{
	envelopes--;
	free(envelope);
}

static struct put_off_coupon notices[64]; /* not yet read */
static size_t notices_n;

static inline void notice_take(const struct put_off_coupon *notice)
{
	assert_true(notices_n < 64);
	notices[notices_n++] = *notice;
}

/* The next notice, in no particular order: 1, or 0 when there is none. */
static inline int settlement_notice(struct settlement *s, struct put_off_coupon *notice)
{
	(void)s;
	if (notices_n == 0)
		return 0;
	*notice = notices[--notices_n];
	return 1;
}

static inline int setup(void **state)
{
	envelopes = 0;
	notices_n = 0;
	*state = settlement_new(envelope_drop, notice_take, 16, 16);
	return 0;
}

/* Nothing may be left after any test. */
static inline int teardown(void **state)
{
	settlement_free(*state);
	return envelopes == 0 ? 0 : -1;
}

static inline void add_coupon(struct settlement *s, uint64_t tag, int64_t coupon, size_t receives,
			      unsigned how)
{
	static struct message message;

	message.coupon = coupon;
	message.seq = (int64_t)tag * 1000;
	message.receives_n = receives;
	for (size_t i = 0; i < receives; i++)
		message.receives[i].user = user_id_of_number((int64_t)(tag * 1000 + i));
	settlement_add(s, delivery_new(tag, &message, envelope_make()), how);
}

static inline void add(struct settlement *s, uint64_t tag, size_t receives, int alone)
{
	add_coupon(s, tag, 1001, receives, alone ? SETTLEMENT_ALONE : 0);
}

/* The next delivery to forward, which must go to `wanted`; NULL: none. */
static inline const struct delivery *forward_take(struct settlement *s, enum delivery_state wanted)
{
	const struct delivery *delivery = settlement_forward(s);

	if (delivery)
		assert_int_equal(delivery->state, wanted);
	return delivery;
}

static inline const struct delivery *dead_take(struct settlement *s)
{
	return forward_take(s, DELIVERY_DEAD_SENT);
}

static inline void ack_expect(struct settlement *s, uint64_t tag, int multiple)
{
	uint64_t got_tag = 0;
	int got_multiple = -1;

	assert_int_equal(settlement_ack(s, &got_tag, &got_multiple), 1);
	assert_int_equal(got_tag, tag);
	assert_int_equal(got_multiple, multiple);
}

static inline void ack_expect_none(struct settlement *s)
{
	uint64_t tag;
	int multiple;

	assert_int_equal(settlement_ack(s, &tag, &multiple), 0);
}

static inline int taken_has(const struct settlement *s, uint64_t tag, size_t index)
{
	for (size_t i = 0; i < s->taken_n; i++) {
		const struct delivery *delivery = s->taken[i];

		if (delivery->tag == tag && delivery->first <= index && index < delivery->end)
			return 1;
	}
	return 0;
}

static inline int64_t coupon_of(const struct settlement *s, size_t i)
{
	return s->taken[i]->coupon;
}

static inline int taken_has_coupon(const struct settlement *s, int64_t coupon)
{
	for (size_t i = 0; i < s->taken_n; i++)
		if (coupon_of(s, i) == coupon)
			return 1;
	return 0;
}

/* The transaction is blocked, and a look shows these coupons as locked. */
static inline void blocked_by(struct settlement *s, const int64_t *coupons, size_t n,
			      int64_t now_ms)
{
	const struct lock_look look = { .locked = coupons, .n = n };

	settlement_blocked(s, &look, now_ms);
}

/* What a look does not show: a lock on the row of a user coupon. */
static inline void blocked(struct settlement *s, int64_t now_ms)
{
	blocked_by(s, NULL, 0, now_ms);
}

/* The only notice. */
static inline struct put_off_coupon notice_of(struct settlement *s)
{
	struct put_off_coupon notice, more;

	assert_int_equal(settlement_notice(s, &notice), 1);
	assert_int_equal(settlement_notice(s, &more), 0);
	return notice;
}

/* Commits; exactly this coupon is no longer put off. */
static inline void commit_resumes(struct settlement *s, int64_t coupon)
{
	settlement_commit(s);
	assert_int_equal(notice_of(s).coupon, coupon);
}

/* Delivery `tag` of the coupon is found to be locked at time 0: the coupon is put off. */
static inline void add_locked(struct settlement *s, uint64_t tag, int64_t coupon)
{
	add_coupon(s, tag, coupon, 1, 0);
	assert_int_equal(settlement_take(s, 100, 0), 1);
	blocked(s, 0);
	assert_int_equal(notice_of(s).coupon, coupon);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
