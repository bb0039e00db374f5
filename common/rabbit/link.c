#include "common/rabbit/link.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/rabbit/connection.h"
#include "common/rabbit/envelope.h"
#include "common/rabbit/topology.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX 1024      /* frames in one turn, so that other work is not delayed */
#define LOOK_EVERY_MS 1000 /* heartbeats are sent and missed inside library calls only */
#define RECHECK_MS 30000   /* while a queue differs: whether it has been replaced */
#define STEADY_MS 2000     /* a connection that lasted this long resets the backoff */

/* A message whose frames are arriving: a method, a header and pieces of a body. */
struct arriving {
	amqp_method_number_t method; /* basic.deliver or basic.return; 0: there is no message */
	size_t source;               /* of a delivery */
	uint64_t tag;                /* of a delivery */
	struct envelope *envelope;   /* from the header on */
	uint64_t body_left;
};

struct rabbit_link {
	const char *name;
	const char *url;
	const struct rabbit_link_events *events;
	void *context;
	struct rabbit_opening_plan plan;
	amqp_connection_state_t connection; /* NULL: down */
	struct rabbit_opening *opening;     /* while it is being opened */
	int64_t recheck_ms;                 /* when differing queues are declared again */
	struct watch *watch;
	struct backoff backoff;
	int64_t due_ms; /* the next attempt to connect */
	int64_t opened_ms;
	int64_t left_until_ms[RABBIT_SOURCES_MAX]; /* not consumed before this time */
	int64_t renew_ms; /* then the connection is opened anew; 0: never */
	int cancelled;    /* it has no consumers any more */
	int blocked;
	uint64_t cuts;
	char trouble[RABBIT_ERROR_SIZE]; /* the reason why it is down; empty when it is up */
	struct arriving arriving;
};

struct rabbit_link *rabbit_link_new(const char *name, const char *url,
				    const struct rabbit_source *sources, size_t sources_n,
				    const struct rabbit_link_events *events, void *context)
{
	struct rabbit_link *link = calloc(1, sizeof(*link));

	check(link != NULL && sources_n <= RABBIT_SOURCES_MAX);
	link->name = name;
	link->url = url;
	link->plan.confirms = events->confirmed != NULL;
	for (size_t i = 0; i < sources_n; i++)
		link->plan.sources[i] = sources[i];
	link->plan.sources_n = sources_n;
	snprintf(link->trouble, sizeof(link->trouble), "connecting");
	link->events = events;
	link->context = context;
	return link;
}

void rabbit_link_set_passive(struct rabbit_link *link)
{
	link->plan.passive = 1;
}

static void opening_forget(struct rabbit_link *link)
{
	rabbit_opening_abandon(link->opening);
	link->opening = NULL;
}

/* Politely: with connection.close, which waits for the reply. */
static void connection_end(struct rabbit_link *link, int politely)
{
	if (link->connection && politely) {
		watch_begin(link->watch);
		rabbit_connection_close(link->connection);
	} else {
		amqp_destroy_connection(link->connection);
	}
	watch_free(link->watch);
	link->watch = NULL;
	link->connection = NULL;
	link->blocked = 0;
	envelope_free(link->arriving.envelope);
	link->arriving = (struct arriving){ 0 };
}

void rabbit_link_close(struct rabbit_link *link, int politely)
{
	opening_forget(link);
	snprintf(link->trouble, sizeof(link->trouble), "closed");
	connection_end(link, politely);
}

void rabbit_link_free(struct rabbit_link *link)
{
	if (!link)
		return;
	rabbit_link_close(link, 1);
	free(link);
}

/* After each call into the library that began with watch_begin(). */
static void call_end(struct rabbit_link *link)
{
	link->cuts += (uint64_t)watch_end(link->watch);
}

static void attempt_failed(struct rabbit_link *link, const char *event, const char *why)
{
	int64_t wait_ms = backoff_ms(&link->backoff), now_ms = clock_monotonic_ms();

	link->due_ms = now_ms + wait_ms;
	snprintf(link->trouble, sizeof(link->trouble), "%s", why);
	if (link->plan.passive || !backoff_tells(&link->backoff, why, now_ms))
		return;
	log_warn(event, LOG_S("connection", link->name), LOG_S("why", why),
		 LOG_I("again_in_ms", wait_ms));
}

