#include "common/rabbit/publisher.h"

#include "common/check.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

#define HEADERS_MAX 8
/* nothing but nacks for so long: another connection; see gateway/publish/channel.c */
#define REFUSED_MAX_MS 4000

struct publisher {
	struct link *link;
	struct confirm_window *window;
	confirm_fn *done;
	void *context;
	uint64_t next_tag; /* the window counts the same */
	/* of the messages since then, replies apart, none was confirmed; 0: the last one was */
	int64_t refused_since_ms;
};

/* What stands in the confirm window. */
struct pending {
	uint64_t tag;
	void *item; /* NULL: nobody asks */
};

static struct pending reply_pending; /* stands for every reply */

static void pending_done(void *context, void *memory, enum confirm_result result)
{
	struct publisher *publisher = context;
	struct pending *pending = memory;

	if (pending == &reply_pending)
		return;
	if (result == CONFIRM_DONE)
		publisher->refused_since_ms = 0;
	else if (!publisher->refused_since_ms)
		publisher->refused_since_ms = clock_monotonic_ms();
	publisher->done(publisher->context, pending->item, result);
	free(pending);
}

static int pending_same(const void *item, const void *wanted)
{
	const struct pending *pending = item;

	return pending != &reply_pending && pending->tag == *(const uint64_t *)wanted;
}

static void opened(void *context)
{
	struct publisher *publisher = context;

	publisher->next_tag = 1;
	publisher->refused_since_ms = 0;
}

static void returned(void *context, const struct envelope *envelope)
{
	struct publisher *publisher = context;
	uint64_t tag = (uint64_t)envelope->publish_tag;

	confirm_return(publisher->window, pending_same, &tag);
}

static int confirmed(void *context, uint64_t tag, int multiple, int acked)
{
	struct publisher *publisher = context;

	confirm_settle(publisher->window, tag, multiple, acked ? CONFIRM_DONE : CONFIRM_NACKED);
	return publisher->refused_since_ms &&
			       clock_monotonic_ms() - publisher->refused_since_ms >= REFUSED_MAX_MS
		       ? -1
		       : 0;
}

static void lost(void *context)
{
	struct publisher *publisher = context;

	confirm_reset(publisher->window);
}

struct publisher *publisher_new(const char *name, const char *url, confirm_fn *done, void *context)
{
	static const struct link_events events = {
		.opened = opened, .returned = returned, .confirmed = confirmed, .lost = lost
	};
	struct publisher *publisher = calloc(1, sizeof(*publisher));

	check(publisher != NULL);
	publisher->done = done;
	publisher->context = context;
	publisher->window = confirm_new(pending_done, publisher);
	publisher->link = link_new(name, url, NULL, 0, &events, publisher);
	return publisher;
}

void publisher_free(struct publisher *publisher)
{
	if (!publisher)
		return;
	confirm_reset(publisher->window);
	link_free(publisher->link);
	confirm_free(publisher->window);
	free(publisher);
}

struct link *publisher_link(struct publisher *publisher)
{
	return publisher->link;
}

int publisher_ready(const struct publisher *publisher)
{
	return link_up(publisher->link) && !link_blocked(publisher->link) &&
	       confirm_open(publisher->window) < PUBLISHER_OPEN_MAX &&
	       link_writable(publisher->link);
}

size_t publisher_open(const struct publisher *publisher)
{
	return confirm_open(publisher->window);
}

void publisher_send(struct publisher *publisher, const char *exchange, const char *routing_key,
		    const amqp_basic_properties_t *properties, amqp_bytes_t body, void *item)
{
	amqp_basic_properties_t all = *properties;
	amqp_table_entry_t headers[HEADERS_MAX + 1];
	struct pending *pending = malloc(sizeof(*pending));
	int n = 0;

	check(pending != NULL && link_up(publisher->link));
	if (all._flags & AMQP_BASIC_HEADERS_FLAG)
		for (; n < all.headers.num_entries && n < HEADERS_MAX; n++)
			headers[n] = all.headers.entries[n];
	headers[n].key = amqp_cstring_bytes(ENVELOPE_TAG_HEADER);
	headers[n].value.kind = AMQP_FIELD_KIND_I64;
	headers[n].value.value.i64 = (int64_t)publisher->next_tag;
	all.headers.entries = headers;
	all.headers.num_entries = n + 1;
	all.delivery_mode = AMQP_DELIVERY_PERSISTENT;
	all._flags |= AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
	*pending = (struct pending){ publisher->next_tag++, item };
	/* First into the window: should the connection break now, the item is told. */
	confirm_push(publisher->window, pending);
	link_publish(publisher->link, exchange, amqp_cstring_bytes(routing_key), 1, &all, body);
}

int publisher_reply(struct publisher *publisher, amqp_bytes_t reply_to, amqp_bytes_t correlation_id,
		    amqp_bytes_t body)
{
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
			  AMQP_BASIC_DELIVERY_MODE_FLAG,
		.correlation_id = correlation_id,
		.content_type = amqp_cstring_bytes("application/json"),
		.delivery_mode = AMQP_DELIVERY_NONPERSISTENT,
	};

	if (!publisher_ready(publisher))
		return -1;
	publisher->next_tag++;
	confirm_push(publisher->window, &reply_pending);
	return link_publish(publisher->link, "", reply_to, 0, &properties, body);
}
