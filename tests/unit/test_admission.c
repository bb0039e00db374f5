/*
 * Admission behind its port: batches, limits, the memory of losing answers, and the answers to each
 * way a call may end.
 */
#include "gateway/admit/admission.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CALLS_MAX 4096
#define COUPONS_TOLD 1000
#define REQUESTS_MAX 4096

/* A request that records its answers. */
struct client {
	struct request request; /* first, and its text last */
	char text[RECEIVE_KEY_MAX + 2];
	int answers;
	struct result result;
};

static struct {
	struct admission *admission;
	struct waiters *waiters;
	int64_t now_ms;
	unsigned ulids;
	int send_fails;
	struct call *calls[CALLS_MAX]; /* in flight, oldest first */
	size_t calls_n;
	size_t sent; /* in all */
	int lookups;
	int64_t lookup_coupon;
	int lookup_at_once; /* a coupon_state + 1: the look-up ends within the call */
	int reports;
	int64_t reported_coupon, reported_generation, reported_seq;
	int busy[COUPONS_TOLD];
	int64_t doubt_coupon, doubt_until_ms;
	struct batch_list published;
	size_t published_n;
	struct client *clients[REQUESTS_MAX];
	size_t clients_n;
} rig;

static const struct admission_limits limits_default = {
	.batch_receives_max = 256,
	.calls_per_coupon_max = 2,
	.unconfirmed_max = 3000,
	.unconfirmed_per_coupon_max = 2000,
	.memory_ms = 100,
	.coupons_max = 8,
};

static int64_t port_now_ms(void *context)
{
	(void)context;
	return rig.now_ms;
}

static void port_ulid_new(void *context, struct ulid *ulid)
{
	(void)context;
	memset(ulid, 0, sizeof(*ulid));
	rig.ulids++;
	memcpy(ulid->bytes + 12, &rig.ulids, sizeof(rig.ulids));
}

static int port_send(void *context, struct call *call)
{
	(void)context;
	if (rig.send_fails) {
		rig.send_fails--;
		return -1;
	}
	assert_true(rig.calls_n < CALLS_MAX);
	rig.calls[rig.calls_n++] = call;
	rig.sent++;
	return 0;
}

static void port_look_up(void *context, int64_t coupon)
{
	(void)context;
	rig.lookups++;
	rig.lookup_coupon = coupon;
	if (rig.lookup_at_once)
		admission_looked_up(rig.admission, coupon,
				    (enum coupon_state)(rig.lookup_at_once - 1));
}

static void port_publish(void *context, struct batch *batch)
{
	(void)context;
	STAILQ_INSERT_TAIL(&rig.published, batch, next);
	rig.published_n++;
}

static void port_answer(void *context, struct request *request, const struct result *result)
{
	struct client *client = (struct client *)(void *)request;

	(void)context;
	client->answers++;
	client->result = *result;
	assert_int_equal(client->answers, 1);
}

static void port_look_up_receive(void *context, const struct receive *receive, uint64_t token)
{
	(void)context;
	(void)receive;
	waiters_looked_up(rig.waiters, token, OUTCOME_ISSUED, NULL);
}

static void port_report(void *context, int64_t coupon, int64_t generation, int64_t seq)
{
	(void)context;
	rig.reports++;
	rig.reported_coupon = coupon;
	rig.reported_generation = generation;
	rig.reported_seq = seq;
}

/* Reported only on a change. */
static void port_busy(void *context, int64_t coupon, int busy)
{
	(void)context;
	assert_in_range(coupon, 0, COUPONS_TOLD - 1);
	assert_int_equal(rig.busy[coupon], !busy);
	rig.busy[coupon] = busy;
}

static void port_doubt(void *context, int64_t coupon, int64_t until_ms)
{
	(void)context;
	rig.doubt_coupon = coupon;
	rig.doubt_until_ms = until_ms;
}

