/*
 * The exchanges, the queues and their bindings, and the one policy for a queue that exists with
 * other arguments than ours, for instance since before an upgrade of the broker: it is used as it
 * is, and reported in the log (queue_differs), in `/readyz` and in a metric until couponctl queue
 * move has replaced it.
 *
 * No queue has a delivery limit: the death of a worker counts as a delivery of all its prefetched
 * messages, and what exceeds the limit is dropped. RabbitMQ 4 has a limit of 20 by default, and
 * -1 switches it off. On RabbitMQ 3 there is none by default, and a negative one acts as 0: there
 * the argument is left out.
 */
#pragma once

#include "common/rabbit/connection.h"

#include <cjson/cJSON.h>
#include <stdint.h>

enum rabbit_queue {
	RABBIT_QUEUE_RECEIVES,
	RABBIT_QUEUE_PARKED,
	RABBIT_QUEUE_USES,
	RABBIT_QUEUE_DEAD,
	RABBIT_QUEUES_N
};

/*
 * The property `type` of a message that couponctl queue move sends to the consumers of a queue: the
 * queue is about to be deleted. They return everything they hold of it, and stay away for a time.
 */
#define RABBIT_LEAVE_TYPE "couponmq.leave"
#define RABBIT_LEAVE_MS 4000

struct rabbit_queue_place {
	const char *name;
	const char *exchange;
	const char *routing_key;
};

extern const struct rabbit_queue_place rabbit_queue_places[RABBIT_QUEUES_N];

/*
 * Declares and binds all of it, as far as that is necessary, until `deadline_ms`. 0, or -1 with
 * `error`.
 */
int rabbit_topology_declare(amqp_connection_state_t connection, int confirms, int64_t deadline_ms,
			    char error[RABBIT_ERROR_SIZE]);
/*
 * Declares and binds all of it without waiting: should the broker refuse, it closes the channel.
 * Returns a status of the library.
 */
int rabbit_topology_declare_send(amqp_connection_state_t connection);

/*
 * Declares one quorum queue with our arguments. 0; 1 when it exists with others, with a sentence
 * in `error`, and the channel is open again; -1 with `error`.
 */
int rabbit_queue_declare(amqp_connection_state_t connection, int confirms, const char *name,
			 char error[RABBIT_ERROR_SIZE]);

/*
 * The number of queues that differed when this process last declared them, and a sentence about
 * each. Any thread.
 */
int rabbit_topology_differing_n(void);
void rabbit_topology_warnings(cJSON *array);
