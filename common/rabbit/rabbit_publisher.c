#include "common/rabbit/rabbit_publisher.h"

#include "common/check.h"
#include "common/clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct confirm_entry {
	void *item; /* NULL: settled */
	int returned;
};

struct confirm_window {
	confirm_fn *done;
	void *context;
	struct confirm_entry
		*ring; /* `size` entries, a power of two; tag t stands at t & (size - 1) */
	size_t size;
	size_t open;
	uint64_t first; /* the oldest tag still open, or `next` */
	uint64_t next;
};

static struct confirm_entry *entry_at(const struct confirm_window *window, uint64_t tag)
{
	return &window->ring[tag & (window->size - 1)];
}

struct confirm_window *confirm_new(confirm_fn *done, void *context)
{
	struct confirm_window *window = checked(calloc(1, sizeof(*window)));

	window->done = done;
	window->context = context;
	window->size = 256;
	window->ring = checked(calloc(window->size, sizeof(*window->ring)));
	window->first = window->next = 1;
	return window;
}

void confirm_free(struct confirm_window *window)
{
	if (!window)
		return;
	free(window->ring);
	free(window);
}

uint64_t confirm_push(struct confirm_window *window, void *item)
{
	struct confirm_window larger = *window;

	check(item != NULL);
	if (window->next - window->first == window->size) {
		larger.size *= 2;
		larger.ring = checked(calloc(larger.size, sizeof(*larger.ring)));
		for (uint64_t tag = window->first; tag != window->next; tag++)
			*entry_at(&larger, tag) = *entry_at(window, tag);
		free(window->ring);
		*window = larger;
	}
	*entry_at(window, window->next) = (struct confirm_entry){ .item = item };
	window->open++;
	return window->next++;
}

static void entry_settle(struct confirm_window *window, uint64_t tag, enum confirm_result result)
{
	struct confirm_entry *entry = entry_at(window, tag);
	void *item = entry->item;

	if (!item)
		return;
	entry->item = NULL;
	window->open--;
	window->done(window->context, item, entry->returned ? CONFIRM_RETURNED : result);
}

int confirm_settle(struct confirm_window *window, uint64_t tag, int multiple,
		   enum confirm_result result)
{
	/* Tag 0 with `multiple` means all so far. */
	if (tag == 0 && multiple)
		tag = window->next - 1;
	if (tag < window->first || tag >= window->next ||
	    (!multiple && !entry_at(window, tag)->item))
		return -1;
	for (uint64_t t = multiple ? window->first : tag; t <= tag; t++)
		entry_settle(window, t, result);
	while (window->first != window->next && !entry_at(window, window->first)->item)
		window->first++;
	return 0;
}

int confirm_return(struct confirm_window *window, int (*same)(const void *item, const void *wanted),
		   const void *wanted)
{
	for (uint64_t tag = window->first; tag != window->next; tag++) {
		struct confirm_entry *entry = entry_at(window, tag);

		if (entry->item && !entry->returned && same(entry->item, wanted)) {
			entry->returned = 1;
			return 0;
		}
	}
	return -1;
}

int confirm_return_tag(struct confirm_window *window, uint64_t tag)
{
	if (tag < window->first || tag >= window->next || !entry_at(window, tag)->item ||
	    entry_at(window, tag)->returned)
		return -1;
	entry_at(window, tag)->returned = 1;
	return 0;
}

void confirm_reset(struct confirm_window *window)
{
	for (uint64_t tag = window->first; tag != window->next; tag++)
		entry_settle(window, tag, CONFIRM_LOST);
	window->first = window->next = 1;
}

size_t confirm_open(const struct confirm_window *window)
{
	return window->open;
}

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

static void item_done(void *context, void *item, enum confirm_result result)
{
	struct rabbit_publisher *publisher = context;
	int64_t now_ms = clock_monotonic_ms(), *since_ms;
	size_t way;

	if (item == &reply_item)
		return;
	way = publisher->port->way ? publisher->port->way(item) : 0;
	check(way < RABBIT_PUBLISHER_WAYS);
	since_ms = &publisher->refused_since_ms[way];
	if (result == CONFIRM_DONE)
		*since_ms = 0;
	else if (!*since_ms)
		*since_ms = now_ms;
	else if (now_ms - *since_ms >= REFUSED_MAX_MS)
		publisher->refused_long = 1;
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
		confirm_return(publisher->window, publisher->port->same,
			       &envelope->properties.correlation_id);
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
	struct rabbit_publisher *publisher = checked(calloc(1, sizeof(*publisher)));

	publisher->port = port;
	publisher->context = context;
	publisher->window = confirm_new(item_done, publisher);
	publisher->link = rabbit_link_new(name, url, port->source, port->source ? 1 : 0, &events,
					  publisher);
	return publisher;
}