static void rig_up(const struct admission_limits *limits)
{
	static const struct admission_port port = {
		.now_ms = port_now_ms,
		.ulid_new = port_ulid_new,
		.send = port_send,
		.look_up = port_look_up,
		.publish = port_publish,
		.answer = port_answer,
		.report = port_report,
		.busy = port_busy,
		.doubt = port_doubt,
	};
	static const struct waiters_port waiters_port = {
		.now_ms = port_now_ms,
		.look_up = port_look_up_receive,
		.answer = port_answer,
	};

	memset(&rig, 0, sizeof(rig));
	rig.now_ms = 1000;
	STAILQ_INIT(&rig.published);
	rig.waiters = waiters_new(&waiters_port, 5000);
	rig.admission = admission_new(&port, limits, rig.waiters);
}

static int setup(void **state)
{
	(void)state;
	rig_up(&limits_default);
	return 0;
}

static void batches_confirm(void)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(&rig.published))) {
		STAILQ_REMOVE_HEAD(&rig.published, next);
		admission_confirmed(rig.admission, batch);
		waiters_confirmed(rig.waiters, &batch->ulid);
		free(batch);
	}
}

static void rig_down(void)
{
	while (rig.calls_n > 0)
		admission_lost(rig.admission, rig.calls[--rig.calls_n]);
	admission_flush(rig.admission);
	while (rig.calls_n > 0)
		admission_lost(rig.admission, rig.calls[--rig.calls_n]);
	batches_confirm();
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
	if (admission_waiting(rig.admission) == 0)
		for (int i = 0; i < COUPONS_TOLD; i++)
			assert_false(rig.busy[i]);
	admission_free(rig.admission);
	waiters_free(rig.waiters);
	for (size_t i = 0; i < rig.clients_n; i++)
		free(rig.clients[i]);
}

static int teardown(void **state)
{
	(void)state;
	rig_down();
	return 0;
}

static struct client *submit_as(int64_t coupon, int64_t user, const char *key, enum request_ack ack)
{
	struct client *client = calloc(1, sizeof(*client));

	assert_true(rig.clients_n < REQUESTS_MAX);
	rig.clients[rig.clients_n++] = client;
	client->request.op = OP_ISSUE;
	client->request.ack = ack;
	client->request.coupon = coupon;
	client->request.user = user;
	client->request.key_len = strlen(key);
	admission_submit(rig.admission, &client->request);
	return client;
}

static struct client *submit(int64_t coupon, int64_t user)
{
	return submit_as(coupon, user, "", ACK_ACCEPTED);
}

static struct call *call_take(void)
{
	struct call *call = rig.calls[0];

	assert_true(rig.calls_n > 0);
	memmove(rig.calls, rig.calls + 1, --rig.calls_n * sizeof(*rig.calls));
	return call;
}

static struct call_reply reply; /* the last one that was made */

/* Every request of the call gets `answer`: slot 1, or the refusal. */
static void reply_make(const struct call *call, int64_t generation, int64_t seq, enum answer answer)
{
	memset(&reply, 0, sizeof(reply));
	reply.state = CALL_OK;
	reply.generation = generation;
	reply.seq = seq;
	reply.now_ms = 1700000000000;
	reply.body = "";
	for (size_t i = 0; i < call->requests_n; i++) {
		reply.verdicts[i].answer = answer;
		reply.verdicts[i].slot = answer == ANSWER_OK;
	}
	if (answer == ANSWER_OK) {
		reply.body = "{body}";
		reply.body_len = 6;
	}
}

static void call_answer(enum answer answer)
{
	struct call *call = call_take();

	reply_make(call, 1, 1, answer);
	admission_replied(rig.admission, call, &reply);
}

static void call_state(enum call_state state)
{
	struct call *call = call_take();

	memset(&reply, 0, sizeof(reply));
	reply.state = state;
	admission_replied(rig.admission, call, &reply);
}

static void answer_expect(const struct client *client, enum answer answer)
{
	assert_int_equal(client->answers, 1);
	assert_int_equal(client->result.answer, answer);
}

/* Batches */

