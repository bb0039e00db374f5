/* Admission caches refusals for a short time, answers with them without a call, and counts them. */
#include "gateway/admit/coupon_table.h"
#include "tests/unit/admission_rig.h"

static void memory_expect(enum answer answer)
{
	size_t sent;

	submit(1, 1);
	admission_flush(rig.admission);
	call_answer(answer);
	sent = rig.sent;
	rig.now_ms += 99;
	answer_expect(submit(1, 2), answer);
	admission_flush(rig.admission);
	assert_int_equal(rig.sent, sent);
	/* Not for requests with a key: theirs may be known. */
	assert_int_equal(submit_as(1, 2, "k", ACK_ACCEPTED)->answers, 0);
	/* Another coupon is not affected. */
	assert_int_equal(submit(2, 2)->answers, 0);
	admission_flush(rig.admission);
	assert_int_equal(rig.sent, sent + 2);
	rig.now_ms += 1;
	assert_int_equal(submit(1, 3)->answers, 0);
	admission_flush(rig.admission);
	assert_int_equal(rig.sent, sent + 3);
}

static void test_memory_of_losing_answers(void **state)
{
	static const enum answer answers[] = { ANSWER_OUT_OF_STOCK, ANSWER_ENDED, ANSWER_PAUSED };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		rig_up(&limits_default, COUPONS_MAX);
		memory_expect(answers[i]);
		rig_down();
	}
}

/* Being above the limit applies to one user only. */
static void test_no_memory_of_limit_reached(void **state)
{
	(void)state;
	submit(1, 1);
	admission_flush(rig.admission);
	call_answer(ANSWER_LIMIT_REACHED);
	assert_int_equal(submit(1, 2)->answers, 0);
}

/* Room may be made at any moment. */
static void test_no_memory_of_busy(void **state)
{
	struct client *client;

	(void)state;
	client = submit(1, 1);
	admission_flush(rig.admission);
	call_answer(ANSWER_BUSY);
	answer_expect(client, ANSWER_BUSY);
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
	assert_int_equal(submit(1, 2)->answers, 0);
	admission_flush(rig.admission);
	assert_int_equal(rig.sent, 2);
}

static void test_memory_switched_off(void **state)
{
	struct config limits = limits_default;

	(void)state;
	limits.memory_ms = 0;
	rig_up(&limits, COUPONS_MAX);
	submit(1, 1);
	admission_flush(rig.admission);
	call_answer(ANSWER_OUT_OF_STOCK);
	assert_int_equal(submit(1, 2)->answers, 0);
	rig_down();
}

/* Waiting requests are answered from memory too; those with a key are sent. */
static void test_memory_serves_the_waiting(void **state)
{
	struct client *plain, *keyed;

	(void)state;
	submit(1, 1);
	admission_flush(rig.admission);
	submit(1, 2);
	admission_flush(rig.admission);
	plain = submit(1, 3);
	keyed = submit_as(1, 4, "k", ACK_ACCEPTED);
	admission_flush(rig.admission);
	call_answer(ANSWER_OUT_OF_STOCK);
	admission_flush(rig.admission);
	answer_expect(plain, ANSWER_OUT_OF_STOCK);
	assert_int_equal(keyed->answers, 0);
	assert_int_equal(rig.calls_n, 2);
	assert_int_equal(rig.calls[1]->requests_n, 1);
	assert_true(rig.calls[1]->requests[0] == &keyed->request);
	/* When all waiting requests are served so, no empty call is made. */
	plain = submit(1, 5);
	answer_expect(plain, ANSWER_OUT_OF_STOCK);
}

/*
 * `until_begin_ms` by Redis' clock when the script ran, the reply `late_ms` after the call was
 * sent.
 */
static void not_started_make(int64_t until_begin_ms, int64_t late_ms)
{
	struct call *call;

	submit(1, 1);
	admission_flush(rig.admission);
	rig.now_ms += late_ms;
	call = call_take();
	reply_make(call, 1, 0, ANSWER_NOT_STARTED);
	reply.begin_ms = reply.now_ms + until_begin_ms;
	admission_replied(rig.admission, call, &reply);
}

static void test_memory_not_started_far_off(void **state)
{
	(void)state;
	not_started_make(3600000, 0);
	rig.now_ms += 99;
	answer_expect(submit(1, 2), ANSWER_NOT_STARTED);
	rig.now_ms += 1;
	assert_int_equal(submit(1, 3)->answers, 0);
}

static void test_memory_not_started_soon(void **state)
{
	(void)state;
	not_started_make(30, 0);
	rig.now_ms += 29;
	answer_expect(submit(1, 2), ANSWER_NOT_STARTED);
	rig.now_ms += 1;
	assert_int_equal(submit(1, 3)->answers, 0);
}

/* The reply was delayed, and the beginning is nearer by that time. */
static void test_memory_not_started_late_reply(void **state)
{
	(void)state;
	not_started_make(80, 50);
	rig.now_ms += 29;
	answer_expect(submit(1, 2), ANSWER_NOT_STARTED);
	rig.now_ms += 1;
	assert_int_equal(submit(1, 3)->answers, 0);
}

