/* The queue of a pipeline, as librabbitmq's examples use it: a connection with one channel. */
#include "compare/client.h"

#include "common/check.h"
#include "common/rabbit/amqp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define QUEUE "compare"
#define CHANNEL 1
#define PREFETCH 500
#define MESSAGE_SIZE 32

struct queue {
	amqp_connection_state_t connection;
	uint64_t tag; /* of the message that was taken last */
	int is_consuming;
};

static void reply_check(struct queue *queue, const char *what)
{
	if (amqp_get_rpc_reply(queue->connection).reply_type != AMQP_RESPONSE_NORMAL)
		client_fail("RabbitMQ", what, "failed");
}

static void login(struct queue *queue, const char *address)
{
	struct amqp_connection_info info;
	char *url = strdup(address);
	amqp_socket_t *socket;

	queue->connection = amqp_new_connection();
	socket = amqp_tcp_socket_new(queue->connection);
	check(url && socket && amqp_parse_url(url, &info) == AMQP_STATUS_OK);
	if (amqp_socket_open(socket, info.host, info.port) != AMQP_STATUS_OK)
		client_fail("RabbitMQ", "connect", info.host);
	if (amqp_login(queue->connection, info.vhost, 0, 131072, 0, AMQP_SASL_METHOD_PLAIN,
		       info.user, info.password)
		    .reply_type != AMQP_RESPONSE_NORMAL)
		client_fail("RabbitMQ", "log in", info.user);
	free(url);
}

static struct queue *queue_of(struct client *client)
{
	struct queue *queue = client->queue;

	if (queue)
		return queue;
	queue = calloc(1, sizeof(*queue));
	check(queue != NULL);
	client->queue = queue;
	login(queue, client->market->rabbit);
	amqp_channel_open(queue->connection, CHANNEL);
	reply_check(queue, "open a channel");
	amqp_queue_declare(queue->connection, CHANNEL, amqp_cstring_bytes(QUEUE), 0, 1, 0, 0,
			   amqp_empty_table);
	reply_check(queue, "declare the queue");
	return queue;
}

void queue_clear(struct client *client)
{
	struct queue *queue = queue_of(client);

	amqp_queue_purge(queue->connection, CHANNEL, amqp_cstring_bytes(QUEUE));
	reply_check(queue, "purge the queue");
}

void queue_publish(struct client *client, const struct request *request)
{
	struct queue *queue = queue_of(client);
	char body[MESSAGE_SIZE];
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
					       .delivery_mode = AMQP_DELIVERY_PERSISTENT };

	snprintf(body, sizeof(body), "%d %d", request->item, request->user);
	if (amqp_basic_publish(queue->connection, CHANNEL, amqp_empty_bytes,
			       amqp_cstring_bytes(QUEUE), 0, 0, &properties,
			       amqp_cstring_bytes(body)) != AMQP_STATUS_OK)
		client_fail("RabbitMQ", "publish", body);
}

static void consume(struct queue *queue)
{
	amqp_basic_qos(queue->connection, CHANNEL, 0, PREFETCH, 0);
	amqp_basic_consume(queue->connection, CHANNEL, amqp_cstring_bytes(QUEUE), amqp_empty_bytes,
			   0, 0, 0, amqp_empty_table);
	reply_check(queue, "consume");
	queue->is_consuming = 1;
}

int queue_take(struct client *client, struct request *request, int wait_us)
{
	struct queue *queue = queue_of(client);
	char body[MESSAGE_SIZE] = "";
	amqp_envelope_t envelope;
	amqp_rpc_reply_t reply;

	if (!queue->is_consuming)
		consume(queue);
	amqp_maybe_release_buffers(queue->connection);
	reply = amqp_consume_message(queue->connection, &envelope,
				     &(struct timeval){ .tv_usec = wait_us }, 0);
	if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
	    reply.library_error == AMQP_STATUS_TIMEOUT)
		return 0;
	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		client_fail("RabbitMQ", "consume", "the connection is lost");
	check(envelope.message.body.len < sizeof(body));
	memcpy(body, envelope.message.body.bytes, envelope.message.body.len);
	check(sscanf(body, "%d %d", &request->item, &request->user) == 2);
	queue->tag = envelope.delivery_tag;
	amqp_destroy_envelope(&envelope);
	return 1;
}

void queue_ack(struct client *client, int multiple)
{
	if (amqp_basic_ack(client->queue->connection, CHANNEL, client->queue->tag, multiple))
		client_fail("RabbitMQ", "ack", "the connection is lost");
}

void queue_close(struct queue *queue)
{
	amqp_destroy_connection(queue->connection);
	free(queue);
}
