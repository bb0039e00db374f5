#include "common/rabbit/publisher.h"

#include "common/check.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

#define HEADERS_MAX 64
/*
 * After only nacks from one way for this long, a new connection is opened. A full queue that
 * refuses publishes (reject-publish) signals each channel when it accepts messages again. The
 * signal is not sent if its policy is removed meanwhile: the channel stays refused, a new one is
 * not (RabbitMQ 3.10).
 */
#define REFUSED_MAX_MS 4000

struct rabbit_publisher {
	const struct rabbit_publisher_port *port;
	void *context;
	struct rabbit_link *link;
	struct confirm_window *window;
	/* since then no message of this way was confirmed; 0: the last one was */
	int64_t refused_since_ms[RABBIT_PUBLISHER_WAYS];
	int refused_long;  /* one of the ways, and again just now */
	int declare_again; /* a message was returned: a queue or its binding is gone */
};

static char reply_item; /* the item of every reply in the confirm window */

static void way_note(struct rabbit_publisher *publisher, size_t way, enum confirm_result result)
{
	int64_t *since_ms = &publisher->refused_since_ms[way], now_ms = clock_monotonic_ms();

	check(way < RABBIT_PUBLISHER_WAYS);
	if (result == CONFIRM_DONE)
		*since_ms = 0;
	else if (!*since_ms)
		*since_ms = now_ms;
	else if (now_ms - *since_ms >= REFUSED_MAX_MS)
		publisher->refused_long = 1;
}

static void item_done(void *context, void *item, enum confirm_result result)
{
	struct rabbit_publisher *publisher = context;

	if (item == &reply_item)
		return;
	way_note(publisher, publisher->port->way ? publisher->port->way(item) : 0, result);
	publisher->port->done(publisher->context, item, result);
}

static void opened(void *context)
{
	struct rabbit_publisher *publisher = context;

	memset(publisher->refused_since_ms, 0, sizeof(publisher->refused_since_ms));
	publisher->refused_long = 0;
	publisher->declare_again = 0;
	if (publisher->port->opened)
		publisher->port->opened(publisher->context);
}

static void returned(void *context, const struct envelope *envelope)
{
	struct rabbit_publisher *publisher = context;

	publisher->declare_again = 1;
	if (publisher->port->same)
		confirm_return(publisher->window, publisher->port->same, &envelope->correlation_id);
	else
		confirm_return_tag(publisher->window, (uint64_t)envelope->publish_tag);
}

static int confirmed(void *context, uint64_t tag, int multiple, int acked)
{
	struct rabbit_publisher *publisher = context;

	confirm_settle(publisher->window, tag, multiple, acked ? CONFIRM_DONE : CONFIRM_NACKED);
	return publisher->refused_long ? -1 : 0;
}

static void queue_read(void *context, const char *name, uint32_t ready)
{
	struct rabbit_publisher *publisher = context;

	if (publisher->port->queue)
		publisher->port->queue(publisher->context, name, ready);
}

static void lost(void *context)
{
	struct rabbit_publisher *publisher = context;

	confirm_reset(publisher->window);
	if (publisher->port->lost)
		publisher->port->lost(publisher->context);
}

static void delivered(void *context, size_t source, uint64_t tag, struct envelope *envelope)
{
	struct rabbit_publisher *publisher = context;

	publisher->port->delivered(publisher->context, source, tag, envelope);
}

struct rabbit_publisher *rabbit_publisher_new(const char *name, const char *url,
					      const struct rabbit_publisher_port *port,
					      void *context)
{
	static const struct rabbit_link_events events = { .opened = opened,
							  .delivered = delivered,
							  .returned = returned,
							  .confirmed = confirmed,
							  .queue = queue_read,
							  .lost = lost };
	struct rabbit_publisher *publisher = calloc(1, sizeof(*publisher));

	check(publisher != NULL);
	publisher->port = port;
	publisher->context = context;
	publisher->window = confirm_new(item_done, publisher);
	publisher->link = rabbit_link_new(name, url, port->source, port->source ? 1 : 0, &events,
					  publisher);
	return publisher;
}

void rabbit_publisher_free(struct rabbit_publisher *publisher)
{
	if (!publisher)
		return;
	confirm_reset(publisher->window);
	rabbit_link_free(publisher->link);
	confirm_free(publisher->window);
	free(publisher);
}

struct rabbit_link *rabbit_publisher_link(struct rabbit_publisher *publisher)
{
	return publisher->link;
}

int rabbit_publisher_ready(const struct rabbit_publisher *publisher)
{
	return rabbit_link_up(publisher->link) && !rabbit_link_blocked(publisher->link) &&
	       confirm_open(publisher->window) < RABBIT_PUBLISHER_OPEN_MAX &&
	       rabbit_link_writable(publisher->link);
}

size_t rabbit_publisher_open(const struct rabbit_publisher *publisher)
{
	return confirm_open(publisher->window);
}

/* Adds the message's tag to its headers. */
static void tag_add(amqp_basic_properties_t *properties, uint64_t tag,
		    amqp_table_entry_t headers[HEADERS_MAX + 1])
{
	int n = 0;

	if (properties->_flags & AMQP_BASIC_HEADERS_FLAG)
		for (; n < properties->headers.num_entries && n < HEADERS_MAX; n++)
			headers[n] = properties->headers.entries[n];
	headers[n].key = amqp_cstring_bytes(ENVELOPE_TAG_HEADER);
	headers[n].value.kind = AMQP_FIELD_KIND_I64;
	headers[n].value.value.i64 = (int64_t)tag;
	properties->headers.entries = headers;
	properties->headers.num_entries = n + 1;
	properties->_flags |= AMQP_BASIC_HEADERS_FLAG;
}

void rabbit_publisher_send(struct rabbit_publisher *publisher, const char *exchange,
			   const char *routing_key, const amqp_basic_properties_t *properties,
			   amqp_bytes_t body, void *item)
{
	amqp_basic_properties_t all = *properties;
	amqp_table_entry_t headers[HEADERS_MAX + 1];
	uint64_t tag;

	check(rabbit_link_up(publisher->link));
	/* First into the window: a publish that fails half-way may have arrived. */
	tag = confirm_push(publisher->window, item);
	if (publisher->declare_again && rabbit_link_declare(publisher->link))
		return;
	publisher->declare_again = 0;
	if (!publisher->port->same && !publisher->port->drops_unrouted)
		tag_add(&all, tag, headers);
	all.delivery_mode = AMQP_DELIVERY_PERSISTENT;
	all._flags |= AMQP_BASIC_DELIVERY_MODE_FLAG;
	rabbit_link_publish(publisher->link, exchange, amqp_cstring_bytes(routing_key),
			    !publisher->port->drops_unrouted, &all, body);
}

int rabbit_publisher_reply(struct rabbit_publisher *publisher, amqp_bytes_t reply_to,
			   amqp_bytes_t correlation_id, amqp_bytes_t body)
{
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
			  AMQP_BASIC_DELIVERY_MODE_FLAG,
		.correlation_id = correlation_id,
		.content_type = amqp_cstring_bytes("application/json"),
		.delivery_mode = AMQP_DELIVERY_NONPERSISTENT,
	};

	check(!publisher->port->same); /* it would be called with the item of a reply */
	if (!rabbit_publisher_ready(publisher))
		return -1;
	confirm_push(publisher->window, &reply_item);
	return rabbit_link_publish(publisher->link, "", reply_to, 0, &properties, body);
}
