#include "common/rabbit/link.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/rabbit/watchdog.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX 1024      /* frames in one turn, so that other work has its turn too */
#define LOOK_EVERY_MS 2000 /* heartbeats are sent and missed inside library calls only */
#define STEADY_MS 2000     /* a connection that lived this long was a good one */

struct link {
	const char *name;
	const char *url;
	const struct link_events *events;
	void *context;
	struct link_source sources[LINK_SOURCES_MAX];
	size_t sources_n;
	amqp_connection_state_t connection; /* NULL: down */
	struct link_opening *opening;       /* while it is being opened */
	struct watch *watch;
	struct backoff backoff;
	int64_t due_ms; /* the next attempt to connect */
	int64_t opened_ms;
	int blocked;
	/*
	 * The message whose frames are arriving: a method, then the header, then pieces of the
	 * body.
	 */
	amqp_method_number_t method; /* 0: none */
	size_t source;
	uint64_t tag;
	struct envelope *envelope; /* from the header on */
	uint64_t body_left;
};

struct link *link_new(const char *name, const char *url, const struct link_source *sources,
		      size_t sources_n, const struct link_events *events, void *context)
{
	struct link *link = calloc(1, sizeof(*link));

	check(link != NULL && sources_n <= LINK_SOURCES_MAX);
	link->name = name;
	link->url = url;
	for (size_t i = 0; i < sources_n; i++)
		link->sources[i] = sources[i];
	link->sources_n = sources_n;
	link->events = events;
	link->context = context;
	return link;
}

static void message_forget(struct link *link)
{
	envelope_free(link->envelope);
	link->envelope = NULL;
	link->method = 0;
}

static void connection_forget(struct link *link)
{
	watch_free(link->watch);
	link->watch = NULL;
	link->connection = NULL;
	link->blocked = 0;
	message_forget(link);
}

void link_free(struct link *link)
{
	if (!link)
		return;
	if (link->connection) {
		watch_begin(link->watch);
		amqp_link_close(link->connection);
		connection_forget(link);
	}
	link_opening_abandon(link->opening);
	free(link);
}

static void attempt_failed(struct link *link, const char *event, const char *why)
{
	int64_t wait_ms = backoff_ms(&link->backoff);

	link->due_ms = clock_monotonic_ms() + wait_ms;
	log_warn(event, LOG_S("connection", link->name), LOG_S("why", why),
		 LOG_I("again_in_ms", wait_ms));
}

static void fail(struct link *link, const char *why)
{
	if (clock_monotonic_ms() - link->opened_ms >= STEADY_MS)
		backoff_reset(&link->backoff);
	amqp_link_drop(link->connection);
	connection_forget(link);
	attempt_failed(link, "amqp_lost", why);
	if (link->events->lost)
		link->events->lost(link->context);
}

/* Takes over what the opening has come to, if it is over. */
static void opening_take(struct link *link)
{
	char error[AMQP_LINK_ERROR_SIZE];

	if (!link->opening || !link_opening_done(link->opening))
		return;
	link->connection = link_opening_take(link->opening, error);
	link->opening = NULL;
	if (!link->connection) {
		attempt_failed(link, "amqp_unreachable", error);
		return;
	}
	link->watch = watch_new(amqp_get_sockfd(link->connection));
	link->opened_ms = clock_monotonic_ms();
	log_info("amqp_connected", LOG_S("connection", link->name));
	if (link->events->opened)
		link->events->opened(link->context);
}

void link_step(struct link *link, int64_t now_ms)
{
	opening_take(link);
	if (!link->connection && !link->opening && now_ms >= link->due_ms)
		link->opening = link_opening_begin(link->url, link->events->confirmed != NULL,
						   link->sources, link->sources_n);
}

static void message_complete(struct link *link)
{
	struct envelope *envelope = link->envelope;

	link->envelope = NULL;
	if (link->method == AMQP_BASIC_DELIVER_METHOD && link->events->delivered) {
		link->events->delivered(link->context, link->source, link->tag, envelope);
		envelope = NULL;
	} else if (link->method == AMQP_BASIC_RETURN_METHOD && link->events->returned) {
		link->events->returned(link->context, envelope);
	}
	envelope_free(envelope);
	link->method = 0;
}

/* 0, or -1: no consumer of this link has that tag. */
static int delivery_begin(struct link *link, const amqp_basic_deliver_t *deliver)
{
	link->method = AMQP_BASIC_DELIVER_METHOD;
	link->tag = deliver->delivery_tag;
	for (link->source = 0; link->source < link->sources_n; link->source++) {
		const char *queue = link->sources[link->source].queue;

		if (deliver->consumer_tag.len == strlen(queue) &&
		    memcmp(deliver->consumer_tag.bytes, queue, deliver->consumer_tag.len) == 0)
			return 0;
	}
	return -1;
}

