/*
 * What admission does about a coupon: it looks up those that Redis does not hold, remembers and
 * reports the highest numbers it has seen, and evicts coupons.
 */
#include "tests/unit/admission_rig.h"

/* Coupons that Redis does not have */

static void missing_expect(enum answer answer, int is_published, int remembered)
{
	struct client *clients[4];

	rig_up(&limits_default, COUPONS_MAX);
	clients[0] = submit(1, 1);
	admission_flush(rig.admission);
	clients[1] = submit(1, 2);
	clients[2] = submit_as(1, 3, "k", ACK_ISSUED);
	admission_flush(rig.admission);
	call_state(CALL_MISSING);
	call_state(CALL_MISSING);
	assert_int_equal(rig.lookups, 1); /* one for all of them */
	assert_true(rig.lookup_coupon == 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(clients[i]->answers, 0);
	assert_int_equal(requests_open(), 3);
	admission_looked_up(rig.admission, 1, answer, is_published);
	for (int i = 0; i < 3; i++)
		answer_expect(clients[i], answer);
	assert_int_equal(requests_open(), 0);
	clients[3] = submit(1, 4);
	if (remembered)
		answer_expect(clients[3], answer);
	else
		assert_int_equal(clients[3]->answers, 0);
	rig_down();
}

static void test_missing(void **state)
{
	(void)state;
	missing_expect(ANSWER_NOT_FOUND, 0, 1);
	missing_expect(ANSWER_PAUSED, 0, 1);
	missing_expect(ANSWER_ENDED, 0, 1);
	missing_expect(ANSWER_UNAVAILABLE, 1, 0);
	missing_expect(ANSWER_UNAVAILABLE, 0, 0);
	missing_expect(ANSWER_BUSY, 0, 0);
}

static void test_looked_up_at_once(void **state)
{
	struct client *client = submit(1, 1);

	(void)state;
	rig.lookup_at_once = ANSWER_BUSY;
	admission_flush(rig.admission);
	call_state(CALL_MISSING);
	answer_expect(client, ANSWER_BUSY);
	client = submit(1, 1);
	admission_flush(rig.admission);
	call_state(CALL_MISSING);
	answer_expect(client, ANSWER_BUSY);
	assert_int_equal(rig.lookups, 2);
}

/* The highest numbers seen of Redis */

static void seen_reply(int64_t generation, int64_t seq)
{
	struct call *call;

	submit(1, 1);
	admission_flush(rig.admission);
	call = call_take();
	reply_make(call, generation, seq, ANSWER_LIMIT_REACHED);
	admission_replied(rig.admission, call, &reply);
}

static void seen_expect(int64_t generation, int64_t seq)
{
	struct call *call;

	submit(1, 1);
	admission_flush(rig.admission);
	call = call_take();
	assert_true(call->seen_generation == generation);
	assert_true(call->seen_seq == seq);
	admission_not_run(rig.admission, call);
}

static void test_seen(void **state)
{
	(void)state;
	seen_expect(0, 0);
	seen_reply(1, 10);
	seen_expect(1, 10);
	seen_reply(1, 8); /* replies of two calls may arrive out of order */
	seen_expect(1, 10);
	seen_reply(1, 12);
	seen_expect(1, 12);
	seen_reply(2, 3);
	seen_expect(2, 3);
	seen_reply(1, 99);
	seen_expect(2, 3);
	/* A reply other than "ok" raises nothing. */
	submit(1, 1);
	admission_flush(rig.admission);
	reply.state = CALL_BEHIND;
	reply.generation = 9;
	admission_replied(rig.admission, call_take(), &reply);
	seen_expect(2, 3);
}

/* Reports of what Redis may have lost */

static void refused(enum call_state state)
{
	submit(1, 1);
	admission_flush(rig.admission);
	call_state(state);
	if (state == CALL_MISSING)
		admission_looked_up(rig.admission, 1, ANSWER_UNAVAILABLE, 0);
}

static void report_expect(int reports, int64_t generation, int64_t seq)
{
	assert_int_equal(rig.reports, reports);
	assert_true(rig.reported_coupon == 1 && rig.reported_generation == generation &&
		    rig.reported_seq == seq);
}

static void test_report_when_refused(void **state)
{
	static const enum call_state states[] = { CALL_MISSING, CALL_UNVERIFIED, CALL_BEHIND };

	(void)state;
	refused(CALL_MISSING);
	assert_int_equal(rig.reports, 0); /* nothing was seen yet */
	seen_reply(3, 8);
	for (int i = 0; i < 3; i++) {
		rig.now_ms += 100;
		refused(states[i]);
		report_expect(i + 1, 3, 8);
		refused(states[i]); /* again at once: not reported again */
		report_expect(i + 1, 3, 8);
	}
}

static void test_report_of_an_overtaken_reply(void **state)
{
	(void)state;
	seen_reply(3, 8);
	seen_reply(4, 1);
	assert_int_equal(rig.reports, 0);
	seen_reply(3, 11); /* came over another connection: the rebuild may not have counted it */
	report_expect(1, 3, 11);
	seen_expect(4, 1);
}

static void test_report_over_a_new_connection(void **state)
{
	(void)state;
	admission_report_begin(rig.admission);
	assert_false(admission_report_some(rig.admission, 10));
	assert_int_equal(rig.reports, 0);
	seen_reply(3, 8);
	for (int i = 1; i <= 2; i++) {
		admission_report_begin(rig.admission);
		assert_false(admission_report_some(rig.admission, 10));
		report_expect(i, 3, 8);
	}
}

/* A reply names the highest numbers of the coupon. */
static void seen_of(int64_t coupon)
{
	submit(coupon, 1);
	admission_flush(rig.admission);
	call_answer(ANSWER_LIMIT_REACHED);
}

static void test_report_of_all_coupons_in_pieces(void **state)
{
	const int coupons = COUPONS_MAX;

	(void)state;
	for (int64_t coupon = 1; coupon <= coupons; coupon++)
		seen_of(coupon);
	admission_report_begin(rig.admission);
	assert_true(admission_report_some(rig.admission, 1));
	assert_true(rig.reported_coupon == coupons); /* the most recently used one */
	seen_of(100); /* room is made by the one that is reported, not by another */
	seen_of(2);   /* its place among those that are left does not depend on its use */
	admission_report_begin(rig.admission); /* over another connection */
	while (admission_report_some(rig.admission, 1))
		;
	assert_int_equal(rig.reports, 1 + (coupons - 1) + 1);
}

static void test_the_keeper_is_asked_for_what_waits_for_it(void **state)
{
	static const struct {
		enum answer answer;
		int is_published, asks;
	} looked_up[] = { { ANSWER_NOT_FOUND, 0, 2 }, { ANSWER_UNAVAILABLE, 1, 3 } };

	(void)state;
	refused(CALL_UNVERIFIED);
	assert_true(rig.asks == 1 && rig.asked_coupon == 1);
	refused(CALL_BEHIND);
	assert_int_equal(rig.asks, 1); /* it was asked for a moment ago */
	rig.now_ms += 100;
	refused(CALL_BEHIND);
	assert_int_equal(rig.asks, 2);
	for (int i = 0; i < 2; i++) {
		rig.now_ms += 200; /* the answer before is forgotten */
		submit(1, 1);
		admission_flush(rig.admission);
		call_state(CALL_MISSING);
		admission_looked_up(rig.admission, 1, looked_up[i].answer,
				    looked_up[i].is_published);
		assert_int_equal(rig.asks, looked_up[i].asks);
	}
}

/* Evicted coupons */

static void test_eviction(void **state)
{
	(void)state;
	for (int64_t coupon = 1; coupon <= COUPONS_MAX; coupon++) {
		submit(coupon, 1);
		admission_flush(rig.admission);
		call_answer(coupon == 1 ? ANSWER_OK : ANSWER_LIMIT_REACHED);
	}
	seen_of(2);
	/* 1 has unconfirmed receives and stays; 3 is the least recently used of the others. */
	seen_of(100);
	batches_confirm();
	submit(3, 1);
	submit(2, 1);
	admission_flush(rig.admission);
	assert_true(rig.calls[0]->seen_generation == 0 && rig.calls[1]->seen_generation == 1);
}

static void test_eviction_impossible(void **state)
{
	struct client *client;

	(void)state;
	for (int64_t coupon = 1; coupon <= COUPONS_MAX; coupon++)
		submit(coupon, 1);
	answer_expect(submit(100, 1), ANSWER_BUSY);
	admission_flush(rig.admission);
	answer_expect(submit(100, 1), ANSWER_BUSY);
	admission_lost(rig.admission, call_take());
	answer_expect(submit(100, 1), ANSWER_BUSY); /* not while its outcome is unknown */
	rig.now_ms += 60000;
	client = submit(100, 1);
	assert_int_equal(client->answers, 0);
}

/*
 * A coupon whose sends failed in the middle is in the list of coupons with requests to send: it
 * must not be evicted.
 */
static void test_eviction_after_failed_send(void **state)
{
	struct config limits = limits_default;

	(void)state;
	limits.batch_receives_max = 2;
	rig_up(&limits, 1);
	for (int i = 0; i < 4; i++)
		submit(1, 1 + i);
	rig.send_fails = 2;
	admission_flush(rig.admission);
	for (int i = 0; i < 4; i++)
		answer_expect(rig.clients[i], ANSWER_UNAVAILABLE);
	submit(2, 1);
	admission_flush(rig.admission);
	submit(2, 1);
	admission_flush(rig.admission);
	rig_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missing),
		TEST(test_looked_up_at_once),
		TEST(test_seen),
		TEST(test_report_when_refused),
		TEST(test_report_of_an_overtaken_reply),
		TEST(test_report_over_a_new_connection),
		TEST(test_report_of_all_coupons_in_pieces),
		TEST(test_the_keeper_is_asked_for_what_waits_for_it),
		TEST(test_eviction),
		TEST(test_eviction_impossible),
		cmocka_unit_test(test_eviction_after_failed_send),
	};

	return cmocka_run_group_tests_name("admission_coupons", tests, NULL, NULL);
}
