/*
 * Publishes on an AMQP connection of its own. Not on the consumer's: from a connection that has
 * published the broker reads nothing while it is short of memory or disk, acks included, and the
 * queue that fills it could never be emptied. One thread.
 */
#ifndef COMMON_RABBIT_PUBLISHER_H
#define COMMON_RABBIT_PUBLISHER_H

#include "common/rabbit/confirm.h"
#include "common/rabbit/link.h"

#define PUBLISHER_OPEN_MAX 4096 /* messages awaiting their confirm */

struct publisher;

/* `done` is called once for every item; it must not publish. */
struct publisher *publisher_new(const char *name, const char *url, confirm_fn *done, void *context);
void publisher_free(struct publisher *publisher); /* open items end as CONFIRM_LOST */

/* The connection, for step, read, poll and deadline. */
struct link *publisher_link(struct publisher *publisher);

/* Whether publishing now neither fails at once nor fills a buffer without end. */
int publisher_ready(const struct publisher *publisher);
size_t publisher_open(const struct publisher *publisher); /* published, not yet confirmed */

/*
 * Persistent, mandatory, confirmed: `done` will tell what became of `item`. `properties` may hold
 * headers and more; one header is added. Only when publisher_ready(). A failure is told through
 * `done` too.
 */
void publisher_send(struct publisher *publisher, const char *exchange, const char *routing_key,
		    const amqp_basic_properties_t *properties, amqp_bytes_t body, void *item);

/* A reply to a private queue: lost when nobody is there. 0, or -1 when it could not be sent. */
int publisher_reply(struct publisher *publisher, amqp_bytes_t reply_to, amqp_bytes_t correlation_id,
		    amqp_bytes_t body);

#endif
