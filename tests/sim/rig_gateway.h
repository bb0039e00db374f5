/*
 * A gateway: the real admission, waiters and confirm window, with models of the Redis connection,
 * the publisher and the look-ups behind their ports. It may crash at any event and restarts empty.
 */
#ifndef TESTS_SIM_RIG_GATEWAY_H
#define TESTS_SIM_RIG_GATEWAY_H

#include "common/rabbit/confirm.h"
#include "gateway/publish/outcome_message.h"
#include "tests/sim/rig_worker.h"

#define CALL_TIMEOUT_MS 2000
#define ISSUED_TIMEOUT_MS 5000
#define UNCONFIRMED_MAX 120
#define UNCONFIRMED_PER_COUPON_MAX 80
#define MEMORY_MS 100
#define WINDOW_MAX 16
#define CHANNEL_TAGS_MAX 8192
#define TOKENS_MAX 4096

/* The client's side: the answer to a request. */
static void client_answered(struct request *request, const struct result *result);
static size_t client_sent(struct request *request);

/* The broker's reply for one message of the channel. */
struct channel_tag {
	enum confirm_result result;
	struct ulid batch;
};

static struct {
	struct admission *admission;
	struct waiters *waiters;
	struct json_arena *arena;
	uint64_t incarnation;
	int dying;
	/* Redis */
	int connected;
	uint64_t connection;
	uint64_t run_id;
	struct redis_call *oldest, *newest;
	int64_t redis_busy_ms, replies_busy_ms;
	int64_t told_ms[COUPONS][ANSWER_COUNT]; /* the time of the last such reply */
	int64_t told_seq[COUPONS];              /* the highest in a reply */
	/* The publisher */
	int link_up;
	uint64_t link;
	struct confirm_window *window;
	struct batch_list pending, again, finished;
	size_t held[COUPONS]; /* receives of batches that are not confirmed */
	int64_t hold_until_ms, publish_busy_ms;
	/* The broker's side of its channel */
	struct channel_tag channel[CHANNEL_TAGS_MAX];
	uint64_t channel_received, channel_told;
	/* Look-ups in flight */
	int looking[COUPONS];
	uint64_t tokens[TOKENS_MAX];
	size_t tokens_n;
} gateway;

/* Redis */

static void redis_connected(void *context, uint64_t connection, uint64_t b)
{
	(void)context;
	(void)b;
	if (connection != gateway.connection)
		return;
	if (!redis.up) {
		event_in(50, 500, redis_connected, NULL, connection, 0);
		return;
	}
	gateway.connected = 1;
	gateway.run_id = redis.run_id;
}

/* The connection is replaced: the outcome of its calls is unknown. */
static void redis_connection_cut(void)
{
	struct redis_call *call, *next;

	gateway.connection++;
	gateway.connected = 0;
	for (call = gateway.oldest; call; call = next) {
		struct call *lost = call->call;

		next = call->newer;
		call->call = NULL;
		if (lost)
			admission_lost(gateway.admission, lost);
	}
	event_in(10, 300, redis_connected, NULL, gateway.connection, 0);
}

static void redis_call_free(struct redis_call *call)
{
	*(call->older ? &call->older->newer : &gateway.oldest) = call->newer;
	*(call->newer ? &call->newer->older : &gateway.newest) = call->older;
	free(call->body);
	free(call);
}

static void call_timeout(void *context, uint64_t connection, uint64_t sent_ms)
{
	(void)context;
	if (connection != gateway.connection)
		return;
	for (struct redis_call *call = gateway.oldest; call; call = call->newer) {
		if (call->call && call->connection == connection &&
		    (uint64_t)call->call->sent_ms <= sent_ms) {
			redis_connection_cut();
			return;
		}
	}
}

static void call_replied(void *context, uint64_t a, uint64_t b)
{
	struct redis_call *call = context;
	struct call *waiting = call->call;

	(void)a;
	(void)b;
	call->call = NULL;
	if (waiting) {
		for (size_t i = 0; call->reply.state == CALL_OK && i < call->n; i++)
			gateway.told_ms[call->coupon - COUPON_FIRST]
				       [call->reply.verdicts[i].answer] = sim.now_ms;
		if (call->reply.state == CALL_OK &&
		    call->reply.seq > gateway.told_seq[call->coupon - COUPON_FIRST])
			gateway.told_seq[call->coupon - COUPON_FIRST] = call->reply.seq;
		admission_replied(gateway.admission, waiting, &call->reply);
	}
	redis_call_free(call);
}

