#include "gateway/publish/channel.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "gateway/metrics.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_MAX 2000      /* messages published and not confirmed */
#define REFUSED_PAUSE_MS 200 /* after a nack or a return, before the next publish */
#define BURST_MESSAGES 64    /* then the lists are exchanged */
#define BURST_MS 5           /* after this time the next burst no longer waits for confirms */
#define LINGER_MS 32         /* between bursts that no client waits for, at most */
#define REPLY_TO "amq.rabbitmq.reply-to"

static void message_refused(struct publish_channel *channel, const char *why)
{
	log_warn("message_refused", LOG_S("queue", AMQP_QUEUE), LOG_S("why", why));
	channel->hold_until_ms = clock_monotonic_ms() + REFUSED_PAUSE_MS;
}

/* One message's end, from the confirm window. */
static void packet_settled(void *context, void *item, enum confirm_result result)
{
	struct publish_channel *channel = context;
	struct packet *packet = item;

	switch (result) {
	case CONFIRM_DONE:
		metrics_add(METRIC_CONFIRMED, 1);
		packet_open(packet, &channel->finished);
		return;
	case CONFIRM_RETURNED:
		log_warn("message_returned", LOG_S("queue", AMQP_QUEUE));
		message_refused(channel, "no queue took it");
		break;
	case CONFIRM_NACKED:
		message_refused(channel, "nack");
		break;
	case CONFIRM_LOST:
		break;
	}
	metrics_add(METRIC_PUBLISH_FAILED, 1);
	packet_open(packet, &channel->again);
}

static int packet_same(const void *item, const void *wanted)
{
	char text[ULID_SIZE];
	const amqp_bytes_t *correlation = wanted;

	ulid_format(&packet_first(item)->ulid, text);
	return correlation->len == ULID_LEN && memcmp(correlation->bytes, text, ULID_LEN) == 0;
}

static void opened(void *context)
{
	struct publish_channel *channel = context;

	channel->hold_until_ms = 0;
	metrics_set(METRIC_AMQP_UP, 1);
	log_info("amqp_ready", LOG_S("queue", AMQP_QUEUE));
}

static void lost(void *context)
{
	(void)context;
	metrics_set(METRIC_AMQP_UP, 0);
}

/* An outcome. */
static void delivered(void *context, size_t source, uint64_t tag, struct envelope *envelope)
{
	struct publish_channel *channel = context;
	struct outcome_message *outcome = malloc(sizeof(*outcome) + envelope->body_len);

	(void)source;
	(void)tag;
	check(outcome != NULL);
	outcome->len = envelope->body_len;
	memcpy(outcome->body, envelope->body, envelope->body_len);
	STAILQ_INSERT_TAIL(&channel->arrived, outcome, next);
	envelope_free(envelope);
}

static void packet_publish(struct publish_channel *channel, struct packet *packet)
{
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG |
							 AMQP_BASIC_CORRELATION_ID_FLAG };
	const struct batch *first = packet_first(packet);
	amqp_bytes_t body = { .len = packet->bytes, .bytes = packet_body(packet, channel->buffer) };
	char ulid[ULID_SIZE];

	properties.content_type = amqp_cstring_bytes("application/json");
	properties.correlation_id = amqp_cstring_bytes(ulid_format(&first->ulid, ulid));
	if (*channel->installation) {
		properties._flags |= AMQP_BASIC_APP_ID_FLAG;
		properties.app_id = amqp_cstring_bytes(channel->installation);
	}
	if (packet->wants_outcome) {
		properties._flags |= AMQP_BASIC_REPLY_TO_FLAG;
		properties.reply_to = amqp_cstring_bytes(REPLY_TO);
	}
	metrics_add(METRIC_PUBLISHED, 1);
	rabbit_publisher_send(channel->publisher, AMQP_EXCHANGE, AMQP_ROUTING_KEY, &properties,
			      body, packet);
}

/*
 * Messages go out in bursts: the next one begins when the last is confirmed, so that a busy broker
 * writes, syncs and confirms many at once (measured: a quarter less CPU a message), and an idle one
 * gets a message without delay. What waits for the next burst is packed into few messages, and each
 * is a transaction of a worker. So where no client waits, a burst of n receives is followed by the
 * next one after n ms, at most LINGER_MS: one that goes alone delays nothing, and the bursts grow
 * only while more than one receive arrives in a millisecond.
 */
static int64_t burst_due_ms(const struct publish_channel *channel)
{
	int is_busy = rabbit_publisher_open(channel->publisher) > 0;
	int64_t linger_ms = channel->burst_receives < LINGER_MS ? (int64_t)channel->burst_receives
								: LINGER_MS;

	if (!STAILQ_EMPTY(&channel->pending[1]))
		return is_busy ? channel->burst_ms + BURST_MS : 0;
	return channel->burst_ms + (is_busy && linger_ms < BURST_MS ? BURST_MS : linger_ms);
}