static void test_alone_goes_out_at_once(void **state)
{
	struct client *client = submit(1, 42);
	struct ulid batch;

	(void)state;
	assert_int_equal(rig.calls_n, 0);
	assert_int_equal(admission_waiting(rig.admission), 1);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 1);
	assert_int_equal(rig.calls[0]->requests_n, 1);
	assert_true(rig.calls[0]->coupon_id == 1);
	batch = rig.calls[0]->batch;
	call_answer(ANSWER_OK);
	answer_expect(client, ANSWER_OK);
	assert_int_equal(client->result.reached, ACK_ACCEPTED);
	assert_int_equal(client->result.slot, 1);
	assert_true(client->result.receive.coupon == 1 && client->result.receive.user == 42);
	assert_memory_equal(&client->result.receive.batch, &batch, sizeof(batch));
	assert_int_equal(client->result.receive.index, 0);
	assert_int_equal(admission_waiting(rig.admission), 0);
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
	assert_int_equal(admission_calls(rig.admission), 2);
	/* Another coupon does not wait for it. */
	submit(2, 1);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 3);
	call_answer(ANSWER_OK);
	admission_flush(rig.admission);
	assert_int_equal(rig.calls_n, 3);
	assert_int_equal(rig.calls[2]->requests_n, 256);
	assert_true(rig.calls[2]->requests[0]->user == 100 &&
		    rig.calls[2]->requests[255]->user == 355);
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

/*
 * A batch holds only the newly accepted receives: their indexes are dense, whatever is between
 * them.
 */
