/*
 * Admission: batches, limits, and the answers to each way a call may end.
 */
#include "tests/unit/admission_rig.h"

/* Batches */

static void test_alone_goes_out_at_once(void **state)
{
	struct client *client = submit(1, 42);
	struct ulid batch;

	(void)state;
	assert_int_equal(rig.calls_n, 0);
	assert_int_equal(requests_open(), 1);
	assert_true(admission_in_doubt(rig.admission, 1) && !admission_in_doubt(rig.admission, 2));
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 1);
	assert_int_equal(rig.calls[0]->requests_n, 1);
	assert_true(rig.calls[0]->coupon_id == 1);
	batch = rig.calls[0]->batch;
	call_answer(ANSWER_OK);
	answer_expect(client, ANSWER_OK);
	assert_int_equal(client->result.reached, ACK_ACCEPTED);
	assert_int_equal(client->result.slot, 1);
	assert_true(client->result.receive.coupon == 1);
	assert_string_equal(client->result.receive.user.text, "42");
	assert_memory_equal(&client->result.receive.batch, &batch, sizeof(batch));
	assert_int_equal(client->result.receive.index, 0);
	assert_int_equal(requests_open(), 0);
	assert_false(admission_in_doubt(rig.admission, 1));
	assert_int_equal(admission_unconfirmed(rig.admission), 1);
	assert_int_equal(rig.published_n, 1);
	batches_confirm();
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
}

/*
 * Requests of one loop turn go into one call; those that arrive while two are in flight wait for
 * the third.
 */
static void test_batches_form(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		submit(1, 1 + i);
	admission_flush(rig.admission);
	submit(1, 4);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 2);
	assert_int_equal(rig.calls[0]->requests_n, 3);
	assert_int_equal(rig.calls[1]->requests_n, 1);
	for (int i = 0; i < 600; i++)
		submit(1, 100 + i);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 2);
	/* Another coupon does not wait for it. */
	submit(2, 1);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 3);
	call_answer(ANSWER_OK);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 3);
	assert_int_equal(rig.calls[2]->requests_n, 256);
	assert_string_equal(rig.calls[2]->requests[0]->user.text, "100");
	assert_string_equal(rig.calls[2]->requests[255]->user.text, "355");
	call_answer(ANSWER_OK);
	call_answer(ANSWER_OK);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 2);
	assert_int_equal(rig.calls[1]->requests_n, 256);
	call_answer(ANSWER_OK);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls[1]->requests_n, 88);
	call_answer(ANSWER_OK);
	call_answer(ANSWER_OK);
	for (size_t i = 0; i < rig.clients_n; i++)
		answer_expect(rig.clients[i], ANSWER_OK);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 0);
}

/* What the port has no room for waits, oldest coupon first, and goes when it has. */
static void test_room(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++)
		submit(1, 1 + i);
	submit(2, 1);
	submit(3, 1);
	rig.is_limited = 1;
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 0);
	assert_int_equal(rig.room_requests, 7);
	assert_int_equal(rig.room_coupons, 3);
	rig.room = 3;
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 4);
	assert_int_equal(rig.calls[0]->requests_n, 3);
	assert_int_equal(rig.calls[1]->requests_n, 2);
	assert_int_equal(rig.calls[2]->coupon_id, 2);
	assert_int_equal(rig.calls[3]->coupon_id, 3);
	rig.room = 0;
	submit(4, 1);
	submit(2, 2);
	call_answer(ANSWER_OK);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 3);
	assert_int_equal(rig.room_requests, 2);
	rig.is_limited = 0;
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 5);
	assert_int_equal(rig.calls[3]->coupon_id, 4);
	assert_int_equal(rig.calls[4]->coupon_id, 2);
	while (rig.calls_n > 0)
		call_answer(ANSWER_OK);
	for (size_t i = 0; i < rig.clients_n; i++)
		answer_expect(rig.clients[i], ANSWER_OK);
}

