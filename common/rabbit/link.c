#include "common/rabbit/link.h"

#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define READ_MAX 1024      /* frames in one turn, so that other work is not delayed */
#define LOOK_EVERY_MS 1000 /* heartbeats are sent and missed inside library calls only */
#define RECHECK_MS 30000   /* while a queue differs: whether it has been replaced */
#define STEADY_MS 2000     /* a connection that lasted this long resets the backoff */
#define REFUSED_TEXT "the broker refuses the messages for a queue"

/* The properties that an envelope keeps if they are not empty. app_id names the installation. */
static const struct {
	amqp_flags_t flag;
	size_t offset;
} kept[] = {
	{ AMQP_BASIC_CONTENT_TYPE_FLAG, offsetof(amqp_basic_properties_t, content_type) },
	{ AMQP_BASIC_CONTENT_ENCODING_FLAG, offsetof(amqp_basic_properties_t, content_encoding) },
	{ AMQP_BASIC_CORRELATION_ID_FLAG, offsetof(amqp_basic_properties_t, correlation_id) },
	{ AMQP_BASIC_REPLY_TO_FLAG, offsetof(amqp_basic_properties_t, reply_to) },
	{ AMQP_BASIC_MESSAGE_ID_FLAG, offsetof(amqp_basic_properties_t, message_id) },
	{ AMQP_BASIC_TYPE_FLAG, offsetof(amqp_basic_properties_t, type) },
	{ AMQP_BASIC_APP_ID_FLAG, offsetof(amqp_basic_properties_t, app_id) },
};

#define KEPT_N (sizeof(kept) / sizeof(kept[0]))

int envelope_integer(const amqp_field_value_t *value, int64_t *number)
{
	switch (value->kind) {
	case AMQP_FIELD_KIND_I8:
		*number = value->value.i8;
		break;
	case AMQP_FIELD_KIND_U8:
		*number = value->value.u8;
		break;
	case AMQP_FIELD_KIND_I16:
		*number = value->value.i16;
		break;
	case AMQP_FIELD_KIND_U16:
		*number = value->value.u16;
		break;
	case AMQP_FIELD_KIND_I32:
		*number = value->value.i32;
		break;
	case AMQP_FIELD_KIND_U32:
		*number = value->value.u32;
		break;
	case AMQP_FIELD_KIND_I64:
		*number = value->value.i64;
		break;
	default: /* the kinds are not an enum */
		return -1;
	}
	return 0;
}

/* The value of a header that is an integer of any width; else 0. */
static int64_t header_integer(const amqp_basic_properties_t *properties, const char *name)
{
	const amqp_field_value_t *value = properties->_flags & AMQP_BASIC_HEADERS_FLAG
						  ? rabbit_table_find(&properties->headers, name)
						  : NULL;
	int64_t number;

	return value && envelope_integer(value, &number) == 0 ? number : 0;
}

int64_t envelope_delivery_count(const amqp_basic_properties_t *properties)
{
	return header_integer(properties, "x-delivery-count");
}

struct envelope *envelope_new(const amqp_basic_properties_t *properties, uint64_t body_size)
{
	struct envelope *envelope = checked(calloc(1, sizeof(*envelope)));
	amqp_bytes_t bytes;

	envelope->delivery_count = envelope_delivery_count(properties);
	envelope->publish_tag = header_integer(properties, ENVELOPE_TAG_HEADER);
	for (size_t i = 0; i < KEPT_N; i++) {
		if (!(properties->_flags & kept[i].flag))
			continue;
		memcpy(&bytes, (const char *)properties + kept[i].offset, sizeof(bytes));
		if (bytes.len == 0)
			continue;
		bytes = amqp_bytes_malloc_dup(bytes);
		check(bytes.bytes != NULL);
		memcpy((char *)&envelope->properties + kept[i].offset, &bytes, sizeof(bytes));
		envelope->properties._flags |= kept[i].flag;
	}
	envelope->body_size = body_size;
	envelope->body_room = body_size < ENVELOPE_BODY_MAX ? (size_t)body_size : ENVELOPE_BODY_MAX;
	envelope->body = checked(malloc(envelope->body_room + 1));
	return envelope;
}

struct envelope *envelope_new_part(const struct envelope *whole, amqp_bytes_t correlation_id,
				   const char *body, size_t len)
{
	amqp_basic_properties_t properties = whole->properties;
	struct envelope *part;

	properties.correlation_id = correlation_id;
	properties._flags |= AMQP_BASIC_CORRELATION_ID_FLAG;
	part = envelope_new(&properties, len);
	part->delivery_count = whole->delivery_count;
	part->body_len = len;
	memcpy(part->body, body, len);
	return part;
}

void envelope_free(void *memory)
{
	struct envelope *envelope = memory;
	amqp_bytes_t bytes;

	if (!envelope)
		return;
	for (size_t i = 0; i < KEPT_N; i++) {
		memcpy(&bytes, (const char *)&envelope->properties + kept[i].offset, sizeof(bytes));
		amqp_bytes_free(bytes);
	}
	free(envelope->body);
	free(envelope);
}

