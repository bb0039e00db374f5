#include "ctl/rabbit.h"

#include "common/rabbit/connection.h"
#include "common/check.h"
#include "common/clock.h"

#include <stdlib.h>

struct broker {
	const char *url;
	amqp_connection_state_t connection; /* NULL: not connected */
	char error[RABBIT_ERROR_SIZE];
};

struct broker *broker_new(const char *url)
{
	struct broker *broker = calloc(1, sizeof(*broker));

	check(broker != NULL);
	broker->url = url;
	return broker;
}

void broker_free(struct broker *broker)
{
	rabbit_connection_close(broker->connection);
	free(broker);
}

const char *broker_error(const struct broker *broker)
{
	return broker->error;
}

/* 0, or -1; a queue that does not exist is empty. */
static int queue_read(struct broker *broker, const char *queue, int64_t *ready, int64_t *consumers)
{
	int rc;

	if (!broker->connection)
		broker->connection = rabbit_connection_open(broker->url, 0, broker->error);
	if (!broker->connection)
		return -1;
	rc = rabbit_connection_queue_read(broker->connection, queue, ready, consumers,
					  broker->error);
	if (rc == 0)
		return 0;
	if (rc > 0 && rabbit_channel_reopen(broker->connection, 0,
					    clock_monotonic_ms() + 1000 * RABBIT_TIMEOUT_S,
					    broker->error) == 0)
		return 0;
	rabbit_connection_drop(broker->connection);
	broker->connection = NULL;
	return rc > 0 ? 0 : -1;
}

void broker_look(struct broker *broker, struct broker_look *look)
{
	int64_t parked, parked_consumers, none, parked_moving, dead_moving;

	look->ok = queue_read(broker, AMQP_QUEUE, &look->ready, &look->consumers) == 0 &&
		   queue_read(broker, AMQP_PARKED_QUEUE, &parked, &parked_consumers) == 0 &&
		   queue_read(broker, AMQP_DEAD_QUEUE, &look->dead, &none) == 0 &&
		   queue_read(broker, AMQP_PARKED_QUEUE AMQP_MOVING_SUFFIX, &parked_moving,
			      &none) == 0 &&
		   queue_read(broker, AMQP_DEAD_QUEUE AMQP_MOVING_SUFFIX, &dead_moving, &none) == 0;
	if (!look->ok)
		return;
	look->ready += parked + parked_moving;
	look->dead += dead_moving;
	look->consumers += parked_consumers;
}
