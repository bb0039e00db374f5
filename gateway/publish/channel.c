#include "gateway/publish/channel.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log.h"
#include "gateway/metrics.h"

#include <amqp_framing.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_MAX 2000      /* messages published and not confirmed */
#define REFUSED_PAUSE_MS 200 /* after a nack or a return, before the next publish */
/* nothing but nacks for so long: another connection, see refused_too_long() */
#define REFUSED_MAX_MS 4000
/* then the lists are exchanged, and the watchdog hears that all is well */
#define BURST_MESSAGES 64
#define BURST_MS 5        /* a burst that is not confirmed by then holds the next one no longer */
#define IDLE_POLL_MS 1000 /* heartbeats run inside library calls only */
#define REPLY_TO "amq.rabbitmq.reply-to"

/* One message's end, from the confirm window. */
static void batch_settled(void *context, void *item, enum confirm_result result)
{
	struct publish_channel *channel = context;
	struct batch *batch = item;

	switch (result) {
	case CONFIRM_DONE:
		metrics_add(METRIC_CONFIRMED, 1);
		channel->refused_since_ms = 0;
		STAILQ_INSERT_TAIL(&channel->finished, batch, next);
		return;
	case CONFIRM_RETURNED:
		channel->declare_again = 1;
		/* fall through */
	case CONFIRM_NACKED:
		if (!channel->refused_since_ms)
			channel->refused_since_ms = clock_monotonic_ms();
		log_warn("message_refused", LOG_S("queue", AMQP_QUEUE),
			 LOG_S("why", result == CONFIRM_NACKED ? "nack" : "no queue took it"));
		channel->hold_until_ms = clock_monotonic_ms() + REFUSED_PAUSE_MS;
		/* fall through */
	case CONFIRM_LOST:
		metrics_add(METRIC_PUBLISH_FAILED, 1);
		STAILQ_INSERT_TAIL(&channel->again, batch, next);
		return;
	}
}

/* The connection is broken: what it had not confirmed is published again over the next one. */
static void link_lost(struct publish_channel *channel, const char *why)
{
	log_warn("amqp_lost", LOG_S("error", why),
		 LOG_I("unconfirmed", confirm_open(channel->window)));
	channel->trouble(channel->context, why, -1);
	metrics_set(METRIC_AMQP_UP, 0);
	amqp_link_drop(channel->link);
	channel->link = NULL;
	confirm_reset(channel->window);
	channel->hold_until_ms = clock_monotonic_ms() + backoff_ms(&channel->backoff);
}

/* Outcomes come as deliveries of the pseudo-queue that RabbitMQ ties to this channel. */
static int outcomes_consume(amqp_connection_state_t link, char error[AMQP_LINK_ERROR_SIZE])
{
	amqp_basic_consume(link, AMQP_LINK_CHANNEL, amqp_cstring_bytes(REPLY_TO), amqp_empty_bytes,
			   0, 1, 0, amqp_empty_table);
	return amqp_link_result(amqp_get_rpc_reply(link), error);
}

static void link_connect(struct publish_channel *channel)
{
	char error[AMQP_LINK_ERROR_SIZE];

	channel->link = amqp_link_open(channel->url, 1, error);
	if (!channel->link || amqp_link_declare(channel->link, error) ||
	    outcomes_consume(channel->link, error)) {
		amqp_link_drop(channel->link);
		channel->link = NULL;
		log_warn("amqp_connect", LOG_S("error", error));
		channel->trouble(channel->context, error, -1);
		channel->hold_until_ms = clock_monotonic_ms() + backoff_ms(&channel->backoff);
		return;
	}
	channel->blocked = 0;
	channel->refused_since_ms = 0;
	channel->declare_again = 0;
	channel->hold_until_ms = 0;
	backoff_reset(&channel->backoff);
	channel->trouble(channel->context, "", amqp_get_sockfd(channel->link));
	metrics_set(METRIC_AMQP_UP, 1);
	log_info("amqp_ready", LOG_S("queue", AMQP_QUEUE));
}

static int same_ulid(const void *item, const void *wanted)
{
	char text[ULID_SIZE];
	const amqp_bytes_t *correlation = wanted;

	ulid_format(&((const struct batch *)item)->ulid, text);
	return correlation->len == ULID_LEN && memcmp(correlation->bytes, text, ULID_LEN) == 0;
}

/*
 * A message that follows its method frame: an outcome, or (`returned`) one of ours that no queue
 * took.
 */