/* 0, or -1 with what ended the connection in `*why`. */
static int method_read(struct link *link, const amqp_method_t *method, const char **why)
{
	const amqp_basic_ack_t *ack;
	const amqp_basic_nack_t *nack;

	switch (method->id) {
	case AMQP_BASIC_DELIVER_METHOD:
		*why = "the broker delivered for an unknown consumer";
		return delivery_begin(link, method->decoded);
	case AMQP_BASIC_RETURN_METHOD:
		link->method = method->id;
		return 0;
	case AMQP_BASIC_ACK_METHOD:
		ack = method->decoded;
		*why = "the broker refuses every message";
		return link->events->confirmed(link->context, ack->delivery_tag, ack->multiple, 1);
	case AMQP_BASIC_NACK_METHOD:
		nack = method->decoded;
		*why = "the broker refuses every message";
		return link->events->confirmed(link->context, nack->delivery_tag, nack->multiple,
					       0);
	case AMQP_CONNECTION_BLOCKED_METHOD:
		link->blocked = 1;
		log_warn("amqp_blocked", LOG_S("connection", link->name));
		return 0;
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		link->blocked = 0;
		log_info("amqp_unblocked", LOG_S("connection", link->name));
		return 0;
	case AMQP_BASIC_CANCEL_OK_METHOD:
		return 0;
	case AMQP_BASIC_CANCEL_METHOD:
		*why = "the broker ended the consumer";
		return -1;
	case AMQP_CHANNEL_CLOSE_METHOD:
		*why = "the broker closed the channel";
		return -1;
	case AMQP_CONNECTION_CLOSE_METHOD:
		*why = "the broker closed the connection";
		return -1;
	default:
		*why = "the broker sent an unexpected method";
		return -1;
	}
}

static int frame_read(struct link *link, const amqp_frame_t *frame, const char **why)
{
	*why = "the broker sent frames out of order";
	switch (frame->frame_type) {
	case AMQP_FRAME_METHOD:
		return link->method ? -1 : method_read(link, &frame->payload.method, why);
	case AMQP_FRAME_HEADER:
		if (!link->method || link->envelope)
			return -1;
		link->body_left = frame->payload.properties.body_size;
		link->envelope = envelope_new(frame->payload.properties.decoded, link->body_left);
		break;
	case AMQP_FRAME_BODY:
		if (!link->envelope)
			return -1;
		envelope_append(link->envelope, frame->payload.body_fragment, &link->body_left);
		break;
	default: /* the library keeps heartbeats to itself */
		return 0;
	}
	if (link->body_left == 0)
		message_complete(link);
	return 0;
}

void link_read(struct link *link)
{
	static const struct timeval no_wait;
	const char *why = NULL;

	opening_take(link);
	for (int i = 0; i < READ_MAX && link->connection; i++) {
		amqp_frame_t frame;
		int status;

		amqp_maybe_release_buffers(link->connection);
		watch_begin(link->watch);
		status = amqp_simple_wait_frame_noblock(link->connection, &frame, &no_wait);
		watch_end(link->watch);
		if (status == AMQP_STATUS_TIMEOUT)
			return;
		if (status != AMQP_STATUS_OK)
			fail(link, amqp_error_string2(status));
		else if (frame_read(link, &frame, &why))
			fail(link, why);
	}
}

int link_fd(const struct link *link)
{
	if (link->opening)
		return link_opening_fd(link->opening);
	return link->connection ? amqp_get_sockfd(link->connection) : -1;
}

int link_up(const struct link *link)
{
	return link->connection != NULL;
}

int link_blocked(const struct link *link)
{
	return link->blocked;
}

int link_opens(const struct link *link)
{
	return link->opening != NULL;
}

int link_writable(const struct link *link)
{
	struct pollfd pollfd = { .fd = link_fd(link), .events = POLLOUT };

	return link->connection && poll(&pollfd, 1, 0) == 1;
}

int64_t link_deadline_ms(const struct link *link, int64_t now_ms)
{
	if (link->opening)
		return now_ms + LOOK_EVERY_MS;
	if (!link->connection)
		return link->due_ms;
	if (amqp_frames_enqueued(link->connection) || amqp_data_in_buffer(link->connection))
		return now_ms;
	return now_ms + LOOK_EVERY_MS;
}

static int called(struct link *link, int status)
{
	watch_end(link->watch);
	if (status == AMQP_STATUS_OK)
		return 0;
	fail(link, amqp_error_string2(status));
	return -1;
}

int link_publish(struct link *link, const char *exchange, amqp_bytes_t routing_key, int mandatory,
		 const amqp_basic_properties_t *properties, amqp_bytes_t body)
{
	if (!link->connection)
		return -1;
	watch_begin(link->watch);
	return called(link, amqp_basic_publish(link->connection, AMQP_LINK_CHANNEL,
					       amqp_cstring_bytes(exchange), routing_key, mandatory,
					       0, properties, body));
}

int link_ack(struct link *link, uint64_t tag, int multiple)
{
	if (!link->connection)
		return -1;
	watch_begin(link->watch);
	return called(link, amqp_basic_ack(link->connection, AMQP_LINK_CHANNEL, tag, multiple));
}

int link_cancel(struct link *link)
{
	link_opening_abandon(link->opening);
	link->opening = NULL;
	if (!link->connection)
		return -1;
	for (size_t i = 0; i < link->sources_n; i++) {
		amqp_basic_cancel_t method = { .consumer_tag = amqp_cstring_bytes(
						       link->sources[i].queue) };

		watch_begin(link->watch);
		/* Not amqp_basic_cancel(): that waits for the reply. */
		if (called(link, amqp_send_method(link->connection, AMQP_LINK_CHANNEL,
						  AMQP_BASIC_CANCEL_METHOD, &method)))
			return -1;
	}
	return 0;
}