static void fail(struct rabbit_link *link, const char *why)
{
	if (clock_monotonic_ms() - link->opened_ms >= STEADY_MS)
		backoff_reset(&link->backoff);
	connection_end(link, 0);
	attempt_failed(link, "amqp_lost", why);
	if (link->events->lost)
		link->events->lost(link->context);
}

/* Takes over the connection, or the error, when the opening has ended. */
static void opening_take(struct rabbit_link *link)
{
	char host[RABBIT_HOST_SIZE], error[RABBIT_ERROR_SIZE];

	if (!link->opening || !rabbit_opening_done(link->opening))
		return;
	link->connection = rabbit_opening_take(link->opening, host, error);
	link->opening = NULL;
	if (!link->connection) {
		attempt_failed(link, "amqp_unreachable", error);
		return;
	}
	link->watch = watch_new(amqp_get_sockfd(link->connection));
	link->opened_ms = clock_monotonic_ms();
	link->trouble[0] = '\0';
	if (!link->plan.passive)
		log_info("amqp_connected", LOG_S("connection", link->name), LOG_S("host", host));
	if (link->events->opened)
		link->events->opened(link->context);
}

void rabbit_link_leave(struct rabbit_link *link, size_t source, int64_t for_ms)
{
	check(source < link->plan.sources_n);
	if (link->cancelled)
		return;
	link->renew_ms = clock_monotonic_ms();
	link->left_until_ms[source] = link->renew_ms + for_ms;
}

static void opening_begin(struct rabbit_link *link, int64_t now_ms)
{
	struct rabbit_opening_plan plan = link->plan;

	plan.sources_n = 0;
	link->renew_ms = 0;
	for (size_t i = 0; i < link->plan.sources_n; i++) {
		if (now_ms >= link->left_until_ms[i])
			plan.sources[plan.sources_n++] = link->plan.sources[i];
		else if (!link->renew_ms || link->left_until_ms[i] < link->renew_ms)
			link->renew_ms = link->left_until_ms[i];
	}
	link->opening = rabbit_opening_begin(link->url, &plan);
}

/*
 * While a queue differs, declares everything again, on a connection of its own, since a refusal
 * ends the channel. Another thread closes it: this one does not wait. It takes less than the
 * interval.
 */
static void recheck_step(struct rabbit_link *link, int64_t now_ms)
{
	struct rabbit_opening_plan plan = { .confirms = link->plan.confirms };
	int differs = link->connection && !link->plan.passive && rabbit_topology_differing_n() > 0;

	if (differs && now_ms < link->recheck_ms)
		return;
	if (differs)
		rabbit_opening_abandon(rabbit_opening_begin(link->url, &plan));
	link->recheck_ms = now_ms + RECHECK_MS;
}

void rabbit_link_step(struct rabbit_link *link, int64_t now_ms)
{
	opening_take(link);
	if (link->connection && link->renew_ms && now_ms >= link->renew_ms) {
		connection_end(link, 1); /* to open it at once */
		link->due_ms = now_ms;
		if (link->events->lost)
			link->events->lost(link->context);
	}
	if (!link->connection && !link->opening && now_ms >= link->due_ms)
		opening_begin(link, now_ms);
	opening_take(link); /* without descriptors it has failed */
	recheck_step(link, now_ms);
}

/* The next functions return NULL, or the reason why the connection is of no further use. */

static const char *delivery_begin(struct rabbit_link *link, const amqp_basic_deliver_t *deliver)
{
	size_t i = 0, n = link->events->delivered ? link->plan.sources_n : 0;

	while (i < n && !rabbit_text_is(deliver->consumer_tag, link->plan.sources[i].queue))
		i++;
	link->arriving = (struct arriving){ .method = AMQP_BASIC_DELIVER_METHOD,
					    .source = i,
					    .tag = deliver->delivery_tag };
	return i < n ? NULL : "the broker delivered for an unknown consumer";
}

static const char *confirm_pass(struct rabbit_link *link, uint64_t tag, int multiple, int acked)
{
	return link->events->confirmed &&
			       link->events->confirmed(link->context, tag, multiple, acked)
		       ? "the broker refuses the messages for a queue"
		       : NULL;
}