static void call_arrived(void *context, uint64_t a, uint64_t b)
{
	struct redis_call *call = context;
	struct call *waiting = call->call;

	(void)a;
	(void)b;
	/* A call that was sent before its connection broke may still run. */
	if (!redis.up || (!waiting && sim_chance(500))) {
		if (waiting)
			redis_connection_cut();
		redis_call_free(call);
		return;
	}
	if (waiting && fault(FAULT_NOT_RUN)) {
		redis_call_free(call);
		admission_not_run(gateway.admission, waiting);
		return;
	}
	redis_issue(call);
	if (waiting && fault(FAULT_REPLY_LOST)) {
		redis_connection_cut();
		redis_call_free(call);
		return;
	}
	event_at(line_time(&gateway.replies_busy_ms, 1, 8), call_replied, call, 0, 0);
}

static int port_send(void *context, struct call *call)
{
	size_t attempts[MESSAGE_RECEIVES_MAX];
	struct redis_call *sent;

	(void)context;
	for (size_t i = 0; i < call->requests_n; i++) /* a second attempt is an error */
		attempts[i] = client_sent(call->requests[i]);
	if (gateway.dying || !gateway.connected || fault(FAULT_SEND))
		return -1;
	sim_check(call->seen_seq == gateway.told_seq[call->coupon_id - COUPON_FIRST],
		  "the call does not carry what the gateway has seen");
	sent = calloc(1, sizeof(*sent));
	sent->call = call;
	sent->connection = gateway.connection;
	sent->run_id = gateway.run_id;
	sent->coupon = call->coupon_id;
	sent->batch = call->batch;
	sent->seen_generation = call->seen_generation;
	sent->seen_seq = call->seen_seq;
	sent->n = call->requests_n;
	for (size_t i = 0; i < call->requests_n; i++) {
		sent->requests[i].user = call->requests[i]->user;
		strcpy(sent->requests[i].key, request_key(call->requests[i]));
		sent->requests[i].attempt = attempts[i];
	}
	sent->older = gateway.newest;
	*(gateway.newest ? &gateway.newest->newer : &gateway.oldest) = sent;
	gateway.newest = sent;
	if (fault(FAULT_SLOW)) /* and the calls after it wait */
		gateway.redis_busy_ms = sim.now_ms + 3 * CALL_TIMEOUT_MS / 2;
	event_at(line_time(&gateway.redis_busy_ms, 1, 6), call_arrived, sent, 0, 0);
	event_at(sim.now_ms + CALL_TIMEOUT_MS, call_timeout, NULL, gateway.connection,
		 (uint64_t)sim.now_ms);
	return 0;
}

/* The publisher */

/* A message in flight to the broker. */
struct sent_message {
	struct ulid batch;
	uint64_t reply_to;
	size_t len;
	char body[];
};

struct outbox_removal {
	int64_t coupon;
	struct ulid batch;
};

static void publisher_pump(void *context, uint64_t a, uint64_t b);

static void batch_settled(void *context, void *item, enum confirm_result result)
{
	struct batch *batch = item;

	(void)context;
	if (result == CONFIRM_DONE)
		STAILQ_INSERT_TAIL(&gateway.finished, batch, next);
	else
		STAILQ_INSERT_TAIL(&gateway.again, batch, next);
	if (result == CONFIRM_NACKED || result == CONFIRM_RETURNED)
		gateway.hold_until_ms = sim.now_ms + 200;
}

static void outbox_removed(void *context, uint64_t connection, uint64_t b)
{
	struct outbox_removal *removal = context;

	(void)b;
	if (redis.up && connection == gateway.connection)
		outbox_remove(redis_coupon(removal->coupon), &removal->batch);
	free(removal);
}

/*
 * The batches that the publisher's thread returns to the loop, and those that it publishes
 * again.
 */
