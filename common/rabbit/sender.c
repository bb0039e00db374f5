#include "common/rabbit/sender.h"

#include "common/check.h"
#include "common/clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define POLL_MS 100

struct rabbit_sender {
	struct rabbit_publisher_port port;
	struct rabbit_publisher *publisher;
	struct rabbit_link *link; /* of the publisher */
	void *context;
};

static void read_poll(const struct rabbit_link *link)
{
	struct pollfd pollfd = { .fd = rabbit_link_fd(link), .events = POLLIN };

	poll(&pollfd, 1, POLL_MS);
}

struct rabbit_sender *rabbit_sender_open(const char *url, confirm_fn *done, void *context,
					 char error[RABBIT_ERROR_SIZE])
{
	struct rabbit_sender *sender = calloc(1, sizeof(*sender));

	check(sender != NULL);
	sender->port.done = done;
	sender->context = context;
	sender->publisher = rabbit_publisher_new("sender", url, &sender->port, context);
	sender->link = rabbit_publisher_link(sender->publisher);
	rabbit_link_set_passive(sender->link);
	rabbit_link_step(sender->link, clock_monotonic_ms());
	while (rabbit_link_opens(sender->link)) { /* opening has a time limit, so this loop ends */
		read_poll(sender->link);
		rabbit_link_read(sender->link);
	}
	if (rabbit_link_up(sender->link))
		return sender;
	snprintf(error, RABBIT_ERROR_SIZE, "%s", rabbit_link_trouble(sender->link));
	rabbit_sender_close(sender);
	return NULL;
}

void rabbit_sender_close(struct rabbit_sender *sender)
{
	/* A broker that does not confirm, or does not read, does not answer connection.close. */
	if (rabbit_publisher_open(sender->publisher) > 0 || rabbit_link_blocked(sender->link))
		rabbit_link_drop(sender->link);
	rabbit_publisher_free(sender->publisher);
	free(sender);
}

void rabbit_sender_send(struct rabbit_sender *sender, const char *exchange, const char *routing_key,
			const amqp_basic_properties_t *properties, amqp_bytes_t body, void *item)
{
	if (rabbit_link_up(sender->link) && !rabbit_link_blocked(sender->link))
		rabbit_publisher_send(sender->publisher, exchange, routing_key, properties, body,
				      item);
	else
		sender->port.done(sender->context, item, CONFIRM_LOST);
}

const char *rabbit_sender_wait(struct rabbit_sender *sender, int64_t timeout_ms)
{
	int64_t until_ms = clock_monotonic_ms() + timeout_ms;

	for (;;) {
		rabbit_link_read(sender->link);
		if (!rabbit_link_up(sender->link))
			return rabbit_link_trouble(sender->link);
		if (rabbit_link_blocked(sender->link))
			return "RabbitMQ takes no messages: it has an alarm for memory or disk";
		if (rabbit_publisher_open(sender->publisher) == 0)
			return NULL;
		if (clock_monotonic_ms() >= until_ms)
			return "RabbitMQ does not confirm";
		read_poll(sender->link);
	}
}
