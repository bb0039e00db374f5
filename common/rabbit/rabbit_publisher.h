/*
 * Publishes with confirms on an AMQP connection of its own: every message ends in one call of
 * done(). It does not share the connection of a worker's consumer: while the broker is short of
 * memory or disk, it reads nothing from a connection that has published, acks included, so the
 * queue that fills it could not be emptied. It belongs to one thread.
 */
#pragma once

#include "common/rabbit/link.h"

#include <stddef.h>
#include <stdint.h>

/*
 * The confirm window of one channel: which published messages the broker has not yet confirmed, by
 * delivery tag. Pure bookkeeping, no I/O; one thread.
 *
 *	tags:   first ……………………………… next - 1 | next
 *	        done  open  done  open …        (finished tags at the front are removed at once)
 *
 * A message that the broker returned as unroutable is confirmed too; it counts as failed, not as
 * done.
 */

struct confirm_window;

enum confirm_result {
	CONFIRM_DONE,     /* the broker has confirmed it */
	CONFIRM_NACKED,   /* the broker refused it */
	CONFIRM_RETURNED, /* no queue took it */
	CONFIRM_LOST      /* the channel ended before the broker answered */
};

/*
 * Called once for every message, in the order of their tags within one call. It must not touch the
 * window.
 */
typedef void confirm_fn(void *context, void *item, enum confirm_result result);

struct confirm_window *confirm_new(confirm_fn *done, void *context);
void confirm_free(struct confirm_window *window); /* open messages are forgotten without a call */

/*
 * `item` was published as the channel's next message; returns its tag (the first of a channel is
 * 1).
 */
uint64_t confirm_push(struct confirm_window *window, void *item);

/* basic.ack and basic.nack. 0, or -1 when the tag was never given out or is settled already. */
int confirm_settle(struct confirm_window *window, uint64_t tag, int multiple,
		   enum confirm_result result);

/*
 * basic.return: the open message for which `same` returns true will end as CONFIRM_RETURNED. 0, or
 * -1 when there is none.
 */
int confirm_return(struct confirm_window *window, int (*same)(const void *item, const void *wanted),
		   const void *wanted);

/* Finds the returned message by its tag, else as confirm_return(). */
int confirm_return_tag(struct confirm_window *window, uint64_t tag);

/* The channel has ended: every open message ends as CONFIRM_LOST, and tags start at 1 again. */
void confirm_reset(struct confirm_window *window);

size_t confirm_open(const struct confirm_window *window); /* messages not yet settled */

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
	 * queue. A queue that refuses them for long is recognised although messages of other ways
	 * are confirmed, and a new connection is opened. NULL: there is one way.
	 */
	size_t (*way)(const void *item);
	/*
	 * Messages that no queue takes are dropped by the broker, and confirmed: nothing is
	 * returned. 0: they end as CONFIRM_RETURNED.
	 */
	int drops_unrouted;
	void (*opened)(void *context);
	void (*lost)(void *context); /* after every open item has ended as CONFIRM_LOST */
	void (*queue)(void *context, const char *name, uint32_t ready); /* as a link calls it */
	/* A queue that is consumed on the same channel; its deliveries, as a link passes them. */
	const struct rabbit_source *source;
	void (*delivered)(void *context, size_t source, uint64_t tag, struct envelope *envelope);
};

/* `name`, `url`, `port` and `context` must outlive it. */
struct rabbit_publisher *rabbit_publisher_new(const char *name, const char *url,
					      const struct rabbit_publisher_port *port,
					      void *context);
/* Ends the connection; waits for the broker only if it has confirmed everything and reads. */
void rabbit_publisher_close(struct rabbit_publisher *publisher);
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

/*
 * Publishes with confirms and blocks until they have arrived: for a command that does one thing at
 * a time. It declares nothing, connects once, and writes no log lines. One failure is final.
 */

/*
 * Connects. NULL with a sentence in `error`. `port` is lent; done() is called once for every item.
 * To be closed, then freed: items that are open end as CONFIRM_LOST.
 */
struct rabbit_publisher *rabbit_sender_open(const char *url,
					    const struct rabbit_publisher_port *port, void *context,
					    char error[RABBIT_ERROR_SIZE]);

/* As rabbit_publisher_send(). A failure is reported by the next rabbit_sender_wait(). */
void rabbit_sender_send(struct rabbit_publisher *sender, const char *exchange,
			const char *routing_key, const amqp_basic_properties_t *properties,
			amqp_bytes_t body, void *item);

/*
 * Waits until every message is confirmed. NULL, or a sentence: the connection is lost, the broker
 * takes no messages, or not all are confirmed after `timeout_ms`. Call it once a minute at least:
 * heartbeats are sent inside it.
 */
const char *rabbit_sender_wait(struct rabbit_publisher *sender, int64_t timeout_ms);
