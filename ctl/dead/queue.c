#include "ctl/dead/queue.h"

#include "common/rabbit/connection.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"

#include <stdlib.h>
#include <unistd.h>

#define RETURN_WAIT_MS 1000
#define RETURN_POLL_US 200

struct dead_queue {
	amqp_connection_state_t connection;
	int64_t length;
	char *is_held;  /* by delivery tag, which counts from 1 */
	uint64_t taken; /* the last tag */
	size_t size;    /* of is_held */
	int64_t held;
};

static void result_check(amqp_rpc_reply_t reply)
{
	char error[RABBIT_ERROR_SIZE];

	if (rabbit_reply_check(reply, error))
		log_fatal("RabbitMQ, queue %s: %s", AMQP_DEAD_QUEUE, error);
}

static void status_check(int status)
{
	if (status != AMQP_STATUS_OK)
		log_fatal("RabbitMQ, queue %s: %s", AMQP_DEAD_QUEUE, amqp_error_string2(status));
}

static int64_t length_read(struct dead_queue *queue)
{
	int64_t ready, consumers;
	char error[RABBIT_ERROR_SIZE];

	if (rabbit_connection_queue_read(queue->connection, AMQP_DEAD_QUEUE, &ready, &consumers,
					 error))
		log_fatal("RabbitMQ, queue %s: %s", AMQP_DEAD_QUEUE, error);
	return ready;
}

struct dead_queue *dead_queue_open(const char *url)
{
	struct dead_queue *queue = calloc(1, sizeof(*queue));
	char error[RABBIT_ERROR_SIZE];

	check(queue != NULL);
	queue->connection = rabbit_connection_open(url, 0, error);
	if (!queue->connection)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be reached: %s", error);
	queue->length = length_read(queue);
	return queue;
}

/*
 * Returns messages one by one, each after the one before is back in the queue: RabbitMQ 3.10 loses
 * the order of messages that return at once. The wait is limited, because another consumer may take
 * them.
 */
static void held_return(struct dead_queue *queue)
{
	int64_t until_ms = clock_monotonic_ms() + RETURN_WAIT_MS, wanted = length_read(queue),
		length;

	for (uint64_t tag = 1; tag <= queue->taken; tag++) {
		if (!queue->is_held[tag])
			continue;
		status_check(amqp_basic_nack(queue->connection, RABBIT_CHANNEL, tag, 0, 1));
		wanted++;
		while ((length = length_read(queue)) < wanted && clock_monotonic_ms() < until_ms)
			usleep(RETURN_POLL_US);
		if (length >= wanted)
			until_ms = clock_monotonic_ms() + RETURN_WAIT_MS;
		amqp_maybe_release_buffers(queue->connection);
	}
}

void dead_queue_close(struct dead_queue *queue)
{
	if (queue->held > 0 && queue->taken <= DEAD_ORDER_MAX)
		held_return(queue);
	/* RabbitMQ confirms the end of the channel after the removals before it. */
	result_check(amqp_channel_close(queue->connection, RABBIT_CHANNEL, AMQP_REPLY_SUCCESS));
	rabbit_connection_close(queue->connection);
	free(queue->is_held);
	free(queue);
}

int64_t dead_queue_length(const struct dead_queue *queue)
{
	return queue->length;
}

static void held_add(struct dead_queue *queue, uint64_t tag)
{
	check(tag == queue->taken + 1);
	if (tag >= queue->size) {
		queue->size = queue->size ? 2 * queue->size : 1024;
		queue->is_held = realloc(queue->is_held, queue->size);
		check(queue->is_held != NULL);
	}
	queue->is_held[tag] = 1;
	queue->taken = tag;
	queue->held++;
}

int dead_queue_take(struct dead_queue *queue, amqp_message_t *message, uint64_t *tag)
{
	amqp_rpc_reply_t reply;

	amqp_maybe_release_buffers(queue->connection);
	reply = amqp_basic_get(queue->connection, RABBIT_CHANNEL,
			       amqp_cstring_bytes(AMQP_DEAD_QUEUE), 0);
	result_check(reply);
	if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
		return 0;
	*tag = ((const amqp_basic_get_ok_t *)reply.reply.decoded)->delivery_tag;
	result_check(amqp_read_message(queue->connection, RABBIT_CHANNEL, message, 0));
	held_add(queue, *tag);
	return 1;
}

int64_t dead_queue_held(const struct dead_queue *queue)
{
	return queue->held;
}

void dead_queue_remove(struct dead_queue *queue, uint64_t tag)
{
	check(tag >= 1 && tag <= queue->taken && queue->is_held[tag]);
	status_check(amqp_basic_ack(queue->connection, RABBIT_CHANNEL, tag, 0));
	queue->is_held[tag] = 0;
	queue->held--;
}
