/*
 * One AMQP connection that is read without blocking and reopened when it is lost. librabbitmq
 * returns frames; the link turns them into whole messages, confirms and the one event "lost". It
 * belongs to one thread.
 */
#pragma once

#include "common/rabbit/topology.h"

#include <stdint.h>

/*
 * A message as received: the body, and the properties that couponmq uses or passes on.
 */

/* A longer body is truncated to this size; the script builds at most a twentieth of it. */
#define ENVELOPE_BODY_MAX 1048576

/* The header of a tracked publish: its delivery tag, which identifies a returned message. */
#define ENVELOPE_TAG_HEADER "x-couponmq-tag"

struct envelope {
	int64_t delivery_count; /* how many times a quorum queue delivered it before */
	int64_t publish_tag;    /* the tag of the publish of a returned message; 0: none */
	/* The properties that are kept; one without its flag is empty. */
	amqp_basic_properties_t properties;
	uint64_t body_size; /* the length that was sent */
	size_t body_len;    /* the length that is kept, at most ENVELOPE_BODY_MAX */
	size_t body_room;
	char *body;
};

/* Reads the value of a header that is an integer of any width. 0, or -1: it is no integer. */
int envelope_integer(const amqp_field_value_t *value, int64_t *number);
/* The delivery count of a message; 0 when it has none. */
int64_t envelope_delivery_count(const amqp_basic_properties_t *properties);

struct envelope *envelope_new(const amqp_basic_properties_t *properties, uint64_t body_size);
/* A new envelope with the properties of `whole`, but with this correlation id and body: copied. */
struct envelope *envelope_new_part(const struct envelope *whole, amqp_bytes_t correlation_id,
				   const char *body, size_t len);
void envelope_free(void *envelope); /* NULL is allowed */

/* Adds a piece of the body; `*left` is how much of it is still missing. */
void envelope_append(struct envelope *envelope, amqp_bytes_t piece, uint64_t *left);

/* A queue to consume. The name of the queue is the consumer tag as well. */
struct rabbit_source {
	const char *queue; /* a constant, unique among the sources of a link */
	uint16_t prefetch; /* un-acked deliveries at most; 0: the broker expects no acks (no-ack) */
};

#define RABBIT_SOURCES_MAX 4

struct rabbit_link;

/* Any may be NULL. None may close the link. */
struct rabbit_link_events {
	/* A new connection: everything is declared, and it consumes. */
	void (*opened)(void *context);
	/*
	 * `source` is the index of the queue; `tag` counts over all queues. Takes over the
	 * envelope.
	 */
	void (*delivered)(void *context, size_t source, uint64_t tag, struct envelope *envelope);
	void (*returned)(void *context, const struct envelope *envelope);
	/*
	 * 0, or -1: the broker has refused messages on this connection for long, and a new one is
	 * to be opened.
	 */
	int (*confirmed)(void *context, uint64_t tag, int multiple, int acked);
	/* The reply to rabbit_link_queue_ask(): how many messages wait for a consumer. */
	void (*queue)(void *context, const char *name, uint32_t ready);
	void (*lost)(void *context); /* only after opened() */
};

/* The link consumes `sources`, which are copied; there may be none. */
struct rabbit_link *rabbit_link_new(const char *name, const char *url,
				    const struct rabbit_source *sources, size_t sources_n,
				    const struct rabbit_link_events *events, void *context);
/* Closes it politely, then frees. */
void rabbit_link_free(struct rabbit_link *link);

/* Makes it declare and log nothing, for a command. Before the first rabbit_link_step(). */
void rabbit_link_set_passive(struct rabbit_link *link);

/*
 * Ends the connection; lost() is not called. Politely: with connection.close, and waits for the
 * reply, which a broker that does not confirm, or does not read, does not send.
 */
void rabbit_link_close(struct rabbit_link *link, int politely);

/*
 * Begins to connect when it is down and an attempt is due. Does not block: a thread connects
 *.
 */
void rabbit_link_step(struct rabbit_link *link, int64_t now_ms);
/*
 * Reads the input that has arrived, takes over a new connection, and lets the library send its
 * heartbeat.
 */
void rabbit_link_read(struct rabbit_link *link);

int rabbit_link_up(const struct rabbit_link *link);
int rabbit_link_opens(const struct rabbit_link *link);    /* it is being opened */
int rabbit_link_writable(const struct rabbit_link *link); /* a small publish does not block */
int rabbit_link_blocked(
	const struct rabbit_link *link); /* the broker accepts no publishes at present */
/* The reason why nothing can be published or consumed at present; empty when there is none. */
const char *rabbit_link_trouble(const struct rabbit_link *link);
uint64_t rabbit_link_cuts(const struct rabbit_link *link); /* calls that the watchdog has ended */
int rabbit_link_fd(const struct rabbit_link *link);        /* for poll(); -1 when down */
/*
 * The latest time for the next rabbit_link_step() or rabbit_link_read(); `now_ms` when input is
 * already in memory.
 */
int64_t rabbit_link_deadline_ms(const struct rabbit_link *link, int64_t now_ms);

/*
 * Stops consuming a source for some time. In the next rabbit_link_step() the connection is closed,
 * so that everything it holds returns to its queue, and opened again without that source; and once
 * more with it when the time is over. lost() is called each time.
 */
void rabbit_link_leave(struct rabbit_link *link, size_t source, int64_t for_ms);

/* Each 0, or -1 and the link is lost. */
int rabbit_link_publish(struct rabbit_link *link, const char *exchange, amqp_bytes_t routing_key,
			int mandatory, const amqp_basic_properties_t *properties,
			amqp_bytes_t body);
/*
 * Declares everything again, without waiting; the broker does it before any command that
 * follows.
 */
int rabbit_link_declare(struct rabbit_link *link);
/*
 * Asks for the length of a queue, without waiting. If there is no such queue the broker closes the
 * channel, and the next connection declares the queue.
 */
int rabbit_link_queue_ask(struct rabbit_link *link, const char *queue);
int rabbit_link_ack(struct rabbit_link *link, uint64_t tag, int multiple);
/* Ends every consumer, for good: the broker sends no more deliveries. */
int rabbit_link_cancel(struct rabbit_link *link);
