/*
 * The gateway's connection to Redis, behind the port of admission: calls and replies take time, get
 * lost, or time out.
 */
#pragma once

#include "tests/sim/gateway_state.h"

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

static void told_raise(size_t place, const struct call_reply *reply)
{
	if (reply->generation > gateway.told_generation[place])
		gateway.told_seq[place] = 0;
	if (reply->generation < gateway.told_generation[place])
		return;
	gateway.told_generation[place] = reply->generation;
	if (reply->seq > gateway.told_seq[place])
		gateway.told_seq[place] = reply->seq;
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
		if (call->reply.state == CALL_OK)
			told_raise((size_t)(call->coupon - COUPON_FIRST), &call->reply);
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

/* While calls are in flight it often has little room, or none. */
static size_t port_room(struct redis_pool *pool, size_t requests, size_t coupons)
{
	(void)pool;
	sim_check(requests > 0 && coupons > 0, "room is asked for where nothing waits");
	if (gateway.dying || !gateway.oldest || sim_chance(500))
		return MESSAGE_RECEIVES_MAX;
	return (size_t)sim_between(0, 4);
}

static int port_send(struct redis_pool *pool, struct call *call)
{
	size_t attempts[MESSAGE_RECEIVES_MAX];
	struct redis_call *sent;

	(void)pool;
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
		sim_check(call->has_keys || call->requests[i]->key_len == 0,
			  "the script is not told that a request has a key");
		sim_check(call->has_codes || call->requests[i]->code_len == 0,
			  "the script is not told that a request has a code");
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
