/*
 * A gateway: the real admission, waiters and confirm window, with models of the Redis connection,
 * the publisher and the look-ups behind their ports. It may crash at any event and restarts empty.
 */
#pragma once

#include "tests/sim/gateway_publisher.h"

/* Look-ups */

static void coupon_looked_up(void *context, uint64_t id, uint64_t incarnation)
{
	const struct database_coupon *coupon = database_coupon((int64_t)id);
	int is_published = coupon && coupon->published;
	enum answer answer = is_published ? ANSWER_UNAVAILABLE : ANSWER_NOT_FOUND;

	(void)context;
	if (incarnation != gateway.incarnation)
		return;
	if (fault(FAULT_LOOKUP)) {
		is_published = 0;
		answer = ANSWER_UNAVAILABLE;
	}
	if (answer == ANSWER_NOT_FOUND)
		gateway.told_ms[id - COUPON_FIRST][answer] = sim.now_ms;
	gateway.looking[id - COUPON_FIRST] = 0;
	admission_looked_up(gateway.admission, (int64_t)id, answer, is_published);
}

static void port_look_up(void *lookup, int64_t coupon)
{
	(void)lookup;
	sim_check(!gateway.looking[coupon - COUPON_FIRST], "a second look-up of coupon %lld",
		  (long long)coupon);
	gateway.looking[coupon - COUPON_FIRST] = 1;
	event_in(2, 60, coupon_looked_up, NULL, (uint64_t)coupon, gateway.incarnation);
}

static void receive_looked_up(void *context, uint64_t asking, uint64_t incarnation)
{
	struct waiter *waiter = (struct waiter *)(uintptr_t)asking; /* of this incarnation */
	struct receive *receive = context;
	enum outcome_state state = OUTCOME_UNKNOWN;

	if (incarnation == gateway.incarnation) {
		for (size_t i = 0; i < gateway.asking_n; i++)
			if (gateway.asking[i] == waiter)
				gateway.asking[i--] = gateway.asking[--gateway.asking_n];
		if (fault(FAULT_LOOKUP))
			state = OUTCOME_UNKNOWN;
		else if (row_issued(receive))
			state = OUTCOME_ISSUED;
		else if (row_rejected(receive))
			state = OUTCOME_REJECTED;
		waiters_looked_up(waiter, state, "other");
	}
	free(receive);
}

static void port_look_up_receive(void *lookup, const struct receive *receive, struct waiter *waiter)
{
	struct receive *copy;

	(void)lookup;
	if (gateway.dying) {
		waiters_looked_up(waiter, OUTCOME_UNKNOWN, NULL);
		return;
	}
	copy = malloc(sizeof(*copy));
	*copy = *receive;
	assert_true(gateway.asking_n < ASKING_MAX);
	gateway.asking[gateway.asking_n++] = waiter;
	event_in(2, 60, receive_looked_up, copy, (uintptr_t)waiter, gateway.incarnation);
}

/* Outcomes */

static void gateway_outcomes_arrive(void *context, uint64_t incarnation, uint64_t len)
{
	static struct reply reply;

	if (incarnation == gateway.incarnation) {
		sim_check(reply_decode(gateway.arena, context, len, &reply) == 0,
			  "a reply cannot be decoded");
		waiters_replied(gateway.waiters, &reply);
	}
	free(context);
}

/* Its life */

static int64_t port_now_ms(void)
{
	return sim.now_ms + (gateway.dying ? 1000000000 : 0);
}

static void port_ulid_new(struct ulid *ulid)
{
	uint64_t words[2] = { sim_random(), sim_random() };

	memcpy(ulid, words, sizeof(*ulid));
}

/* Redis loses no data here. */
static void port_report(struct presence *presence, int64_t coupon, int64_t generation, int64_t seq,
			int is_recent)
{
	(void)presence;
	(void)coupon;
	(void)generation;
	(void)seq;
	(void)is_recent;
}

/* There is no keeper to be asked, and no other process. */
static void port_ask(struct redis_pool *pool, int64_t coupon)
{
	(void)pool;
	(void)coupon;
}

static void port_busy(int64_t coupon, int busy)
{
	(void)coupon;
	(void)busy;
}

static void port_doubt(int64_t coupon, int64_t until_ms)
{
	(void)coupon;
	(void)until_ms;
}

static void gateway_tick(void *context, uint64_t incarnation, uint64_t b)
{
	(void)context;
	(void)b;
	if (incarnation != gateway.incarnation)
		return;
	waiters_tick(gateway.waiters);
	copies_tick(gateway.copies);
	event_at(sim.now_ms + 50, gateway_tick, NULL, incarnation, 0);
}

/* What Redis has lost */

/* A coupon that Redis is asked for, or told; a reply to a gateway that has died is dropped. */
struct copy_call {
	struct copies_coupon *asked;
	int64_t id;
	uint64_t run_id;
	int is_told;
	struct copies_look look;
	enum copies_result result;
	size_t n;
	struct copy messages[COPIES_MESSAGES_MAX];
};

static void copy_free(struct copy_call *copy)
{
	for (size_t i = 0; i < copy->n; i++)
		free((char *)(uintptr_t)copy->messages[i].body);
	free(copy);
}