static void publisher_collect(void)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(&gateway.finished))) {
		STAILQ_REMOVE_HEAD(&gateway.finished, next);
		if (gateway.connected) {
			struct outbox_removal *removal = malloc(sizeof(*removal));

			*removal = (struct outbox_removal){ batch->coupon, batch->ulid };
			event_at(line_time(&gateway.redis_busy_ms, 1, 4), outbox_removed, removal,
				 gateway.connection, 0);
		}
		gateway.held[batch->coupon - COUPON_FIRST] -= batch->receives;
		admission_confirmed(gateway.admission, batch);
		waiters_confirmed(gateway.waiters, &batch->ulid);
		free(batch);
	}
	STAILQ_CONCAT(&gateway.again, &gateway.pending);
	STAILQ_CONCAT(&gateway.pending, &gateway.again);
	publisher_pump(NULL, 0, 0);
}

static void link_connected(void *context, uint64_t link, uint64_t b)
{
	(void)context;
	(void)b;
	if (link != gateway.link)
		return;
	gateway.link_up = 1;
	gateway.channel_received = gateway.channel_told = 0;
	publisher_pump(NULL, 0, 0);
}

static void link_cut(void)
{
	gateway.link++;
	gateway.link_up = 0;
	confirm_reset(gateway.window);
	event_in(10, 400, link_connected, NULL, gateway.link, 0);
	publisher_collect();
}

static int batch_same(const void *item, const void *wanted)
{
	return ulid_same(&((const struct batch *)item)->ulid, wanted);
}

static void confirm_tell(uint64_t tag)
{
	const struct channel_tag *told = &gateway.channel[tag];

	if (told->result == CONFIRM_RETURNED)
		sim_check(confirm_return(gateway.window, batch_same, &told->batch) == 0,
			  "a returned message is not in the window");
	sim_check(confirm_settle(gateway.window, tag, 0,
				 told->result == CONFIRM_NACKED ? CONFIRM_NACKED : CONFIRM_DONE) ==
			  0,
		  "tag %llu is not in the window", (unsigned long long)tag);
}

/*
 * The broker confirms the messages so far: together when all succeeded, or one by one in any order.
 */
static void confirms_told(void *context, uint64_t link, uint64_t b)
{
	uint64_t first = gateway.channel_told + 1, last = gateway.channel_received,
		 tags[CHANNEL_TAGS_MAX];
	int all_done = 1;

	(void)context;
	(void)b;
	if (link != gateway.link || first > last)
		return;
	gateway.channel_told = last;
	for (uint64_t tag = first; tag <= last; tag++) {
		all_done &= gateway.channel[tag].result == CONFIRM_DONE;
		tags[tag - first] = tag;
	}
	if (all_done && sim_chance(500)) {
		confirm_settle(gateway.window, last, 1, CONFIRM_DONE);
	} else {
		for (uint64_t n = last - first + 1; n > 0; n--) {
			uint64_t i = (uint64_t)sim_between(0, (int64_t)n - 1), tag = tags[i];

			tags[i] = tags[n - 1];
			confirm_tell(tag);
		}
	}
	publisher_collect();
}

static void message_arrived(void *context, uint64_t tag, uint64_t link)
{
	struct sent_message *sent = context;
	enum confirm_result result = CONFIRM_DONE;

	if (link != gateway.link) { /* it may have been in the broker's socket already */
		if (sim_chance(500))
			broker_enqueue(MESSAGE_RECEIVES, sent->body, sent->len, sent->reply_to);
		free(sent);
		return;
	}
	if (fault(FAULT_NACK))
		result = CONFIRM_NACKED;
	else if (fault(FAULT_RETURN))
		result = CONFIRM_RETURNED;
	else
		broker_enqueue(MESSAGE_RECEIVES, sent->body, sent->len, sent->reply_to);
	assert_true(tag < CHANNEL_TAGS_MAX);
	gateway.channel[tag] = (struct channel_tag){ result, sent->batch };
	gateway.channel_received = tag;
	free(sent);
	if (result == CONFIRM_DONE && fault(FAULT_CONFIRM_LOST))
		link_cut();
	else
		event_in(1, 40, confirms_told, NULL, link, 0);
}