/* One that closed its side a second ago is not begun; one that has just done so is. */
static void test_those_who_have_left(void **state)
{
	const int left_ms[] = { 1000, 999, 0 }, waited_ms[] = { 0, 0, 900 };
	struct client *clients[4];

	(void)state;
	rig.is_limited = 1;
	for (size_t i = 0; i < 3; i++) {
		clients[i] = submit(1, 1 + (int64_t)i);
		clients[i]->request.begun_us = (rig.now_ms + 1000 - left_ms[i]) * 1000;
		clients[i]->responder.has_left = 1;
		clients[i]->responder.left_waited_ms = waited_ms[i];
	}
	clients[3] = submit(1, 4); /* it stays, however long it waits */
	rig.now_ms += 1000;
	rig.room = 10;
	admission_flush(rig.admission);
	answer_expect(clients[0], ANSWER_BUSY);
	assert_int_equal(rig.calls_n, 1);
	assert_int_equal(rig.calls[0]->requests_n, 3);
	call_answer(ANSWER_OK);
	for (size_t i = 1; i < 4; i++)
		answer_expect(clients[i], ANSWER_OK);

	clients[0] = submit(1, 5);
	clients[0]->responder.has_left = 1;
	clients[0]->responder.left_waited_ms = 1000;
	clients[0]->request.begun_us = rig.now_ms * 1000;
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 0);
	answer_expect(clients[0], ANSWER_BUSY);
}

/*
 * A batch holds only the newly accepted receives: their indexes are dense, whatever is between
 * them.
 */
static void test_indexes(void **state)
{
	static struct reply told = { .outcomes_n = 1, .receives = { { .index = 2 } } };
	struct client *clients[6];
	struct batch *batch;
	struct call *call;

	(void)state;
	for (int i = 0; i < 6; i++)
		clients[i] = submit_as(1, 1 + i, "", i == 4 ? ACK_ISSUED : ACK_ACCEPTED);
	admission_flush(rig.admission);
	call = call_take();
	reply_make(call, 1, 3, ANSWER_OK);
	reply.verdicts[0].answer = ANSWER_LIMIT_REACHED;
	reply.verdicts[0].slot = 0;
	reply.verdicts[2].repeated = 1;
	reply.verdicts[2].index = 77;
	reply.verdicts[2].slot = 3;
	memset(&reply.verdicts[2].batch, 0xaa, sizeof(struct ulid));
	reply.verdicts[5].answer = ANSWER_OUT_OF_STOCK;
	reply.verdicts[5].slot = 0;
	admission_replied(rig.admission, call, &reply);
	answer_expect(clients[0], ANSWER_LIMIT_REACHED);
	answer_expect(clients[1], ANSWER_OK);
	answer_expect(clients[2], ANSWER_OK);
	answer_expect(clients[3], ANSWER_OK);
	assert_int_equal(clients[4]->answers, 0); /* waits for its outcome */
	answer_expect(clients[5], ANSWER_OUT_OF_STOCK);
	assert_int_equal(clients[1]->result.receive.index, 0);
	assert_int_equal(clients[2]->result.receive.index, 77);
	assert_true(clients[2]->result.is_replayed && !clients[1]->result.is_replayed);
	assert_int_equal(clients[2]->result.receive.batch.bytes[5], 0xaa);
	assert_int_equal(clients[2]->result.slot, 3);
	assert_int_equal(clients[3]->result.receive.index, 1);
	batch = STAILQ_FIRST(&rig.published);
	assert_int_equal(batch->receives, 3);
	assert_int_equal(batch->wants_outcome, 1);
	assert_true(batch->coupon == 1);
	assert_int_equal(batch->body_len, 6);
	assert_memory_equal(batch->body, "{body}", 6);
	assert_int_equal(admission_unconfirmed(rig.admission), 3);
	told.batch = batch->ulid;
	waiters_replied(rig.waiters, &told);
	answer_expect(clients[4], ANSWER_OK);
	assert_int_equal(clients[4]->result.reached, ACK_ISSUED);
	assert_int_equal(clients[4]->result.receive.index, 2);
}

/* A call without accepted receives publishes nothing and leaves no counts. */
static void test_nothing_accepted(void **state)
{
	struct client *client = submit(1, 1);

	(void)state;
	admission_flush(rig.admission);
	call_answer(ANSWER_LIMIT_REACHED);
	answer_expect(client, ANSWER_LIMIT_REACHED);
	assert_int_equal(rig.published_n, 0);
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
}

/* The outbox has no room: only the request with a known key has a receive. */
static void test_busy_by_the_script(void **state)
{
	struct client *known = submit_as(1, 1, "k", ACK_ACCEPTED), *one = submit(1, 2),
		      *waits = submit_as(1, 3, "", ACK_ISSUED);
	struct call *call;

	(void)state;
	admission_flush(rig.admission);
	call = call_take();
	reply_make(call, 1, 1, ANSWER_BUSY);
	reply.verdicts[0] = (struct verdict){ .answer = ANSWER_OK, .slot = 2, .repeated = 1 };
	admission_replied(rig.admission, call, &reply);
	answer_expect(known, ANSWER_OK);
	assert_int_equal(known->result.slot, 2);
	answer_expect(one, ANSWER_BUSY);
	answer_expect(waits, ANSWER_BUSY);
	assert_int_equal(rig.published_n, 0);
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
}

