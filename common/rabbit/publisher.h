/*
 * Publishes with confirms on an AMQP connection of its own: every message ends in one call of
 * done(). It does not share the connection of a worker's consumer: while the broker is short of
 * memory or disk, it reads nothing from a connection that has published, acks included, so the
 * queue that fills it could not be emptied. It belongs to one thread.
 */
#ifndef COMMON_RABBIT_PUBLISHER_H
#define COMMON_RABBIT_PUBLISHER_H

#include "common/rabbit/confirm.h"
#include "common/rabbit/link.h"

#define RABBIT_PUBLISHER_OPEN_MAX 4096 /* messages that await their confirm */
#define RABBIT_PUBLISHER_WAYS 4

struct rabbit_publisher;

/* Any but done() may be NULL. */
struct rabbit_publisher_port {
	/* Called once for every item; it must not publish. */
	confirm_fn *done;
	/*
	 * Whether a message of this item was published with that correlation id (`wanted` is an
	 * amqp_bytes_t), to identify a returned message. NULL: each message carries its tag in a
	 * header instead, which is slower for the broker.
	 */
	int (*same)(const void *item, const void *wanted);
	/*
	 * The way of an item, below RABBIT_PUBLISHER_WAYS: messages of one way go to the same
	 * queue. A queue that refuses them for long is recognised although those of other ways are
	 * confirmed, and a new connection is opened. NULL: there is one way.
	 */
	size_t (*way)(const void *item);
	/*
	 * Messages that no queue takes are dropped by the broker, and confirmed: nothing is
	 * returned. 0: they end as CONFIRM_RETURNED.
	 */
	int drops_unrouted;
	void (*opened)(void *context);
	void (*lost)(void *context); /* after every open item has ended as CONFIRM_LOST */
	void (*queue)(void *context, const char *name, uint32_t ready); /* as of a link */
	/* A queue that is consumed on the same channel, and its deliveries as those of a link. */
	const struct rabbit_source *source;
	void (*delivered)(void *context, size_t source, uint64_t tag, struct envelope *envelope);
};

/* `name`, `url`, `port` and `context` must outlive it. */
struct rabbit_publisher *rabbit_publisher_new(const char *name, const char *url,
					      const struct rabbit_publisher_port *port,
					      void *context);
/* Open items end as CONFIRM_LOST. NULL is allowed. */
void rabbit_publisher_free(struct rabbit_publisher *publisher);

/* The connection, for step, read, poll and deadline. */
struct rabbit_link *rabbit_publisher_link(struct rabbit_publisher *publisher);

/* Whether publishing now neither fails at once, nor blocks, nor fills an unbounded buffer. */
int rabbit_publisher_ready(const struct rabbit_publisher *publisher);
size_t rabbit_publisher_open(const struct rabbit_publisher *publisher); /* not yet confirmed */

/*
 * Persistent, confirmed, and mandatory unless `drops_unrouted` is set. `properties` may hold
 * headers and more. Only when the connection is up. A failure is reported through done() too,
 * perhaps before this returns.
 */
void rabbit_publisher_send(struct rabbit_publisher *publisher, const char *exchange,
			   const char *routing_key, const amqp_basic_properties_t *properties,
			   amqp_bytes_t body, void *item);

/*
 * A reply to a private queue: lost when the queue is gone. 0, or -1 when it could not be sent. Not
 * for a publisher with same().
 */
int rabbit_publisher_reply(struct rabbit_publisher *publisher, amqp_bytes_t reply_to,
			   amqp_bytes_t correlation_id, amqp_bytes_t body);

#endif
