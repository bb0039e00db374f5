/*
 * Moves every message of a queue to another queue, until nobody holds any of its messages. A
 * message leaves its queue only after RabbitMQ has confirmed the copy. After an interruption in
 * between it is in both; settling it twice changes nothing.
 */
#ifndef CTL_QUEUE_DRAIN_H
#define CTL_QUEUE_DRAIN_H

#include "common/rabbit/connection.h"
#include "ctl/ctl.h"

#include <stdint.h>

struct drain {
	const struct ctl *ctl;
	const char *from, *to;
	int64_t leave_timeout_ms;        /* for other consumers of an empty queue */
	amqp_connection_state_t control; /* for looks at the queue; the caller's */
	/* Called about ten times a second with the number of messages moved so far. */
	void (*turn)(void *context, int64_t moved);
	void *context;
};

/*
 * Returns the number of moved messages when for DRAIN_QUIET_MS the queue was empty and had no
 * consumer but this one, which then ends. Consumers are requested to leave. Any failure ends the
 * process with a sentence.
 */
#define DRAIN_QUIET_MS 1000
int64_t drain_run(const struct drain *drain);

#endif