void envelope_append(struct envelope *envelope, amqp_bytes_t piece, uint64_t *left)
{
	size_t len = piece.len;

	*left -= piece.len < *left ? piece.len : *left;
	if (len > envelope->body_room - envelope->body_len)
		len = envelope->body_room - envelope->body_len;
	memcpy(envelope->body + envelope->body_len, piece.bytes, len);
	envelope->body_len += len;
}

/*
 * Opens a connection in a thread of its own: connecting, logging in, declaring and starting the
 * consumers take many round trips, and the thread of the link does not wait for them.
 *
 * The link and the thread hold one reference each; the release of the last one closes and frees.
 * The link may read the result once the thread has released its reference.
 */
struct opening {
	atomic_int shares;
	int fd; /* readable once it has ended */
	struct opening_plan {
		int confirms; /* for publishing */
		int passive;  /* declares nothing */
		size_t sources_n;
		struct rabbit_source sources[RABBIT_SOURCES_MAX];
	} plan;
	amqp_connection_state_t connection;
	char host[RABBIT_HOST_SIZE];
	char error[RABBIT_ERROR_SIZE];
	char url[];
};

/* Releases one reference; in the background the connection is closed when the thread has ended. */
static void opening_release(struct opening *opening)
{
	if (!opening || atomic_fetch_sub(&opening->shares, 1) > 1)
		return;
	rabbit_connection_close(opening->connection);
	if (opening->fd >= 0)
		close(opening->fd);
	free(opening);
}

/* On the new connection to a host: declares, then starts the consumers. */
static int opening_host_begin(void *context, amqp_connection_state_t connection, const char *host,
			      int64_t deadline_ms, char error[RABBIT_ERROR_SIZE])
{
	struct opening *opening = context;
	const struct opening_plan *plan = &opening->plan;

	snprintf(opening->host, sizeof(opening->host), "%s", host);
	if (!plan->passive &&
	    rabbit_topology_declare(connection, plan->confirms, deadline_ms, error))
		return -1;
	for (size_t i = 0; i < plan->sources_n; i++) {
		const struct rabbit_source *source = &plan->sources[i];
		amqp_bytes_t queue = amqp_cstring_bytes(source->queue);

		/* A prefetch that is not global applies to each consumer that starts after it. */
		rabbit_time_left_set(connection, deadline_ms);
		amqp_basic_qos(connection, RABBIT_CHANNEL, 0, source->prefetch, 0);
		if (rabbit_reply_check(amqp_get_rpc_reply(connection), error))
			return -1;
		rabbit_time_left_set(connection, deadline_ms);
		amqp_basic_consume(connection, RABBIT_CHANNEL, queue, queue, 0,
				   source->prefetch == 0, 0, amqp_empty_table);
		if (rabbit_reply_check(amqp_get_rpc_reply(connection), error))
			return -1;
	}
	return 0;
}

static void *opening_run(void *data)
{
	struct opening *opening = data;

	opening->connection = rabbit_connection_begin(opening->url, opening->plan.confirms,
						      opening_host_begin, opening, opening->error);
	wake_send(opening->fd);
	opening_release(opening);
	return NULL;
}

/* Begins; both arguments are copied. */
static struct opening *opening_begin(const char *url, const struct opening_plan *plan)
{
	struct opening *opening = checked(calloc(1, sizeof(*opening) + strlen(url) + 1));
	int trouble;

	strcpy(opening->url, url);
	opening->shares = 2;
	opening->plan = *plan;
	opening->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	trouble = opening->fd < 0 ? errno : thread_detach(opening_run, opening);
	if (trouble) {
		opening->shares = 1;
		snprintf(opening->error, sizeof(opening->error),
			 "the connection cannot be opened: %s", strerror(trouble));
	}
	return opening;
}

/* A message whose frames are arriving: a method, a header and pieces of a body. */
struct arriving {
	amqp_method_number_t method; /* basic.deliver or basic.return; 0: there is no message */
	size_t source;               /* the source of a delivery */
	uint64_t tag;                /* the tag of a delivery */
	struct envelope *envelope;   /* NULL until the header has arrived */
	uint64_t body_left;
};

struct rabbit_link {
	const char *name;
	const char *url;
	const struct rabbit_link_events *events;
	void *context;
	struct opening_plan plan;
	amqp_connection_state_t connection; /* NULL: down */
	struct opening *opening;            /* while it is being opened */
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
	opening_release(link->opening);
	link->opening = NULL;
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
	struct opening *opening = link->opening;
	char host[RABBIT_HOST_SIZE], error[RABBIT_ERROR_SIZE];

