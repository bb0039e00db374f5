/*
 * Admission behind a port that records what it sends, publishes, looks up and reports.
 */
#pragma once

#include "gateway/admit/admission.h"
#include "coupon/copies.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CALLS_MAX 4096
#define LOOKS_MAX 64
#define COUPONS_MAX 8 /* remembered */
#define COUPONS_TOLD 1000
#define REQUESTS_MAX 4096

/* A request that records its answers. */
struct client {
	struct request request; /* first, and its text last */
	char text[RECEIVE_KEY_MAX + 2];
	struct responder responder;
	int answers;
	struct result result;
};

static struct {
	struct admission *admission;
	struct waiters *waiters;
	struct copies *copies;
	int64_t now_ms;
	unsigned ulids;
	int send_fails;
	int is_limited; /* the port has only `room` */
	size_t room;
	size_t room_requests, room_coupons; /* as it was asked for last */
	struct call *calls[CALLS_MAX];      /* in flight, oldest first */
	size_t calls_n;
	size_t sent; /* in all */
	int lookups;
	int64_t lookup_coupon;
	enum answer lookup_at_once; /* not ANSWER_OK: the look-up ends within the call */
	int reports;
	int64_t reported_coupon, reported_generation, reported_seq;
	int reported_recent;
	int asks;
	int64_t asked_coupon;
	struct copies_coupon *looked[LOOKS_MAX]; /* that Redis is asked for */
	size_t looked_n;
	int64_t looked_id;
	struct copies_coupon *written_to; /* that messages were written of again last */
	struct copy written[COPIES_MESSAGES_MAX];
	size_t written_n;
	int writes;
	int busy[COUPONS_TOLD];
	int64_t doubt_coupon, doubt_until_ms;
	struct batch_list published;
	size_t published_n;
	struct client *clients[REQUESTS_MAX];
	size_t clients_n;
} rig;

static const struct config limits_default = {
	.batch_receives_max = 256,
	.calls_per_coupon_max = 2,
	.unconfirmed_max = 3000,
	.unconfirmed_per_coupon_max = 2000,
	.memory_ms = 100,
};

static inline int64_t port_now_ms(void)
{
	return rig.now_ms;
}

static inline void port_ulid_new(struct ulid *ulid)
{
	memset(ulid, 0, sizeof(*ulid));
	rig.ulids++;
	memcpy(ulid->bytes + 12, &rig.ulids, sizeof(rig.ulids));
}

static inline size_t port_room(struct redis_pool *redis, size_t requests, size_t coupons)
{
	(void)redis;
	rig.room_requests = requests;
	rig.room_coupons = coupons;
	return rig.is_limited ? rig.room : MESSAGE_RECEIVES_MAX;
}

static inline int port_send(struct redis_pool *redis, struct call *call)
{
	(void)redis;
	if (rig.send_fails) {
		rig.send_fails--;
		return -1;
	}
	assert_true(rig.calls_n < CALLS_MAX);
	rig.calls[rig.calls_n++] = call;
	rig.sent++;
	return 0;
}

static inline void port_look_up(void *lookup, int64_t coupon)
{
	(void)lookup;
	rig.lookups++;
	rig.lookup_coupon = coupon;
	if (rig.lookup_at_once != ANSWER_OK)
		admission_looked_up(rig.admission, coupon, rig.lookup_at_once, 0);
}

static inline void port_publish(struct publisher *publisher, struct batch *batch)
{
	(void)publisher;
	STAILQ_INSERT_TAIL(&rig.published, batch, next);
	rig.published_n++;
}

static inline void port_answer(struct request *request, const struct result *result)
{
	struct client *client = (struct client *)(void *)request;

	client->answers++;
	client->result = *result;
	assert_int_equal(client->answers, 1);
}

static inline void port_answer_decided(void *answering, struct request *request,
				       const struct result *result)
{
	(void)answering;
	port_answer(request, result);
}

static inline void port_look_up_receive(void *lookup, const struct receive *receive,
					struct waiter *waiter)
{
	(void)lookup;
	(void)receive;
	waiters_looked_up(waiter, OUTCOME_ISSUED, NULL);
}

static inline void port_report(struct presence *presence, int64_t coupon, int64_t generation,
			       int64_t seq, int is_recent)
{
	(void)presence;
	rig.reported_recent = is_recent;
	rig.reports++;
	rig.reported_coupon = coupon;
	rig.reported_generation = generation;
	rig.reported_seq = seq;
}

static inline void port_ask(struct redis_pool *redis, int64_t coupon)
{
	(void)redis;
	rig.asks++;
	rig.asked_coupon = coupon;
}

/* Reported only on a change. */
static inline void port_busy(int64_t coupon, int busy)
{
	assert_in_range(coupon, 0, COUPONS_TOLD - 1);
	assert_int_equal(rig.busy[coupon], !busy);
	rig.busy[coupon] = busy;
}