static void test_repeated_waits_for_its_outcome(void **state)
{
	struct client *client = submit_as(1, 1, "k", ACK_ISSUED);
	struct call *call;

	(void)state;
	admission_flush(rig.admission);
	call = call_take();
	reply_make(call, 1, 1, ANSWER_OK);
	reply.body_len = 0;
	reply.verdicts[0].repeated = 1;
	admission_replied(rig.admission, call, &reply);
	answer_expect(client, ANSWER_OK); /* the look-up of this rig answers at once */
	assert_int_equal(client->result.reached, ACK_ISSUED);
	assert_int_equal(rig.published_n, 0);
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
}

/* Bounds */

static void test_busy_per_coupon(void **state)
{
	struct config limits = limits_default;

	(void)state;
	limits.unconfirmed_per_coupon_max = 10;
	rig_up(&limits, COUPONS_MAX);
	for (int i = 0; i < 10; i++)
		submit(1, 1 + i);
	answer_expect(submit(1, 11), ANSWER_BUSY);
	assert_int_equal(submit(2, 1)->answers, 0);
	admission_flush(rig.admission);
	/* Receives count while they are in a call, and when accepted until they are confirmed. */
	answer_expect(submit(1, 11), ANSWER_BUSY);
	call_answer(ANSWER_OK);
	answer_expect(submit(1, 11), ANSWER_BUSY);
	call_answer(ANSWER_LIMIT_REACHED);
	batches_confirm();
	assert_int_equal(submit(1, 11)->answers, 0);
	rig_down();
}

static void test_busy_in_all(void **state)
{
	struct config limits = limits_default;

	(void)state;
	limits.unconfirmed_max = 7;
	rig_up(&limits, COUPONS_MAX);
	for (int i = 0; i < 7; i++)
		submit(1 + i % 3, 1 + i);
	answer_expect(submit(4, 1), ANSWER_BUSY);
	answer_expect(submit(1, 9), ANSWER_BUSY);
	admission_flush(rig.admission);
	admission_not_run(rig.admission, call_take());
	assert_int_equal(submit(4, 1)->answers, 0);
	rig_down();
}

/* How a call may end */

static void test_lost_is_unknown(void **state)
{
	struct client *client = submit(1, 1);

	(void)state;
	assert_true(rig.busy[1]); /* before anything is sent */
	admission_flush(rig.admission);
	assert_true(admission_in_doubt(rig.admission, 1));
	assert_true(rig.busy[1]);
	admission_lost(rig.admission, call_take());
	assert_false(rig.busy[1]);
	assert_int_equal(rig.doubt_coupon, 1);
	assert_int_equal(rig.doubt_until_ms, rig.now_ms + 60000);
	answer_expect(client, ANSWER_UNKNOWN);
	assert_int_equal(client->result.slot, 0);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 0); /* never sent again */
	assert_int_equal(rig.sent, 1);
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
	rig.now_ms += 59999;
	assert_true(admission_in_doubt(rig.admission, 1));
	rig.now_ms += 1;
	assert_false(admission_in_doubt(rig.admission, 1));
}

static void test_unavailable(void **state)
{
	struct client *clients[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		clients[i] = submit(1, 1 + i);
		rig.send_fails = i == 3;
		admission_flush(rig.admission);
		if (i == 0)
			admission_not_run(rig.admission, call_take());
		else if (i == 1)
			call_state(CALL_UNVERIFIED);
		else if (i == 2)
			call_state(CALL_BEHIND);
	}
	for (int i = 0; i < 4; i++)
		answer_expect(clients[i], ANSWER_UNAVAILABLE);
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
	assert_int_equal(rig.published_n, 0);
	assert_false(admission_in_doubt(rig.admission, 1)); /* it had no effect */
	/* None of it is remembered, and none of the calls is still in flight. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(submit(1, 9 + i)->answers, 0);
		admission_flush(rig.admission);
	}
	assert_int_equal(rig.calls_n, limits_default.calls_per_coupon_max);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_alone_goes_out_at_once),
		TEST(test_batches_form),
		TEST(test_indexes),
		TEST(test_nothing_accepted),
		TEST(test_busy_by_the_script),
		TEST(test_repeated_waits_for_its_outcome),
		cmocka_unit_test(test_busy_per_coupon),
		TEST(test_room),
		TEST(test_those_who_have_left),
		cmocka_unit_test(test_busy_in_all),
		TEST(test_lost_is_unknown),
		TEST(test_unavailable),
	};

	return cmocka_run_group_tests_name("admission", tests, NULL, NULL);
}