static const char *queue_pass(struct rabbit_link *link, const amqp_queue_declare_ok_t *queue)
{
	char name[256]; /* a short string of AMQP, with its end */

	snprintf(name, sizeof(name), "%.*s", (int)queue->queue.len,
		 (const char *)queue->queue.bytes);
	if (link->events->queue)
		link->events->queue(link->context, name, queue->message_count);
	return NULL;
}

static const char *blocked_set(struct rabbit_link *link, int blocked)
{
	link->blocked = blocked;
	if (!link->plan.passive)
		log_warn(blocked ? "amqp_blocked" : "amqp_unblocked",
			 LOG_S("connection", link->name));
	return NULL;
}

static const char *method_pass(struct rabbit_link *link, const amqp_method_t *method)
{
	const amqp_basic_ack_t *ack = method->decoded;
	const amqp_basic_nack_t *nack = method->decoded;

	switch (method->id) {
	case AMQP_BASIC_DELIVER_METHOD:
		return delivery_begin(link, method->decoded);
	case AMQP_BASIC_RETURN_METHOD:
		link->arriving.method = method->id;
		return NULL;
	case AMQP_BASIC_ACK_METHOD:
		return confirm_pass(link, ack->delivery_tag, ack->multiple, 1);
	case AMQP_BASIC_NACK_METHOD:
		return confirm_pass(link, nack->delivery_tag, nack->multiple, 0);
	case AMQP_QUEUE_DECLARE_OK_METHOD:
		return queue_pass(link, method->decoded);
	case AMQP_CONNECTION_BLOCKED_METHOD:
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		return blocked_set(link, method->id == AMQP_CONNECTION_BLOCKED_METHOD);
	case AMQP_BASIC_CANCEL_OK_METHOD:
		return NULL;
	case AMQP_BASIC_CANCEL_METHOD:
		return "the broker ended the consumer";
	case AMQP_CHANNEL_CLOSE_METHOD:
		return "the broker closed the channel";
	case AMQP_CONNECTION_CLOSE_METHOD:
		return "the broker closed the connection";
	default:
		return "the broker sent an unexpected method";
	}
}

static const char *message_pass(struct rabbit_link *link)
{
	struct arriving message = link->arriving;

	link->arriving = (struct arriving){ 0 };
	if (message.method == AMQP_BASIC_DELIVER_METHOD) {
		link->events->delivered(link->context, message.source, message.tag,
					message.envelope);
		return NULL;
	}
	if (link->events->returned)
		link->events->returned(link->context, message.envelope);
	envelope_free(message.envelope);
	return NULL;
}

static const char *frame_pass(struct rabbit_link *link, const amqp_frame_t *frame)
{
	static const char out_of_order[] = "the broker sent frames out of order";
	struct arriving *arriving = &link->arriving;

	switch (frame->frame_type) {
	case AMQP_FRAME_METHOD:
		return arriving->method ? out_of_order : method_pass(link, &frame->payload.method);
	case AMQP_FRAME_HEADER:
		if (!arriving->method || arriving->envelope)
			return out_of_order;
		arriving->body_left = frame->payload.properties.body_size;
		arriving->envelope = envelope_new(frame->payload.properties.decoded,
						  arriving->body_left);
		break;
	case AMQP_FRAME_BODY:
		if (!arriving->envelope)
			return out_of_order;
		envelope_append(arriving->envelope, frame->payload.body_fragment,
				&arriving->body_left);
		break;
	default: /* the library handles heartbeats internally */
		return NULL;
	}
	return arriving->body_left == 0 ? message_pass(link) : NULL;
}

void rabbit_link_read(struct rabbit_link *link)
{
	static const struct timeval no_wait;
	const char *why;

	opening_take(link);
	for (int i = 0; i < READ_MAX && link->connection; i++) {
		amqp_frame_t frame;
		int status;

		amqp_maybe_release_buffers(link->connection);
		watch_begin(link->watch);
		status = amqp_simple_wait_frame_noblock(link->connection, &frame, &no_wait);
		call_end(link);
		if (status == AMQP_STATUS_TIMEOUT)
			return;
		if (status != AMQP_STATUS_OK) {
			fail(link, rabbit_status_text(status));
			return;
		}
		why = frame_pass(link, &frame);
		if (why)
			fail(link, why);
	}
}