static void copy_replied(void *context, uint64_t incarnation, uint64_t is_lost)
{
	struct copy_call *copy = context;
	char run_id[REDIS_RUN_ID_SIZE];

	snprintf(run_id, sizeof(run_id), "%llu", (unsigned long long)copy->run_id);
	if (incarnation == gateway.incarnation && copy->is_told)
		copies_written(gateway.copies, copy->asked, is_lost ? COPIES_FAILED : copy->result);
	else if (incarnation == gateway.incarnation)
		copies_looked(gateway.copies, copy->asked, run_id, is_lost ? NULL : &copy->look);
	copy_free(copy);
}

static void copy_arrived(void *context, uint64_t incarnation, uint64_t b)
{
	struct copy_call *copy = context;
	const struct redis_coupon *coupon = redis_coupon(copy->id);
	int is_lost = !redis.up || fault(FAULT_REPLY_LOST);

	(void)b;
	copy->run_id = redis.run_id;
	copy->look = (struct copies_look){ coupon->present, coupon->placeholder, coupon->generation,
					   coupon->seq, 0 };
	copy->result = COPIES_WRITTEN;
	for (size_t i = 0; redis.up && i < copy->n; i++)
		if (redis_restore(copy->id, &copy->messages[i]))
			copy->result = COPIES_MISSING;
	event_in(1, 30, copy_replied, copy, incarnation, (uint64_t)is_lost);
}

static struct copy_call *copy_send(struct copies_coupon *asked, int64_t coupon)
{
	struct copy_call *copy = calloc(1, sizeof(*copy));

	copy->asked = asked;
	copy->id = coupon;
	event_in(1, 30, copy_arrived, copy, gateway.incarnation, 0);
	return copy;
}

static void port_look(void *context, struct copies_coupon *asked, int64_t coupon)
{
	(void)context;
	copy_send(asked, coupon);
}

static void port_write(void *context, struct copies_coupon *asked, int64_t coupon,
		       const struct copy *const *messages, size_t n)
{
	struct copy_call *copy = copy_send(asked, coupon);

	(void)context;
	copy->is_told = 1;
	for (; copy->n < n; copy->n++) {
		const struct copy *message = messages[copy->n];

		copy->messages[copy->n] = *message;
		copy->messages[copy->n].body = bytes_copy(message->body, message->body_len);
	}
}

static void port_answer(void *answering, struct request *request, const struct result *result)
{
	(void)answering;
	client_answered(request, result);
}

static void gateway_start(void)
{
	static const struct admission_port port = {
		.now_ms = port_now_ms,
		.ulid_new = port_ulid_new,
		.room = port_room,
		.send = port_send,
		.look_up = port_look_up,
		.publish = port_publish,
		.answer = port_answer,
		.report = port_report,
		.ask = port_ask,
		.busy = port_busy,
		.doubt = port_doubt,
	};
	static const struct waiters_port waiters_port = {
		.now_ms = port_now_ms,
		.look_up = port_look_up_receive,
		.answer = client_answered,
	};
	static const struct copies_port copies_port = {
		.now_ms = port_now_ms,
		.look = port_look,
		.write = port_write,
	};
	static const struct config limits = {
		.batch_receives_max = 16,
		.calls_per_coupon_max = 2,
		.unconfirmed_max = UNCONFIRMED_MAX,
		.unconfirmed_per_coupon_max = UNCONFIRMED_PER_COUPON_MAX,
		.memory_ms = MEMORY_MS,
	};

	gateway.waiters = waiters_new(&waiters_port, ISSUED_TIMEOUT_MS);
	gateway.copies = copies_new(&copies_port);
	gateway.admission = admission_new(&port, &limits, 64, gateway.waiters, gateway.copies);
	gateway.arena = json_arena_new();
	gateway.window = confirm_new(packet_settled, NULL);
	STAILQ_INIT(&gateway.pending[0]);
	STAILQ_INIT(&gateway.pending[1]);
	STAILQ_INIT(&gateway.again);
	STAILQ_INIT(&gateway.finished);
	memset(gateway.held, 0, sizeof(gateway.held));
	memset(gateway.told_ms, 0x80, sizeof(gateway.told_ms));
	memset(gateway.told_generation, 0, sizeof(gateway.told_generation));
	memset(gateway.told_seq, 0, sizeof(gateway.told_seq));
	gateway.hold_until_ms = 0;
	gateway.incarnation++;
	gateway.link++;
	gateway.link_up = 0;
	event_at(sim.now_ms, redis_connected, NULL, gateway.connection, 0);
	event_at(sim.now_ms, link_connected, NULL, gateway.link, 0);
	event_at(sim.now_ms, gateway_tick, NULL, gateway.incarnation, 0);
}

/* Its memory is lost, and so are the connections of the waiting clients. */
static void gateway_die(void)
{
	gateway.dying = 1;
	redis_connection_cut();
	for (int i = 0; i < COUPONS; i++)
		if (gateway.looking[i])
			admission_looked_up(gateway.admission, COUPON_FIRST + i, ANSWER_UNAVAILABLE,
					    0);
	memset(gateway.looking, 0, sizeof(gateway.looking));
	admission_flush(gateway.admission);
	while (gateway.asking_n > 0)
		waiters_looked_up(gateway.asking[--gateway.asking_n], OUTCOME_UNKNOWN, NULL);
	waiters_tick(gateway.waiters);
	admission_free(gateway.admission);
	copies_free(gateway.copies);
	waiters_free(gateway.waiters);
	json_arena_free(gateway.arena);
	confirm_reset(gateway.window);
	confirm_free(gateway.window);
	batch_list_free(&gateway.pending[0]);
	batch_list_free(&gateway.pending[1]);
	batch_list_free(&gateway.again);
	gateway.dying = 0;
}