static void test_indexes(void **state)
{
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
	waiters_settled(rig.waiters, &batch->ulid, 2, OUTCOME_ISSUED, NULL);
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

/* The memory of losing answers */

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

static void test_memory_out_of_stock(void **state)
{
	(void)state;
	memory_expect(ANSWER_OUT_OF_STOCK);
}

static void test_memory_ended(void **state)
{
	(void)state;
	memory_expect(ANSWER_ENDED);
}

static void test_memory_paused(void **state)
{
	(void)state;
	memory_expect(ANSWER_PAUSED);
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

static void test_memory_switched_off(void **state)
{
	struct admission_limits limits = limits_default;

	(void)state;
	limits.memory_ms = 0;
	rig_up(&limits);
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

/* Bounds */

static void test_busy_per_coupon(void **state)
{
	struct admission_limits limits = limits_default;

	(void)state;
	limits.unconfirmed_per_coupon_max = 10;
	rig_up(&limits);
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
	struct admission_limits limits = limits_default;

	(void)state;
	limits.unconfirmed_max = 7;
	rig_up(&limits);
	for (int i = 0; i < 7; i++)
		submit(1 + i % 3, 1 + i);
	answer_expect(submit(4, 1), ANSWER_BUSY);
	answer_expect(submit(1, 9), ANSWER_BUSY);
	admission_flush(rig.admission);
	admission_not_run(rig.admission, call_take());
	assert_int_equal(submit(4, 1)->answers, 0);
	rig_down();
}

/* Sold out is answered from memory even when full. */
static void test_memory_before_busy(void **state)
{
	struct admission_limits limits = limits_default;

	(void)state;
	limits.unconfirmed_per_coupon_max = 2;
	rig_up(&limits);
	submit(1, 1);
	admission_flush(rig.admission);
	submit_as(1, 2, "k", ACK_ACCEPTED);
	call_answer(ANSWER_OUT_OF_STOCK);
	submit_as(1, 3, "k", ACK_ACCEPTED);
	answer_expect(submit_as(1, 4, "k", ACK_ACCEPTED), ANSWER_BUSY);
	answer_expect(submit(1, 4), ANSWER_OUT_OF_STOCK);
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
	assert_int_equal(admission_calls(rig.admission), 0);
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
	assert_int_equal(rig.published_n, 0);
	assert_false(admission_in_doubt(rig.admission, 1)); /* it had no effect */
	/* None of it is remembered. */
	assert_int_equal(submit(1, 9)->answers, 0);
}

static void test_in_doubt(void **state)
{
	(void)state;
	assert_false(admission_in_doubt(rig.admission, 1));
	submit(1, 1);
	assert_true(admission_in_doubt(rig.admission, 1));
	admission_flush(rig.admission);
	assert_true(admission_in_doubt(rig.admission, 1));
	call_answer(ANSWER_OK);
	assert_false(admission_in_doubt(rig.admission, 1));
}

/* Coupons that Redis does not have */

static void missing_expect(enum coupon_state coupon_state, enum answer answer, int remembered)
{
	struct client *clients[4];

	rig_up(&limits_default);
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
	assert_int_equal(admission_waiting(rig.admission), 3);
	admission_looked_up(rig.admission, 1, coupon_state);
	for (int i = 0; i < 3; i++)
		answer_expect(clients[i], answer);
	assert_int_equal(admission_waiting(rig.admission), 0);
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
	missing_expect(COUPON_ABSENT, ANSWER_NOT_FOUND, 1);
	missing_expect(COUPON_PAUSED, ANSWER_PAUSED, 1);
	missing_expect(COUPON_ENDED, ANSWER_ENDED, 1);
	missing_expect(COUPON_PUBLISHED, ANSWER_UNAVAILABLE, 0);
	missing_expect(COUPON_LOOKUP_FAILED, ANSWER_UNAVAILABLE, 0);
	missing_expect(COUPON_LOOKUP_BUSY, ANSWER_BUSY, 0);
}

static void test_looked_up_at_once(void **state)
{
	struct client *client = submit(1, 1);

	(void)state;
	rig.lookup_at_once = COUPON_LOOKUP_BUSY + 1;
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
		admission_looked_up(rig.admission, 1, COUPON_LOOKUP_FAILED);
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
	admission_report(rig.admission);
	assert_int_equal(rig.reports, 0);
	seen_reply(3, 8);
	admission_report(rig.admission);
	report_expect(1, 3, 8);
	admission_report(rig.admission);
	report_expect(2, 3, 8);
}

/* Evicted coupons */

static void test_eviction(void **state)
{
	(void)state;
	for (int64_t coupon = 1; coupon <= (int64_t)limits_default.coupons_max; coupon++) {
		submit(coupon, 1);
		admission_flush(rig.admission);
		call_answer(coupon == 1 ? ANSWER_OK : ANSWER_LIMIT_REACHED);
	}
	/* 1 has unconfirmed receives and stays; 2 is the least recently used of the others. */
	assert_int_equal(submit(100, 1)->answers, 0);
	admission_flush(rig.admission);
	call_answer(ANSWER_LIMIT_REACHED);
	batches_confirm();
	submit(2, 1);
	admission_flush(rig.admission);
	assert_true(rig.calls[0]->seen_generation == 0);
}

static void test_eviction_impossible(void **state)
{
	struct client *client;

	(void)state;
	for (int64_t coupon = 1; coupon <= (int64_t)limits_default.coupons_max; coupon++)
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
	struct admission_limits limits = limits_default;

	(void)state;
	limits.coupons_max = 1;
	limits.batch_receives_max = 2;
	rig_up(&limits);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_alone_goes_out_at_once),
		TEST(test_batches_form),
		TEST(test_indexes),
		TEST(test_nothing_accepted),
		TEST(test_repeated_waits_for_its_outcome),
		TEST(test_memory_out_of_stock),
		TEST(test_memory_ended),
		TEST(test_memory_paused),
		TEST(test_no_memory_of_limit_reached),
		cmocka_unit_test(test_memory_switched_off),
		TEST(test_memory_serves_the_waiting),
		TEST(test_memory_not_started_far_off),
		TEST(test_memory_not_started_soon),
		TEST(test_memory_not_started_late_reply),
		TEST(test_memory_not_started_too_late_reply),
		cmocka_unit_test(test_busy_per_coupon),
		cmocka_unit_test(test_busy_in_all),
		cmocka_unit_test(test_memory_before_busy),
		TEST(test_lost_is_unknown),
		TEST(test_unavailable),
		TEST(test_in_doubt),
		cmocka_unit_test(test_missing),
		TEST(test_looked_up_at_once),
		TEST(test_seen),
		TEST(test_report_when_refused),
		TEST(test_report_of_an_overtaken_reply),
		TEST(test_report_over_a_new_connection),
		TEST(test_eviction),
		TEST(test_eviction_impossible),
		cmocka_unit_test(test_eviction_after_failed_send),
	};

	return cmocka_run_group_tests_name("admission", tests, NULL, NULL);
}