void rabbit_publisher_close(struct rabbit_publisher *publisher)
{
	rabbit_link_close(publisher->link, confirm_open(publisher->window) == 0 &&
						   !rabbit_link_blocked(publisher->link));
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

void rabbit_publisher_send(struct rabbit_publisher *publisher, const char *exchange,
			   const char *routing_key, const amqp_basic_properties_t *properties,
			   amqp_bytes_t body, void *item)
{
	amqp_basic_properties_t all = *properties;
	amqp_table_entry_t headers[HEADERS_MAX + 1];
	uint64_t tag;
	int n = 0;

	check(rabbit_link_up(publisher->link));
	/* First into the window: a publish that fails half-way may have arrived. */
	tag = confirm_push(publisher->window, item);
	if (publisher->declare_again && rabbit_link_declare(publisher->link))
		return;
	publisher->declare_again = 0;

	/* Add the tag to the headers, to recognise the message if it is returned. */
	if (!publisher->port->same && !publisher->port->drops_unrouted) {
		if (all._flags & AMQP_BASIC_HEADERS_FLAG)
			for (; n < all.headers.num_entries && n < HEADERS_MAX; n++)
				headers[n] = all.headers.entries[n];
		headers[n].key = amqp_cstring_bytes(ENVELOPE_TAG_HEADER);
		headers[n].value.kind = AMQP_FIELD_KIND_I64;
		headers[n].value.value.i64 = (int64_t)tag;
		all.headers.entries = headers;
		all.headers.num_entries = n + 1;
		all._flags |= AMQP_BASIC_HEADERS_FLAG;
	}
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

#define POLL_MS 100

static void read_poll(const struct rabbit_link *link)
{
	struct pollfd pollfd = { .fd = rabbit_link_fd(link), .events = POLLIN };

	poll(&pollfd, 1, POLL_MS);
}

struct rabbit_publisher *rabbit_sender_open(const char *url,
					    const struct rabbit_publisher_port *port, void *context,
					    char error[RABBIT_ERROR_SIZE])
{
	struct rabbit_publisher *sender = rabbit_publisher_new("sender", url, port, context);

	rabbit_link_set_passive(sender->link);
	rabbit_link_step(sender->link, clock_monotonic_ms());
	while (rabbit_link_opens(sender->link)) { /* opening has a time limit, so this loop ends */
		read_poll(sender->link);
		rabbit_link_read(sender->link);
	}
	if (rabbit_link_up(sender->link))
		return sender;
	snprintf(error, RABBIT_ERROR_SIZE, "%s", rabbit_link_trouble(sender->link));
	rabbit_publisher_free(sender);
	return NULL;
}

void rabbit_sender_send(struct rabbit_publisher *sender, const char *exchange,
			const char *routing_key, const amqp_basic_properties_t *properties,
			amqp_bytes_t body, void *item)
{
	if (rabbit_link_up(sender->link) && !rabbit_link_blocked(sender->link))
		rabbit_publisher_send(sender, exchange, routing_key, properties, body, item);
	else
		sender->port->done(sender->context, item, CONFIRM_LOST);
}

const char *rabbit_sender_wait(struct rabbit_publisher *sender, int64_t timeout_ms)
{
	int64_t until_ms = clock_monotonic_ms() + timeout_ms;

	for (;;) {
		rabbit_link_read(sender->link);
		if (!rabbit_link_up(sender->link))
			return rabbit_link_trouble(sender->link);
		if (rabbit_link_blocked(sender->link))
			return "RabbitMQ accepts no messages: it has a memory or disk alarm";
		if (rabbit_publisher_open(sender) == 0)
			return NULL;
		if (clock_monotonic_ms() >= until_ms)
			return "RabbitMQ does not confirm messages";
		read_poll(sender->link);
	}
}