static int has_pending(const struct publish_channel *channel)
{
	return !STAILQ_EMPTY(&channel->pending[0]) || !STAILQ_EMPTY(&channel->pending[1]);
}

static int may_publish(const struct publish_channel *channel)
{
	return has_pending(channel) && clock_monotonic_ms() >= channel->hold_until_ms &&
	       rabbit_publisher_open(channel->publisher) < WINDOW_MAX &&
	       rabbit_publisher_ready(channel->publisher);
}

/* The two lists take turns. */
static struct batch_list *pending_next(struct publish_channel *channel)
{
	channel->turn = !channel->turn;
	if (STAILQ_EMPTY(&channel->pending[channel->turn]))
		channel->turn = !channel->turn;
	return &channel->pending[channel->turn];
}

/* Publishes as much as is allowed, and reads what has arrived before each message. */
static void pending_publish(struct publish_channel *channel)
{
	if (clock_monotonic_ms() < burst_due_ms(channel))
		return;
	channel->burst_ms = clock_monotonic_ms();
	channel->burst_receives = 0;
	for (int n = 0; n < BURST_MESSAGES && may_publish(channel); n++) {
		struct packet *packet = packet_take(pending_next(channel));

		channel->burst_receives += packet->receives;
		packet_publish(channel, packet);
		fault_point(FAULT_GATEWAY_AFTER_PUBLISH);
		rabbit_link_read(channel->link);
	}
}

void publish_channel_submit(struct publish_channel *channel, struct batch_list *list)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		STAILQ_INSERT_TAIL(&channel->pending[batch->awaited], batch, next);
	}
}

/* Batches to be published again go first. */
static void again_prepend(struct publish_channel *channel)
{
	if (STAILQ_EMPTY(&channel->again))
		return;
	for (int i = 0; i < 2; i++)
		STAILQ_CONCAT(&channel->again, &channel->pending[i]);
	publish_channel_submit(channel, &channel->again);
}

static void cuts_count(struct publish_channel *channel)
{
	uint64_t cuts = rabbit_link_cuts(channel->link);

	metrics_add(METRIC_PUBLISHER_CUTS, (int64_t)(cuts - channel->cuts));
	channel->cuts = cuts;
}

void publish_channel_turn(struct publish_channel *channel)
{
	rabbit_link_step(channel->link, clock_monotonic_ms());
	rabbit_link_read(channel->link);
	pending_publish(channel);
	again_prepend(channel);
	cuts_count(channel);
}

void publish_channel_init(struct publish_channel *channel, const char *url)
{
	static const struct rabbit_source replies = { .queue = REPLY_TO };
	static const struct rabbit_publisher_port port = { .done = packet_settled,
							   .same = packet_same,
							   .opened = opened,
							   .lost = lost,
							   .source = &replies,
							   .delivered = delivered };

	memset(channel, 0, sizeof(*channel));
	STAILQ_INIT(&channel->pending[0]);
	STAILQ_INIT(&channel->pending[1]);
	STAILQ_INIT(&channel->again);
	STAILQ_INIT(&channel->finished);
	STAILQ_INIT(&channel->arrived);
	channel->buffer = malloc(PACKED_BYTES_MAX);
	check(channel->buffer != NULL);
	channel->publisher = rabbit_publisher_new("publisher", url, &port, channel);
	channel->link = rabbit_publisher_link(channel->publisher);
}

const char *publish_channel_trouble(const struct publish_channel *channel)
{
	return rabbit_link_trouble(channel->link);
}

int publish_channel_fd(const struct publish_channel *channel)
{
	return rabbit_link_fd(channel->link);
}

int publish_channel_sleep_ms(const struct publish_channel *channel)
{
	int64_t now_ms = clock_monotonic_ms(), due_ms = burst_due_ms(channel),
		wait_ms = rabbit_link_deadline_ms(channel->link, now_ms) - now_ms;

	if (rabbit_link_up(channel->link) && !rabbit_link_blocked(channel->link) &&
	    has_pending(channel)) {
		if (due_ms < channel->hold_until_ms)
			due_ms = channel->hold_until_ms;
		if (due_ms <= now_ms) /* the broker takes no more now */
			due_ms = now_ms + BURST_MS;
		wait_ms = wait_ms < due_ms - now_ms ? wait_ms : due_ms - now_ms;
	}
	return wait_ms > 0 ? (int)wait_ms : 0;
}

void publish_channel_close(struct publish_channel *channel)
{
	/* A broker that does not confirm does not answer connection.close either. */
	if (rabbit_publisher_open(channel->publisher) > 0)
		rabbit_link_drop(channel->link);
	else
		rabbit_link_close(channel->link);
}

void publish_channel_fini(struct publish_channel *channel)
{
	rabbit_publisher_free(channel->publisher); /* what is unconfirmed moves to `again` */
	batch_list_free(&channel->pending[0]);
	batch_list_free(&channel->pending[1]);
	batch_list_free(&channel->again);
	batch_list_free(&channel->finished);
	outcome_message_list_free(&channel->arrived);
	free(channel->buffer);
}