static void publisher_pump(void *context, uint64_t a, uint64_t b)
{
	struct batch *batch;

	(void)context;
	(void)a;
	(void)b;
	if (!gateway.link_up || gateway.dying)
		return;
	if (gateway.hold_until_ms > sim.now_ms) {
		event_at(gateway.hold_until_ms, publisher_pump, NULL, 0, 0);
		return;
	}
	while ((batch = STAILQ_FIRST(&gateway.pending)) &&
	       confirm_open(gateway.window) < WINDOW_MAX) {
		struct sent_message *sent = malloc(sizeof(*sent) + batch->body_len);

		STAILQ_REMOVE_HEAD(&gateway.pending, next);
		sent->batch = batch->ulid;
		sent->reply_to = batch->wants_outcome ? gateway.incarnation : 0;
		sent->len = batch->body_len;
		memcpy(sent->body, batch->body, batch->body_len);
		event_at(line_time(&gateway.publish_busy_ms, 1, 5), message_arrived, sent,
			 confirm_push(gateway.window, batch), gateway.link);
	}
}

static void port_publish(void *context, struct batch *batch)
{
	(void)context;
	for (size_t i = truths_n, n = batch->receives; i-- > 0 && n > 0;) {
		if (ulid_same(&truths[i].receive.batch, &batch->ulid)) {
			truths[i].held = 1;
			n--;
		}
	}
	gateway.held[batch->coupon - COUPON_FIRST] += batch->receives;
	STAILQ_INSERT_TAIL(&gateway.pending, batch, next);
	publisher_pump(NULL, 0, 0);
}

/* Look-ups */

static void coupon_looked_up(void *context, uint64_t id, uint64_t incarnation)
{
	const struct database_coupon *coupon = database_coupon((int64_t)id);
	enum coupon_state state = COUPON_ABSENT;

	(void)context;
	if (incarnation != gateway.incarnation)
		return;
	if (fault(FAULT_LOOKUP))
		state = COUPON_LOOKUP_FAILED;
	else if (coupon)
		state = coupon->published ? COUPON_PUBLISHED : COUPON_ABSENT;
	if (state == COUPON_ABSENT)
		gateway.told_ms[id - COUPON_FIRST][ANSWER_NOT_FOUND] = sim.now_ms;
	gateway.looking[id - COUPON_FIRST] = 0;
	admission_looked_up(gateway.admission, (int64_t)id, state);
}

static void port_look_up(void *context, int64_t coupon)
{
	(void)context;
	sim_check(!gateway.looking[coupon - COUPON_FIRST], "a second look-up of coupon %lld",
		  (long long)coupon);
	gateway.looking[coupon - COUPON_FIRST] = 1;
	event_in(2, 60, coupon_looked_up, NULL, (uint64_t)coupon, gateway.incarnation);
}

static void receive_looked_up(void *context, uint64_t token, uint64_t incarnation)
{
	struct receive *receive = context;
	enum outcome_state state = OUTCOME_NONE;

	if (incarnation == gateway.incarnation) {
		for (size_t i = 0; i < gateway.tokens_n; i++)
			if (gateway.tokens[i] == token)
				gateway.tokens[i--] = gateway.tokens[--gateway.tokens_n];
		if (fault(FAULT_LOOKUP))
			state = OUTCOME_UNKNOWN;
		else if (row_issued(receive))
			state = OUTCOME_ISSUED;
		else if (row_rejected(receive))
			state = OUTCOME_REJECTED;
		waiters_looked_up(gateway.waiters, token, state, "other");
	}
	free(receive);
}

static void port_look_up_receive(void *context, const struct receive *receive, uint64_t token)
{
	struct receive *copy;

	(void)context;
	if (gateway.dying) {
		waiters_looked_up(gateway.waiters, token, OUTCOME_UNKNOWN, NULL);
		return;
	}
	copy = malloc(sizeof(*copy));
	*copy = *receive;
	assert_true(gateway.tokens_n < TOKENS_MAX);
	gateway.tokens[gateway.tokens_n++] = token;
	event_in(2, 60, receive_looked_up, copy, token, gateway.incarnation);
}