	if (!opening || opening->shares > 1)
		return;
	memcpy(host, opening->host, sizeof(host));
	memcpy(error, opening->error, sizeof(error));
	link->connection = opening->connection;
	opening->connection = NULL;
	opening_release(opening);
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

void rabbit_link_step(struct rabbit_link *link, int64_t now_ms)
{
	struct opening_plan plan = link->plan;
	const struct opening_plan recheck = { .confirms = link->plan.confirms };
	int differs;

	opening_take(link);
	if (link->connection && link->renew_ms && now_ms >= link->renew_ms) {
		connection_end(link, 1); /* to open it at once */
		link->due_ms = now_ms;
		if (link->events->lost)
			link->events->lost(link->context);
	}

	/* Open it without the sources that it leaves at present. */
	if (!link->connection && !link->opening && now_ms >= link->due_ms) {
		plan.sources_n = 0;
		link->renew_ms = 0;
		for (size_t i = 0; i < link->plan.sources_n; i++) {
			if (now_ms >= link->left_until_ms[i])
				plan.sources[plan.sources_n++] = link->plan.sources[i];
			else if (!link->renew_ms || link->left_until_ms[i] < link->renew_ms)
				link->renew_ms = link->left_until_ms[i];
		}
		link->opening = opening_begin(link->url, &plan);
	}
	opening_take(link); /* without descriptors it has failed */

	/*
	 * While a queue differs, declare everything again, on a connection of its own, since a
	 * refusal ends the channel. Another thread closes it: this one does not wait. It takes less
	 * than the interval.
	 */
	differs = link->connection && !link->plan.passive && rabbit_topology_differing_n() > 0;
	if (differs && now_ms < link->recheck_ms)
		return;
	if (differs)
		opening_release(opening_begin(link->url, &recheck));
	link->recheck_ms = now_ms + RECHECK_MS;
}

/* NULL, or the reason why the connection is of no further use. */
static const char *method_take(struct rabbit_link *link, const amqp_method_t *method)
{
	const struct rabbit_link_events *events = link->events;
	const amqp_basic_deliver_t *deliver = method->decoded;
	const amqp_basic_ack_t *ack = method->decoded;
	const amqp_basic_nack_t *nack = method->decoded;
	const amqp_queue_declare_ok_t *queue = method->decoded;
	size_t source = 0, sources_n = events->delivered ? link->plan.sources_n : 0;
	int is_refused = 0;
	char name[256]; /* a short string of AMQP, with its end */

	switch (method->id) {
	case AMQP_BASIC_DELIVER_METHOD:
		while (source < sources_n &&
		       !rabbit_text_is(deliver->consumer_tag, link->plan.sources[source].queue))
			source++;
		link->arriving = (struct arriving){ .method = method->id,
						    .source = source,
						    .tag = deliver->delivery_tag };
		return source < sources_n ? NULL : "the broker delivered for an unknown consumer";
	case AMQP_BASIC_RETURN_METHOD:
		link->arriving.method = method->id;
		return NULL;
	case AMQP_BASIC_ACK_METHOD:
		if (events->confirmed)
			is_refused = events->confirmed(link->context, ack->delivery_tag,
						       ack->multiple, 1);
		return is_refused ? REFUSED_TEXT : NULL;
	case AMQP_BASIC_NACK_METHOD:
		if (events->confirmed)
			is_refused = events->confirmed(link->context, nack->delivery_tag,
						       nack->multiple, 0);
		return is_refused ? REFUSED_TEXT : NULL;
	case AMQP_QUEUE_DECLARE_OK_METHOD:
		snprintf(name, sizeof(name), "%.*s", (int)queue->queue.len,
			 (const char *)queue->queue.bytes);
		if (events->queue)
			events->queue(link->context, name, queue->message_count);
		return NULL;
	case AMQP_CONNECTION_BLOCKED_METHOD:
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		link->blocked = method->id == AMQP_CONNECTION_BLOCKED_METHOD;
		if (!link->plan.passive)
			log_warn(link->blocked ? "amqp_blocked" : "amqp_unblocked",
				 LOG_S("connection", link->name));
		return NULL;
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

/* Returns what method_take() does. A complete message is handed over. */
static const char *frame_take(struct rabbit_link *link, const amqp_frame_t *frame)
{
	static const char out_of_order[] = "the broker sent frames out of order";
	struct arriving *arriving = &link->arriving, message;

	switch (frame->frame_type) {
	case AMQP_FRAME_METHOD:
		return arriving->method ? out_of_order : method_take(link, &frame->payload.method);
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
	if (arriving->body_left > 0)
		return NULL;

	message = *arriving;
	*arriving = (struct arriving){ 0 };
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
		link->cuts += (uint64_t)watch_end(link->watch);
		if (status == AMQP_STATUS_TIMEOUT)
			return;
		if (status != AMQP_STATUS_OK) {
			fail(link, rabbit_status_text(status));
			return;
		}
		why = frame_take(link, &frame);
		if (why)
			fail(link, why);
	}
}

int rabbit_link_fd(const struct rabbit_link *link)
{
	if (link->opening)
		return link->opening->fd;
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

/* The end of a call into the library that began with watch_begin(). 0, or -1: the link is lost. */
static int called(struct rabbit_link *link, int status)
{
	link->cuts += (uint64_t)watch_end(link->watch);
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
	opening_release(link->opening);
	link->opening = NULL;
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