int rabbit_link_fd(const struct rabbit_link *link)
{
	if (link->opening)
		return rabbit_opening_fd(link->opening);
	return link->connection ? amqp_get_sockfd(link->connection) : -1;
}

int rabbit_link_up(const struct rabbit_link *link)
{
	return link->connection != NULL;
}

int rabbit_link_blocked(const struct rabbit_link *link)
{
	return link->blocked;
}

const char *rabbit_link_trouble(const struct rabbit_link *link)
{
	return link->blocked ? "blocked by a resource alarm of the broker" : link->trouble;
}

uint64_t rabbit_link_cuts(const struct rabbit_link *link)
{
	return link->cuts;
}

int rabbit_link_opens(const struct rabbit_link *link)
{
	return link->opening != NULL;
}

int rabbit_link_writable(const struct rabbit_link *link)
{
	struct pollfd pollfd = { .fd = rabbit_link_fd(link), .events = POLLOUT };

	return link->connection && poll(&pollfd, 1, 0) == 1;
}

int64_t rabbit_link_deadline_ms(const struct rabbit_link *link, int64_t now_ms)
{
	if (link->opening)
		return now_ms + LOOK_EVERY_MS;
	if (!link->connection)
		return link->due_ms;
	if (amqp_frames_enqueued(link->connection) || amqp_data_in_buffer(link->connection))
		return now_ms;
	if (link->renew_ms && link->renew_ms < now_ms + LOOK_EVERY_MS)
		return link->renew_ms;
	return now_ms + LOOK_EVERY_MS;
}

static int called(struct rabbit_link *link, int status)
{
	call_end(link);
	if (status == AMQP_STATUS_OK)
		return 0;
	fail(link, rabbit_status_text(status));
	return -1;
}

int rabbit_link_publish(struct rabbit_link *link, const char *exchange, amqp_bytes_t routing_key,
			int mandatory, const amqp_basic_properties_t *properties, amqp_bytes_t body)
{
	if (!link->connection)
		return -1;
	watch_begin(link->watch);
	return called(link, amqp_basic_publish(link->connection, RABBIT_CHANNEL,
					       amqp_cstring_bytes(exchange), routing_key, mandatory,
					       0, properties, body));
}

int rabbit_link_declare(struct rabbit_link *link)
{
	if (!link->connection)
		return -1;
	if (link->plan.passive)
		return 0;
	watch_begin(link->watch);
	return called(link, rabbit_topology_declare_send(link->connection));
}

int rabbit_link_queue_ask(struct rabbit_link *link, const char *queue)
{
	amqp_queue_declare_t method = { .queue = amqp_cstring_bytes(queue), .passive = 1 };

	if (!link->connection)
		return -1;
	watch_begin(link->watch);
	/* Not amqp_queue_declare_passive(): that waits for the reply. */
	return called(link, amqp_send_method(link->connection, RABBIT_CHANNEL,
					     AMQP_QUEUE_DECLARE_METHOD, &method));
}

int rabbit_link_ack(struct rabbit_link *link, uint64_t tag, int multiple)
{
	if (!link->connection)
		return -1;
	watch_begin(link->watch);
	return called(link, amqp_basic_ack(link->connection, RABBIT_CHANNEL, tag, multiple));
}

int rabbit_link_cancel(struct rabbit_link *link)
{
	opening_forget(link);
	link->cancelled = 1;
	link->renew_ms = 0;
	if (!link->connection)
		return -1;
	for (size_t i = 0; i < link->plan.sources_n; i++) {
		amqp_basic_cancel_t method = { .consumer_tag = amqp_cstring_bytes(
						       link->plan.sources[i].queue) };

		watch_begin(link->watch);
		/* Not amqp_basic_cancel(): that waits for the reply. */
		if (called(link, amqp_send_method(link->connection, RABBIT_CHANNEL,
						  AMQP_BASIC_CANCEL_METHOD, &method)))
			return -1;
	}
	return 0;
}