/* Outcomes */

static void outcome_told(void *context, const struct ulid *batch, int index,
			 enum outcome_state state, const char *reason)
{
	(void)context;
	waiters_settled(gateway.waiters, batch, index, state, reason);
}

static void gateway_outcomes_arrive(void *context, uint64_t incarnation, uint64_t len)
{
	if (incarnation == gateway.incarnation)
		sim_check(outcome_message_decode(gateway.arena, context, len, outcome_told, NULL) ==
				  0,
			  "a reply cannot be decoded");
	free(context);
}

/* Its life */

static int64_t port_now_ms(void *context)
{
	(void)context;
	return sim.now_ms + (gateway.dying ? 1000000000 : 0);
}

static void port_ulid_new(void *context, struct ulid *ulid)
{
	uint64_t words[2] = { sim_random(), sim_random() };

	(void)context;
	memcpy(ulid, words, sizeof(*ulid));
}

static void port_answer(void *context, struct request *request, const struct result *result)
{
	(void)context;
	client_answered(request, result);
}

/* Redis loses no data here. */
static void port_report(void *context, int64_t coupon, int64_t generation, int64_t seq)
{
	(void)context;
	(void)coupon;
	(void)generation;
	(void)seq;
}

static void gateway_tick(void *context, uint64_t incarnation, uint64_t b)
{
	(void)context;
	(void)b;
	if (incarnation != gateway.incarnation)
		return;
	waiters_tick(gateway.waiters);
	event_at(sim.now_ms + 50, gateway_tick, NULL, incarnation, 0);
}

static void gateway_start(void)
{
	static const struct admission_port port = {
		.now_ms = port_now_ms,
		.ulid_new = port_ulid_new,
		.send = port_send,
		.look_up = port_look_up,
		.publish = port_publish,
		.answer = port_answer,
		.report = port_report,
	};
	static const struct waiters_port waiters_port = {
		.now_ms = port_now_ms,
		.look_up = port_look_up_receive,
		.answer = port_answer,
	};
	static const struct admission_limits limits = {
		.batch_receives_max = 16,
		.calls_per_coupon_max = 2,
		.unconfirmed_max = UNCONFIRMED_MAX,
		.unconfirmed_per_coupon_max = UNCONFIRMED_PER_COUPON_MAX,
		.memory_ms = MEMORY_MS,
		.coupons_max = 64,
	};

	gateway.waiters = waiters_new(&waiters_port, ISSUED_TIMEOUT_MS);
	gateway.admission = admission_new(&port, &limits, gateway.waiters);
	gateway.arena = json_arena_new();
	gateway.window = confirm_new(batch_settled, NULL);
	STAILQ_INIT(&gateway.pending);
	STAILQ_INIT(&gateway.again);
	STAILQ_INIT(&gateway.finished);
	memset(gateway.held, 0, sizeof(gateway.held));
	memset(gateway.told_ms, 0x80, sizeof(gateway.told_ms));
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
	struct batch *batch;

	gateway.dying = 1;
	redis_connection_cut();
	for (int i = 0; i < COUPONS; i++)
		if (gateway.looking[i])
			admission_looked_up(gateway.admission, COUPON_FIRST + i,
					    COUPON_LOOKUP_FAILED);
	memset(gateway.looking, 0, sizeof(gateway.looking));
	admission_flush(gateway.admission);
	while (gateway.tokens_n > 0)
		waiters_looked_up(gateway.waiters, gateway.tokens[--gateway.tokens_n],
				  OUTCOME_UNKNOWN, NULL);
	waiters_tick(gateway.waiters);
	admission_free(gateway.admission);
	waiters_free(gateway.waiters);
	json_arena_free(gateway.arena);
	confirm_reset(gateway.window);
	confirm_free(gateway.window);
	STAILQ_CONCAT(&gateway.pending, &gateway.again);
	while ((batch = STAILQ_FIRST(&gateway.pending))) {
		STAILQ_REMOVE_HEAD(&gateway.pending, next);
		free(batch);
	}
	gateway.dying = 0;
}

#endif
