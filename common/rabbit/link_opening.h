/*
 * Opens an AMQP connection in a thread of its own: connecting, logging in and declaring take as
 * many round trips as they take, and nothing else waits for them.
 */
#ifndef COMMON_RABBIT_LINK_OPENING_H
#define COMMON_RABBIT_LINK_OPENING_H

#include "common/rabbit/connection.h"

#include <stdint.h>

struct link_opening;

/* A queue to consume. The name of the queue is the consumer tag as well. */
struct link_source {
	const char *queue; /* a constant, unique among the sources of a link */
	uint16_t prefetch; /* un-acked deliveries at most; 0: the broker expects no acks (no-ack) */
};

#define LINK_SOURCES_MAX 4

/* Begins. The connection also consumes `sources`, which are copied. */
struct link_opening *link_opening_begin(const char *url, int confirms,
					const struct link_source *sources, size_t sources_n);

int link_opening_fd(const struct link_opening *opening); /* can be read once it is over */
int link_opening_done(const struct link_opening *opening);
/*
 * Once it is over: the connection, which is the caller's, or NULL with a sentence in `error`. Frees
 * `opening`.
 */
amqp_connection_state_t link_opening_take(struct link_opening *opening,
					  char error[AMQP_LINK_ERROR_SIZE]);
/* Frees the opening in the background, and closes its connection there. NULL is allowed. */
void link_opening_abandon(struct link_opening *opening);

#endif
