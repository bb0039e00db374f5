/*
 * The gateway's publisher and its channel: the real confirm window, and a broker that confirms,
 * refuses, returns, or is cut off.
 */
#pragma once

#include "coupon/copies.h"
#include "tests/sim/gateway_calls.h"

/* A message in flight to the broker. */
struct sent_message {
	struct ulid batch;
	uint64_t reply_to;
	size_t len;
	char body[];
};

static void publisher_pump(void *context, uint64_t a, uint64_t b);

static void packet_settled(void *context, void *item, enum confirm_result result)
{
	(void)context;
	packet_open(item, result == CONFIRM_DONE ? &gateway.finished : &gateway.again);
	if (result == CONFIRM_NACKED || result == CONFIRM_RETURNED)
		gateway.hold_until_ms = sim.now_ms + 200;
}

/*
 * The batches that the publisher's thread returns to the loop, and those that it publishes
 * again.
 */
static void batches_collect(void)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(&gateway.finished))) {
		STAILQ_REMOVE_HEAD(&gateway.finished, next);
		gateway.held[batch->coupon - COUPON_FIRST] -= batch->receives;
		admission_confirmed(gateway.admission, batch);
		waiters_confirmed(gateway.waiters, &batch->ulid);
		free(batch);
	}
	for (int i = 0; i < 2; i++)
		STAILQ_CONCAT(&gateway.again, &gateway.pending[i]);
	while ((batch = STAILQ_FIRST(&gateway.again))) {
		STAILQ_REMOVE_HEAD(&gateway.again, next);
		STAILQ_INSERT_TAIL(&gateway.pending[batch->way], batch, next);
	}
	publisher_pump(NULL, 0, 0);
}

static void link_connected(void *context, uint64_t link, uint64_t b)
{
	(void)context;
	(void)b;
	if (link != gateway.link)
		return;
	if (sim.now_ms < gateway.link_away_until_ms) {
		event_at(gateway.link_away_until_ms, link_connected, NULL, link, 0);
		return;
	}
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
	batches_collect();
}

static int packet_same(const void *item, const void *wanted)
{
	return ulid_same(&STAILQ_FIRST(&((const struct packet *)item)->batches)->ulid, wanted);
}

static void confirm_tell(uint64_t tag)
{
	const struct channel_tag *told = &gateway.channel[tag];

	if (told->result == CONFIRM_RETURNED)
		sim_check(confirm_return(gateway.window, packet_same, &told->batch) == 0,
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
	batches_collect();
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

static void packet_send(struct packet *packet)
{
	static char buffer[PACKED_BYTES_MAX];
	struct sent_message *sent = malloc(sizeof(*sent) + packet->bytes);

	sent->batch = STAILQ_FIRST(&packet->batches)->ulid;
	sent->reply_to = packet->wants_outcome ? gateway.incarnation : 0;
	sent->len = packet->bytes;
	memcpy(sent->body, packet_body(packet, buffer), packet->bytes);
	event_at(line_time(&gateway.publish_busy_ms, 1, 5), message_arrived, sent,
		 confirm_push(gateway.window, packet), gateway.link);
}

/* While messages await their confirm it often sends nothing, so that batches are packed. */
static void publisher_pump(void *context, uint64_t a, uint64_t b)
{
	(void)context;
	(void)a;
	(void)b;
	if (!gateway.link_up || gateway.dying)
		return;
	if (gateway.hold_until_ms > sim.now_ms) {
		event_at(gateway.hold_until_ms, publisher_pump, NULL, 0, 0);
		return;
	}
	if (confirm_open(gateway.window) > 0 && sim_chance(800))
		return;
	for (int i = 0; i < 2; i++)
		while (!STAILQ_EMPTY(&gateway.pending[i]) &&
		       confirm_open(gateway.window) < WINDOW_MAX)
			packet_send(packet_take(&gateway.pending[i]));
}

static void port_publish(struct publisher *publisher, struct batch *batch)
{
	(void)publisher;
	for (size_t i = truths_n, n = batch->receives; i-- > 0 && n > 0;) {
		if (ulid_same(&truths[i].receive.batch, &batch->ulid)) {
			truths[i].held = 1;
			n--;
		}
	}
	gateway.held[batch->coupon - COUPON_FIRST] += batch->receives;
	STAILQ_INSERT_TAIL(&gateway.pending[batch->way], batch, next);
	publisher_pump(NULL, 0, 0);
}
