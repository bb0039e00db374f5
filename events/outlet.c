#include "events/outlet.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/number.h"
#include "common/rabbit/publisher.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WAIT_MS 10000 /* for the broker to take a message, and to confirm all of them */
#define POLL_MS 100
#define CONTENT_TYPE "application/cloudevents-batch+json; charset=utf-8"
#define ROUTING_KEY_SIZE 64 /* event.COUPON.TYPE */

struct outlet {
	const char *url, *source;
	struct thread *thread;
	struct rabbit_publisher_port port;
	struct rabbit_publisher *publisher;
	int failed; /* a message was refused, or is lost with the connection */
};

static char any; /* the item of every message */

static void message_done(void *context, void *item, enum confirm_result result)
{
	struct outlet *outlet = context;

	(void)item;
	outlet->failed |= result != CONFIRM_DONE;
}

struct outlet *outlet_new(const char *url, const char *source, struct thread *thread)
{
	struct outlet *outlet = checked(calloc(1, sizeof(*outlet)));

	outlet->url = url;
	outlet->source = source;
	outlet->thread = thread;
	outlet->port.done = message_done;
	outlet->port.drops_unrouted = 1;
	outlet->publisher = rabbit_publisher_new("events", url, &outlet->port, outlet);
	return outlet;
}

/* Open messages are nothing to wait for: their events are still in the log. */
static void publisher_close(struct outlet *outlet)
{
	rabbit_publisher_close(outlet->publisher);
	rabbit_publisher_free(outlet->publisher);
}

void outlet_free(struct outlet *outlet)
{
	publisher_close(outlet);
	free(outlet);
}

void outlet_reset(struct outlet *outlet)
{
	struct rabbit_link *link = rabbit_publisher_link(outlet->publisher);

	/* A connection that is lost, or all of whose messages are answered, goes on. */
	if (rabbit_link_up(link) && rabbit_publisher_open(outlet->publisher) > 0) {
		publisher_close(outlet);
		outlet->publisher = rabbit_publisher_new("events", outlet->url, &outlet->port,
							 outlet);
	}
	outlet->failed = 0;
}

static struct rabbit_link *link_read(struct outlet *outlet)
{
	struct rabbit_link *link = rabbit_publisher_link(outlet->publisher);

	rabbit_link_step(link, clock_monotonic_ms());
	rabbit_link_read(link);
	return link;
}

static void poll_until(struct outlet *outlet, int64_t until_ms, short events)
{
	struct rabbit_link *link = rabbit_publisher_link(outlet->publisher);
	int64_t deadline_ms = rabbit_link_deadline_ms(link, clock_monotonic_ms());
	const struct pollfd fd = { .fd = rabbit_link_fd(link), .events = events };

	thread_pause(outlet->thread, deadline_ms < until_ms ? deadline_ms : until_ms, &fd, 1);
}

int outlet_ready(struct outlet *outlet)
{
	struct rabbit_link *link = link_read(outlet);

	return rabbit_link_up(link) && !rabbit_link_blocked(link);
}

void outlet_pause(struct outlet *outlet, int64_t wait_ms)
{
	int64_t until_ms = clock_monotonic_ms() + wait_ms;

	while (!outlet->thread->stops && clock_monotonic_ms() < until_ms) {
		poll_until(outlet, until_ms, POLLIN);
		link_read(outlet);
	}
}

/* Why nothing more can be expected of what was sent; NULL: it can. */
static const char *failure(struct outlet *outlet, int64_t until_ms)
{
	struct rabbit_link *link = rabbit_publisher_link(outlet->publisher);

	if (!rabbit_link_up(link))
		return rabbit_link_trouble(link);
	if (rabbit_link_blocked(link))
		return "RabbitMQ takes no messages: it has an alarm for memory or disk";
	if (outlet->failed)
		return "RabbitMQ refused a message";
	if (outlet->thread->stops)
		return "the worker stops";
	return clock_monotonic_ms() < until_ms ? NULL : "RabbitMQ does not answer";
}

/* Until all is confirmed, or until a message can be sent. NULL, or why that cannot be expected. */
static const char *await(struct outlet *outlet, int for_confirms)
{
	struct rabbit_publisher *publisher = outlet->publisher;
	struct rabbit_link *link = rabbit_publisher_link(publisher);
	int64_t until_ms = clock_monotonic_ms() + WAIT_MS;
	const char *why;
	int is_there;

	for (;;) {
		rabbit_link_read(link);
		is_there = for_confirms ? rabbit_publisher_open(publisher) == 0
					: rabbit_publisher_ready(publisher);
		why = failure(outlet, until_ms);
		if (is_there || why)
			break;
		/* For a confirm where the window is full, for the socket where that is. */
		poll_until(outlet, clock_monotonic_ms() + POLL_MS,
			   for_confirms || rabbit_link_writable(link) ? POLLIN : POLLIN | POLLOUT);
	}
	/* What is confirmed is so, whatever has happened since. */
	return is_there && for_confirms && !outlet->failed ? NULL : why;
}

/* CloudEvents has no attributes of a batch: these are those that all its events share. */
static void headers_fill(const struct outlet *outlet, const struct packet *packet,
			 char coupon[NUMBER_SIZE], amqp_table_entry_t headers[4])
{
	const char *const names[][2] = {
		{ "cloudEvents_specversion", "1.0" },
		{ "cloudEvents_source", outlet->source },
		{ "cloudEvents_type", event_type_text(packet->type) },
		{ "cloudEvents_subject", number_text(packet->coupon, coupon) },
	};

	for (int i = 0; i < 4; i++) {
		headers[i].key = amqp_cstring_bytes(names[i][0]);
		headers[i].value.kind = AMQP_FIELD_KIND_UTF8;
		headers[i].value.value.bytes = amqp_cstring_bytes(names[i][1]);
	}
}

const char *outlet_send(struct outlet *outlet, const struct packet *packet)
{
	amqp_table_entry_t headers[4];
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.content_type = amqp_cstring_bytes(CONTENT_TYPE),
		.headers = { .num_entries = 4, .entries = headers },
	};
	char key[ROUTING_KEY_SIZE], coupon[NUMBER_SIZE];
	const char *why;

	why = await(outlet, 0);
	if (why)
		return why;
	headers_fill(outlet, packet, coupon, headers);
	snprintf(key, sizeof(key), "event.%" PRId64 ".%s", packet->coupon,
		 event_type_text(packet->type));
	rabbit_publisher_send(outlet->publisher, AMQP_EVENT_EXCHANGE, key, &properties,
			      (amqp_bytes_t){ .len = packet->len, .bytes = packet->body }, &any);
	return NULL;
}

const char *outlet_confirm(struct outlet *outlet)
{
	return await(outlet, 1);
}