static inline void port_doubt(int64_t coupon, int64_t until_ms)
{
	rig.doubt_coupon = coupon;
	rig.doubt_until_ms = until_ms;
}

static inline void port_look(void *context, struct copies_coupon *asked, int64_t coupon)
{
	(void)context;
	assert_true(rig.looked_n < LOOKS_MAX);
	rig.looked_id = coupon;
	rig.looked[rig.looked_n++] = asked;
}

static inline void port_write(void *context, struct copies_coupon *asked, int64_t coupon,
			      const struct copy *const *messages, size_t n)
{
	(void)context;
	(void)coupon;
	rig.written_to = asked;
	rig.written_n = n;
	for (size_t i = 0; i < n; i++)
		rig.written[i] = *messages[i];
	rig.writes++;
}

static inline void rig_up(const struct config *limits, size_t coupons_max)
{
	static const struct admission_port port = {
		.now_ms = port_now_ms,
		.ulid_new = port_ulid_new,
		.room = port_room,
		.send = port_send,
		.look_up = port_look_up,
		.publish = port_publish,
		.answer = port_answer_decided,
		.report = port_report,
		.ask = port_ask,
		.busy = port_busy,
		.doubt = port_doubt,
	};
	static const struct copies_port copies_port = {
		.now_ms = port_now_ms,
		.look = port_look,
		.write = port_write,
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
	rig.copies = copies_new(&copies_port);
	rig.admission = admission_new(&port, limits, coupons_max, rig.waiters, rig.copies);
}

static inline int setup(void **state)
{
	(void)state;
	rig_up(&limits_default, COUPONS_MAX);
	return 0;
}

static inline void batches_confirm(void)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(&rig.published))) {
		STAILQ_REMOVE_HEAD(&rig.published, next);
		admission_confirmed(rig.admission, batch);
		waiters_confirmed(rig.waiters, &batch->ulid);
		free(batch);
	}
}

/* Requests that admission has neither answered nor given to the waiters. */
static inline size_t requests_open(void)
{
	size_t n = 0;

	for (size_t i = 0; i < rig.clients_n; i++)
		n += rig.clients[i]->answers == 0;
	return n - waiters_count(rig.waiters);
}

static inline void rig_down(void)
{
	while (rig.calls_n > 0)
		admission_lost(rig.admission, rig.calls[--rig.calls_n]);
	admission_flush(rig.admission);
	while (rig.calls_n > 0)
		admission_lost(rig.admission, rig.calls[--rig.calls_n]);
	batches_confirm();
	assert_int_equal(admission_unconfirmed(rig.admission), 0);
	if (requests_open() == 0)
		for (int i = 0; i < COUPONS_TOLD; i++)
			assert_false(rig.busy[i]);
	admission_free(rig.admission);
	copies_free(rig.copies);
	waiters_free(rig.waiters);
	for (size_t i = 0; i < rig.clients_n; i++)
		free(rig.clients[i]);
}

static inline int teardown(void **state)
{
	(void)state;
	rig_down();
	return 0;
}

static inline struct client *submit_as(int64_t coupon, int64_t user, const char *key,
				       enum request_ack ack)
{
	struct client *client = calloc(1, sizeof(*client));

	assert_true(rig.clients_n < REQUESTS_MAX);
	rig.clients[rig.clients_n++] = client;
	client->request.responder = &client->responder;
	client->request.op = OP_ISSUE;
	client->request.ack = ack;
	client->request.coupon = coupon;
	client->request.user = user_id_of_number(user);
	client->request.key_len = strlen(key);
	admission_submit(rig.admission, &client->request);
	return client;
}

static inline struct client *submit(int64_t coupon, int64_t user)
{
	return submit_as(coupon, user, "", ACK_ACCEPTED);
}

static inline struct call *call_take(void)
{
	struct call *call = rig.calls[0];

	assert_true(rig.calls_n > 0);
	memmove(rig.calls, rig.calls + 1, --rig.calls_n * sizeof(*rig.calls));
	return call;
}

static struct call_reply reply; /* the last one that was made */

/* Every request of the call gets `answer`: slot 1, or the refusal. */
static inline void reply_make(const struct call *call, int64_t generation, int64_t seq,
			      enum answer answer)
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

static inline void call_answer(enum answer answer)
{
	struct call *call = call_take();

	reply_make(call, 1, 1, answer);
	admission_replied(rig.admission, call, &reply);
}

static inline void call_state(enum call_state state)
{
	struct call *call = call_take();

	memset(&reply, 0, sizeof(reply));
	reply.state = state;
	admission_replied(rig.admission, call, &reply);
}

static inline void answer_expect(const struct client *client, enum answer answer)
{
	assert_int_equal(client->answers, 1);
	assert_int_equal(client->result.answer, answer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