static int message_read(struct publish_channel *channel, int returned)
{
	struct outcome_message *outcome;
	amqp_message_t message;

	if (amqp_read_message(channel->link, AMQP_LINK_CHANNEL, &message, 0).reply_type !=
	    AMQP_RESPONSE_NORMAL)
		return -1;
	if (returned) {
		log_warn("message_returned", LOG_S("queue", AMQP_QUEUE));
		confirm_return(channel->window, same_ulid, &message.properties.correlation_id);
	} else {
		outcome = malloc(sizeof(*outcome) + message.body.len);
		check(outcome != NULL);
		outcome->len = message.body.len;
		memcpy(outcome->body, message.body.bytes, message.body.len);
		STAILQ_INSERT_TAIL(&channel->arrived, outcome, next);
	}
	amqp_destroy_message(&message);
	return 0;
}

static void blocked_set(struct publish_channel *channel, int blocked)
{
	channel->blocked = blocked;
	log_warn(blocked ? "amqp_blocked" : "amqp_unblocked",
		 LOG_I("unconfirmed", confirm_open(channel->window)));
	channel->trouble(channel->context,
			 blocked ? "blocked by a resource alarm of the broker" : "",
			 amqp_get_sockfd(channel->link));
}

/* 0, or -1 with the reason the connection must go. */
static int frame_take(struct publish_channel *channel, const amqp_frame_t *frame, const char **why)
{
	const amqp_basic_ack_t *ack;
	const amqp_basic_nack_t *nack;

	if (frame->frame_type != AMQP_FRAME_METHOD)
		return 0; /* a heartbeat, or the rest of a message nobody waited for */
	switch (frame->payload.method.id) {
	case AMQP_BASIC_ACK_METHOD:
		ack = frame->payload.method.decoded;
		confirm_settle(channel->window, ack->delivery_tag, ack->multiple, CONFIRM_DONE);
		return 0;
	case AMQP_BASIC_NACK_METHOD:
		nack = frame->payload.method.decoded;
		confirm_settle(channel->window, nack->delivery_tag, nack->multiple, CONFIRM_NACKED);
		return 0;
	case AMQP_BASIC_RETURN_METHOD:
	case AMQP_BASIC_DELIVER_METHOD:
		*why = "a message broke off";
		return message_read(channel, frame->payload.method.id == AMQP_BASIC_RETURN_METHOD);
	case AMQP_CONNECTION_BLOCKED_METHOD:
		blocked_set(channel, 1);
		return 0;
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		blocked_set(channel, 0);
		return 0;
	case AMQP_BASIC_CANCEL_METHOD:
		*why = "the broker cancelled the reply consumer";
		return -1;
	case AMQP_CHANNEL_CLOSE_METHOD:
		*why = "the broker closed the channel";
		return -1;
	case AMQP_CONNECTION_CLOSE_METHOD:
		*why = "the broker closed the connection";
		return -1;
	default:
		return 0;
	}
}

/* Takes every frame that is there. 0, or -1 with the reason the connection must go. */
static int frames_drain(struct publish_channel *channel, const char **why)
{
	struct timeval none = { 0 };
	amqp_frame_t frame;
	int status;

	for (;;) {
		status = amqp_simple_wait_frame_noblock(channel->link, &frame, &none);
		if (status == AMQP_STATUS_TIMEOUT)
			break;
		if (status != AMQP_STATUS_OK) {
			*why = amqp_error_string2(status);
			return -1;
		}
		if (frame_take(channel, &frame, why))
			return -1;
	}
	amqp_maybe_release_buffers(channel->link);
	return 0;
}

static int batch_publish(struct publish_channel *channel, struct batch *batch)
{
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG |
							 AMQP_BASIC_CONTENT_TYPE_FLAG |
							 AMQP_BASIC_CORRELATION_ID_FLAG };
	amqp_bytes_t body = { .len = batch->body_len, .bytes = batch->body };
	char ulid[ULID_SIZE];

	properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
	properties.content_type = amqp_cstring_bytes("application/json");
	properties.correlation_id = amqp_cstring_bytes(ulid_format(&batch->ulid, ulid));
	if (batch->wants_outcome) {
		properties._flags |= AMQP_BASIC_REPLY_TO_FLAG;
		properties.reply_to = amqp_cstring_bytes(REPLY_TO);
	}
	metrics_add(METRIC_PUBLISHED, 1);
	confirm_push(channel->window,
		     batch); /* before: a publish that fails half-way may have arrived */
	return amqp_basic_publish(channel->link, AMQP_LINK_CHANNEL,
				  amqp_cstring_bytes(AMQP_EXCHANGE),
				  amqp_cstring_bytes(AMQP_ROUTING_KEY), 1, 0, &properties, body);
}

/*
 * Messages go out in bursts: the next one begins when the last is confirmed, so that a busy broker
 * writes, syncs and confirms many at once (measured: a quarter less CPU a message), and an idle one
 * gets a message the moment it is there.
 */
