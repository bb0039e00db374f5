/*
 * Opens an AMQP connection in a thread of its own: connecting, logging in, declaring and starting
 * the consumers take many round trips, and the caller's thread does not wait for them.
 */
#ifndef COMMON_RABBIT_OPENING_H
#define COMMON_RABBIT_OPENING_H

#include "common/rabbit/connection.h"

#include <stdint.h>

struct rabbit_opening;

/* A queue to consume. The name of the queue is the consumer tag as well. */
struct rabbit_source {
	const char *queue; /* a constant, unique among the sources of a link */
	uint16_t prefetch; /* un-acked deliveries at most; 0: the broker expects no acks (no-ack) */
};

#define RABBIT_SOURCES_MAX 4

struct rabbit_opening_plan {
	int confirms; /* for publishing */
	int passive;  /* declares nothing */
	size_t sources_n;
	struct rabbit_source sources[RABBIT_SOURCES_MAX];
};

/* Begins; both arguments are copied. */
struct rabbit_opening *rabbit_opening_begin(const char *url,
					    const struct rabbit_opening_plan *plan);

int rabbit_opening_fd(const struct rabbit_opening *opening); /* readable once it has ended */
int rabbit_opening_done(const struct rabbit_opening *opening);
/*
 * Once it has ended: returns the connection, which the caller then owns, or NULL with a sentence in
 * `error`. Frees `opening`.
 */
amqp_connection_state_t rabbit_opening_take(struct rabbit_opening *opening,
					    char error[RABBIT_ERROR_SIZE]);
/*
 * Frees the opening and closes its connection, in the background if it has not ended. NULL is
 * allowed.
 */
void rabbit_opening_abandon(struct rabbit_opening *opening);

#endif