static void test_memory_not_started_too_late_reply(void **state)
{
	(void)state;
	not_started_make(80, 500);
	assert_int_equal(submit(1, 2)->answers, 0);
}

/* Sold out is answered from memory even when full. */
static void test_memory_before_busy(void **state)
{
	struct config limits = limits_default;

	(void)state;
	limits.unconfirmed_per_coupon_max = 2;
	rig_up(&limits, COUPONS_MAX);
	submit(1, 1);
	admission_flush(rig.admission);
	submit_as(1, 2, "k", ACK_ACCEPTED);
	call_answer(ANSWER_OUT_OF_STOCK);
	submit_as(1, 3, "k", ACK_ACCEPTED);
	answer_expect(submit_as(1, 4, "k", ACK_ACCEPTED), ANSWER_BUSY);
	answer_expect(submit(1, 4), ANSWER_OUT_OF_STOCK);
	rig_down();
}

static void refused_expect(int64_t coupon, enum answer answer, unsigned n)
{
	struct refusals refusals;
	unsigned sum = 0;

	assert_int_equal(admission_refusals_take(rig.admission, &refusals), 1);
	assert_true(refusals.coupon == coupon);
	for (size_t i = 0; i < REFUSALS_N; i++)
		sum += refusals.num[i];
	assert_int_equal(refusals.num[answer - REFUSALS_FIRST], n);
	assert_int_equal(sum, n);
}

static void refused(int64_t coupon, enum answer answer)
{
	submit(coupon, 1);
	admission_flush(rig.admission);
	call_answer(answer);
}

static void test_refusals_are_counted(void **state)
{
	struct refusals refusals;

	(void)state;
	refused(2, ANSWER_LIMIT_REACHED);
	refused(1, ANSWER_OUT_OF_STOCK);
	submit(1, 2); /* from memory */
	refused(2, ANSWER_LIMIT_REACHED);
	refused(2, ANSWER_LIMIT_REACHED);
	refused_expect(2, ANSWER_LIMIT_REACHED, 3);
	refused_expect(1, ANSWER_OUT_OF_STOCK, 2);
	refused(3, ANSWER_NOT_FOUND);
	refused(4, ANSWER_BUSY);
	assert_int_equal(admission_refusals_take(rig.admission, &refusals), 0);
	submit(1, 3);
	refused_expect(1, ANSWER_OUT_OF_STOCK, 1);
}

static void test_refusals_of_a_coupon_that_is_forgotten(void **state)
{
	struct refusals refusals;

	(void)state;
	for (int64_t coupon = 1; coupon <= COUPONS_MAX; coupon++)
		refused(coupon, ANSWER_LIMIT_REACHED);
	refused(99, ANSWER_ENDED);
	for (int64_t coupon = 2; coupon <= COUPONS_MAX; coupon++)
		refused_expect(coupon, ANSWER_LIMIT_REACHED, 1);
	refused_expect(99, ANSWER_ENDED, 1);
	assert_int_equal(admission_refusals_take(rig.admission, &refusals), 0);
}

/* A command has changed something: neither what was answered before nor what was asked before. */
static void test_memory_is_forgotten(void **state)
{
	size_t sent;

	(void)state;
	submit(1, 1);
	admission_flush(rig.admission);
	call_answer(ANSWER_PAUSED);
	answer_expect(submit(1, 2), ANSWER_PAUSED);
	admission_forget(rig.admission);
	assert_int_equal(submit(1, 3)->answers, 0);
	sent = rig.sent;
	admission_flush(rig.admission);
	assert_int_equal(rig.sent, sent + 1);

	admission_forget(rig.admission); /* while the call is in flight */
	call_answer(ANSWER_PAUSED);
	assert_int_equal(submit(1, 4)->answers, 0);
	admission_flush(rig.admission);
	call_answer(ANSWER_PAUSED);
	answer_expect(submit(1, 5), ANSWER_PAUSED);

	submit(2, 1);
	admission_flush(rig.admission);
	call_state(CALL_MISSING);
	admission_forget(rig.admission); /* while PostgreSQL is asked */
	admission_looked_up(rig.admission, 2, ANSWER_NOT_FOUND, 0);
	assert_int_equal(submit(2, 2)->answers, 0);
	admission_flush(rig.admission);
	call_state(CALL_MISSING);
	admission_looked_up(rig.admission, 2, ANSWER_NOT_FOUND, 0);
	answer_expect(submit(2, 3), ANSWER_NOT_FOUND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_of_losing_answers),
		TEST(test_no_memory_of_limit_reached),
		TEST(test_no_memory_of_busy),
		cmocka_unit_test(test_memory_switched_off),
		TEST(test_memory_serves_the_waiting),
		TEST(test_memory_is_forgotten),
		TEST(test_memory_not_started_far_off),
		TEST(test_memory_not_started_soon),
		TEST(test_memory_not_started_late_reply),
		TEST(test_memory_not_started_too_late_reply),
		cmocka_unit_test(test_memory_before_busy),
		TEST(test_refusals_are_counted),
		TEST(test_refusals_of_a_coupon_that_is_forgotten),
	};

	return cmocka_run_group_tests_name("admission_memory", tests, NULL, NULL);
}