static int may_begin_burst(const struct publish_channel *channel)
{
	return confirm_open(channel->window) == 0 ||
	       clock_monotonic_ms() - channel->burst_ms >= BURST_MS;
}

static int may_publish(const struct publish_channel *channel)
{
	return !channel->blocked && !STAILQ_EMPTY(&channel->pending) &&
	       clock_monotonic_ms() >= channel->hold_until_ms &&
	       confirm_open(channel->window) < WINDOW_MAX;
}

/*
 * A full queue that refuses publishes (reject-publish) tells each channel when it takes some again.
 * That word never comes when its policy is removed meanwhile: the channel would be refused for
 * ever, a new one is not (RabbitMQ 3.10).
 */
static int refused_too_long(const struct publish_channel *channel)
{
	return channel->refused_since_ms &&
	       clock_monotonic_ms() - channel->refused_since_ms >= REFUSED_MAX_MS;
}

/*
 * Publishes what it may, taking what comes before each. 0, or -1 with the reason the connection
 * must go.
 */
static int pending_publish(struct publish_channel *channel, const char **why)
{
	char error[AMQP_LINK_ERROR_SIZE];
	int status;

	if (channel->declare_again) {
		*why = "a queue cannot be declared";
		if (amqp_link_declare(channel->link, error))
			return -1;
		channel->declare_again = 0;
	}
	if (frames_drain(channel, why))
		return -1;
	*why = "the broker refuses every message";
	if (refused_too_long(channel))
		return -1;
	if (!may_begin_burst(channel))
		return 0;
	channel->burst_ms = clock_monotonic_ms();
	for (int n = 0; n < BURST_MESSAGES && may_publish(channel); n++) {
		struct batch *batch = STAILQ_FIRST(&channel->pending);

		STAILQ_REMOVE_HEAD(&channel->pending, next);
		status = batch_publish(channel, batch);
		fault_point(FAULT_GATEWAY_AFTER_PUBLISH);
		*why = amqp_error_string2(status);
		if (status != AMQP_STATUS_OK || frames_drain(channel, why))
			return -1;
	}
	return 0;
}

/* What is to be published again goes first. */
static void again_prepend(struct publish_channel *channel)
{
	if (STAILQ_EMPTY(&channel->again))
		return;
	STAILQ_CONCAT(&channel->again, &channel->pending);
	STAILQ_CONCAT(&channel->pending, &channel->again);
}

/* How long the thread may sleep when nothing wakes it. */
int publish_channel_sleep_ms(const struct publish_channel *channel)
{
	int64_t hold_ms = channel->hold_until_ms - clock_monotonic_ms();

	if (channel->link &&
	    (amqp_frames_enqueued(channel->link) || amqp_data_in_buffer(channel->link)))
		return 0;
	if (hold_ms > 0 && hold_ms < IDLE_POLL_MS)
		return (int)hold_ms;
	if (channel->link && !channel->blocked && !STAILQ_EMPTY(&channel->pending))
		return BURST_MS;
	return !channel->link && hold_ms <= 0 ? 0 : IDLE_POLL_MS;
}

void publish_channel_init(struct publish_channel *channel, const char *url,
			  publish_trouble_fn *trouble, void *context)
{
	memset(channel, 0, sizeof(*channel));
	channel->url = url;
	channel->trouble = trouble;
	channel->context = context;
	STAILQ_INIT(&channel->pending);
	STAILQ_INIT(&channel->again);
	STAILQ_INIT(&channel->finished);
	STAILQ_INIT(&channel->arrived);
	channel->window = confirm_new(batch_settled, channel);
}

void publish_channel_turn(struct publish_channel *channel)
{
	const char *why = "";

	if (!channel->link && clock_monotonic_ms() >= channel->hold_until_ms)
		link_connect(channel);
	if (channel->link && pending_publish(channel, &why))
		link_lost(channel, why);
	again_prepend(channel);
}

int publish_channel_fd(const struct publish_channel *channel)
{
	return channel->link ? amqp_get_sockfd(channel->link) : -1;
}

void publish_channel_close(struct publish_channel *channel)
{
	if (!channel->link)
		return;
	channel->trouble(channel->context, "stopping", -1);
	if (confirm_open(channel->window) > 0)
		/* a broker that does not confirm will not say goodbye either */
		amqp_link_drop(channel->link);
	else
		amqp_link_close(channel->link);
	channel->link = NULL;
}

void publish_channel_fini(struct publish_channel *channel)
{
	confirm_reset(channel->window); /* what is open moves to `again` */
	confirm_free(channel->window);
	batch_list_free(&channel->pending);
	batch_list_free(&channel->again);
	batch_list_free(&channel->finished);
	outcome_message_list_free(&channel->arrived);
}
