/*
 * A broker in a thread of its own that implements enough of AMQP 0-9-1 for a client of
 * common/rabbit/: the handshake, declarations, consumers and publishes. `plan` defines the reply to
 * each publish. Every connection is accepted, and has a thread.
 */
#pragma once

#include "common/rabbit/connection.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAKE_FRAME_MAX 131072
#define FAKE_PLAN_MAX 64
#define FAKE_CONNECTIONS_MAX 64

enum fake_answer {
	FAKE_ACK,
	FAKE_ACK_ALL, /* those before it, too */
	FAKE_NACK,
	FAKE_RETURN,
	FAKE_RETURN_WITHOUT_BODY,
	FAKE_HANG_UP,
	FAKE_SILENCE,
	FAKE_BLOCK,
	/* Frames that do not belong together: */
	FAKE_BODY_FIRST,
	FAKE_HEADER_FIRST,
	FAKE_TWO_HEADERS,
	FAKE_NO_HEADER,
	FAKE_TWO_METHODS,
	FAKE_CANCEL,
	FAKE_UNEXPECTED
};

struct fake_connection {
	struct fake_broker *broker;
	pthread_t thread;
	int fd;
	uint64_t tag;      /* of the last publish */
	uint64_t delivery; /* of the last delivery */
	uint16_t prefetch; /* of the last basic.qos */
	char *header;      /* payload of the publish's header frame */
	size_t header_len;
	uint64_t body_left;
	char payload[FAKE_FRAME_MAX];
	amqp_pool_t pool;
};

struct fake_broker {
	int listener, port;
	pthread_t thread;
	atomic_int stop;
	enum fake_answer plan[FAKE_PLAN_MAX]; /* by publish; set before the first connection */
	atomic_int published;                 /* over all connections */
	atomic_int connections;
	atomic_int closed;       /* connections that have ended */
	atomic_int declared;     /* exchanges and queues, not passively, over all connections */
	atomic_int bound;        /* likewise */
	atomic_int lacks;        /* no queue exists before it is declared */
	atomic_int refuses;      /* every declaration of an exchange */
	atomic_int differs;      /* each queue exists with other arguments */
	atomic_int prefetch_sum; /* of all basic.qos */
	atomic_int global;       /* basic.qos for the whole channel, which RabbitMQ 4.3 refuses */
	atomic_int cancelled;
	/* Delivers one message to each consumer at its basic.consume. */
	int delivers;
	atomic_int tagged; /* publishes that had headers */
	struct fake_connection *list[FAKE_CONNECTIONS_MAX];
};

static int fake_write(struct fake_connection *connection, const void *bytes, size_t len)
{
	const char *at = bytes;

	while (len > 0) {
		ssize_t n = send(connection->fd, at, len, MSG_NOSIGNAL);

		if (n <= 0)
			return -1;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int fake_read(struct fake_connection *connection, void *bytes, size_t len)
{
	char *at = bytes;

	while (len > 0) {
		struct pollfd pollfd = { .fd = connection->fd, .events = POLLIN };
		ssize_t n;

		if (connection->broker->stop)
			return -1;
		if (poll(&pollfd, 1, 20) <= 0)
			continue;
		n = recv(connection->fd, at, len, 0);
		if (n <= 0)
			return -1;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int fake_frame(struct fake_connection *connection, uint8_t type, uint16_t channel,
		      const void *payload, size_t len)
{
	unsigned char head[7] = { type, (unsigned char)(channel >> 8), (unsigned char)channel };
	uint32_t size = htobe32((uint32_t)len);

	memcpy(head + 3, &size, 4);
	return fake_write(connection, head, sizeof(head)) || fake_write(connection, payload, len) ||
	       fake_write(connection, "\xce", 1);
}

static int fake_method(struct fake_connection *connection, uint16_t channel,
		       amqp_method_number_t id, void *method)
{
	char payload[4096];
	uint32_t number = htobe32(id);
	int len;

	memcpy(payload, &number, 4);
	len = amqp_encode_method(id, method,
				 (amqp_bytes_t){ .len = sizeof(payload) - 4,
						 .bytes = payload + 4 });
	if (len < 0)
		return -1;
	return fake_frame(connection, AMQP_FRAME_METHOD, channel, payload, (size_t)len + 4);
}

/* A message after its method: `header` is the payload of a header frame. */
static int fake_message(struct fake_connection *connection, amqp_method_number_t id, void *method,
			const void *header, size_t header_len, const char *body, size_t len)
{
	return fake_method(connection, 1, id, method) ||
	       fake_frame(connection, AMQP_FRAME_HEADER, 1, header, header_len) ||
	       (len > 0 && fake_frame(connection, AMQP_FRAME_BODY, 1, body, len));
}

static int fake_deliver(struct fake_connection *connection, amqp_bytes_t consumer_tag)
{
	amqp_basic_deliver_t deliver = { .consumer_tag = consumer_tag,
					 .delivery_tag = ++connection->delivery,
					 .exchange = amqp_cstring_bytes("x"),
					 .routing_key = amqp_cstring_bytes("y") };
	/* Class 60, weight 0, four bytes of body, no properties. */
	static const char header[14] = { 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0 };

	return fake_message(connection, AMQP_BASIC_DELIVER_METHOD, &deliver, header, sizeof(header),
			    "bo", 2) ||
	       fake_frame(connection, AMQP_FRAME_BODY, 1, "dy", 2);
}

static int fake_publish_answer(struct fake_connection *connection)
{
	int n = atomic_fetch_add(&connection->broker->published, 1);
	amqp_basic_ack_t ack = { .delivery_tag = ++connection->tag };
	amqp_basic_nack_t nack = { .delivery_tag = connection->tag };
	amqp_basic_return_t returned = { .reply_code = 312,
					 .reply_text = amqp_cstring_bytes("NO_ROUTE"),
					 .exchange = amqp_cstring_bytes("x"),
					 .routing_key = amqp_cstring_bytes("y") };
	amqp_connection_blocked_t blocked = { .reason = amqp_cstring_bytes("low on memory") };
	amqp_connection_unblocked_t unblocked = { 0 };
	static const char body[1] = "b";
	amqp_basic_cancel_t cancel = { .consumer_tag = amqp_cstring_bytes("c") };
	amqp_queue_purge_t purge = { 0 };

	switch (connection->broker->plan[n % FAKE_PLAN_MAX]) {
	case FAKE_ACK:
		break;
	case FAKE_ACK_ALL:
		ack.multiple = 1;
		break;
	case FAKE_NACK:
		return fake_method(connection, 1, AMQP_BASIC_NACK_METHOD, &nack);
	case FAKE_RETURN: /* then acks, as RabbitMQ does */
		if (fake_message(connection, AMQP_BASIC_RETURN_METHOD, &returned,
				 connection->header, connection->header_len, body, sizeof(body)))
			return -1;
		break;
	case FAKE_RETURN_WITHOUT_BODY:
		memset(connection->header + 4, 0, 8);
		if (fake_message(connection, AMQP_BASIC_RETURN_METHOD, &returned,
				 connection->header, connection->header_len, body, 0))
			return -1;
		break;
	case FAKE_HANG_UP:
		return -1;
	case FAKE_SILENCE:
		return 0;
	case FAKE_BLOCK: /* for a moment */
		if (fake_method(connection, 0, AMQP_CONNECTION_BLOCKED_METHOD, &blocked))
			return -1;
		usleep(300000);
		if (fake_method(connection, 0, AMQP_CONNECTION_UNBLOCKED_METHOD, &unblocked))
			return -1;
		break;
	case FAKE_BODY_FIRST:
		return fake_frame(connection, AMQP_FRAME_BODY, 1, body, sizeof(body));
	case FAKE_HEADER_FIRST:
		return fake_frame(connection, AMQP_FRAME_HEADER, 1, connection->header,
				  connection->header_len);
	case FAKE_TWO_HEADERS:
		return fake_message(connection, AMQP_BASIC_RETURN_METHOD, &returned,
				    connection->header, connection->header_len, body, 0) ||
		       fake_frame(connection, AMQP_FRAME_HEADER, 1, connection->header,
				  connection->header_len);
	case FAKE_NO_HEADER:
		return fake_method(connection, 1, AMQP_BASIC_RETURN_METHOD, &returned) ||
		       fake_frame(connection, AMQP_FRAME_BODY, 1, body, sizeof(body));
	case FAKE_TWO_METHODS:
		return fake_method(connection, 1, AMQP_BASIC_RETURN_METHOD, &returned) ||
		       fake_method(connection, 1, AMQP_BASIC_ACK_METHOD, &ack);
	case FAKE_CANCEL:
		return fake_method(connection, 1, AMQP_BASIC_CANCEL_METHOD, &cancel);
	case FAKE_UNEXPECTED:
		return fake_method(connection, 1, AMQP_QUEUE_PURGE_METHOD, &purge);
	}
	return fake_method(connection, 1, AMQP_BASIC_ACK_METHOD, &ack);
}

static int fake_exchange_answer(struct fake_connection *connection,
				const amqp_exchange_declare_t *declare)
{
	amqp_exchange_declare_ok_t ok = { 0 };

	atomic_fetch_add(&connection->broker->declared, 1);
	if (connection->broker->refuses)
		return -1;
	return declare->nowait ? 0
			       : fake_method(connection, 1, AMQP_EXCHANGE_DECLARE_OK_METHOD, &ok);
}

static int fake_queue_answer(struct fake_connection *connection,
			     const amqp_queue_declare_t *declare)
{
	amqp_queue_declare_ok_t ok = { .queue = declare->queue };
	amqp_channel_close_t refusal = { .reply_code = AMQP_PRECONDITION_FAILED,
					 .reply_text = amqp_cstring_bytes("PRECONDITION_FAILED") };

	amqp_channel_close_t absence = { .reply_code = AMQP_NOT_FOUND,
					 .reply_text = amqp_cstring_bytes("NOT_FOUND") };

	if (declare->passive && connection->broker->lacks)
		return fake_method(connection, 1, AMQP_CHANNEL_CLOSE_METHOD, &absence);
	atomic_fetch_add(&connection->broker->declared, !declare->passive);
	if (connection->broker->differs && !declare->passive)
		return fake_method(connection, 1, AMQP_CHANNEL_CLOSE_METHOD, &refusal);
	return declare->nowait ? 0 : fake_method(connection, 1, AMQP_QUEUE_DECLARE_OK_METHOD, &ok);
}

static int fake_consume_answer(struct fake_connection *connection,
			       const amqp_basic_consume_t *consume)
{
	amqp_basic_consume_ok_t ok = { .consumer_tag = consume->consumer_tag };

	if (consume->no_ack != (connection->prefetch == 0))
		return -1;
	return fake_method(connection, 1, AMQP_BASIC_CONSUME_OK_METHOD, &ok) ||
	       (connection->broker->delivers && fake_deliver(connection, consume->consumer_tag));
}

static int fake_method_answer(struct fake_connection *connection, amqp_method_number_t id,
			      void *decoded)
{
	amqp_connection_tune_t tune = { .channel_max = 16, .frame_max = FAKE_FRAME_MAX };
	amqp_connection_open_ok_t open_ok = { 0 };
	amqp_channel_open_ok_t channel_ok = { 0 };
	amqp_confirm_select_ok_t select_ok = { 0 };
	amqp_queue_bind_ok_t bind_ok = { 0 };
	amqp_basic_qos_ok_t qos_ok = { 0 };
	amqp_basic_cancel_ok_t cancel_ok = { .consumer_tag = amqp_cstring_bytes("c") };
	amqp_connection_close_ok_t close_ok = { 0 };

	switch (id) {
	case AMQP_CONNECTION_START_OK_METHOD:
		return fake_method(connection, 0, AMQP_CONNECTION_TUNE_METHOD, &tune);
	case AMQP_CONNECTION_OPEN_METHOD:
		return fake_method(connection, 0, AMQP_CONNECTION_OPEN_OK_METHOD, &open_ok);
	case AMQP_CHANNEL_OPEN_METHOD:
		return fake_method(connection, 1, AMQP_CHANNEL_OPEN_OK_METHOD, &channel_ok);
	case AMQP_CONFIRM_SELECT_METHOD:
		return fake_method(connection, 1, AMQP_CONFIRM_SELECT_OK_METHOD, &select_ok);
	case AMQP_EXCHANGE_DECLARE_METHOD:
		return fake_exchange_answer(connection, decoded);
	case AMQP_QUEUE_DECLARE_METHOD:
		return fake_queue_answer(connection, decoded);
	case AMQP_QUEUE_BIND_METHOD:
		atomic_fetch_add(&connection->broker->bound, 1);
		return ((const amqp_queue_bind_t *)decoded)->nowait
			       ? 0
			       : fake_method(connection, 1, AMQP_QUEUE_BIND_OK_METHOD, &bind_ok);
	case AMQP_BASIC_QOS_METHOD:
		if (((const amqp_basic_qos_t *)decoded)->global)
			atomic_fetch_add(&connection->broker->global, 1);
		connection->prefetch = ((const amqp_basic_qos_t *)decoded)->prefetch_count;
		atomic_fetch_add(&connection->broker->prefetch_sum, connection->prefetch);
		return fake_method(connection, 1, AMQP_BASIC_QOS_OK_METHOD, &qos_ok);
	case AMQP_BASIC_CONSUME_METHOD:
		return fake_consume_answer(connection, decoded);
	case AMQP_BASIC_CANCEL_METHOD:
		atomic_fetch_add(&connection->broker->cancelled, 1);
		return fake_method(connection, 1, AMQP_BASIC_CANCEL_OK_METHOD, &cancel_ok);
	case AMQP_CONNECTION_CLOSE_METHOD:
		fake_method(connection, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &close_ok);
		return -1;
	default: /* tune-ok, acks, the method of a publish */
		return 0;
	}
}

static void fake_header_take(struct fake_connection *connection, const char *payload, size_t len)
{
	uint64_t size;

	free(connection->header);
	connection->header = malloc(len);
	memcpy(connection->header, payload, len);
	connection->header_len = len;
	memcpy(&size, payload + 4, 8);
	connection->body_left = be64toh(size);
	/* Returned messages have a body of one byte. */
	size = htobe64(1);
	memcpy(connection->header + 4, &size, 8);
	connection->broker->tagged += (payload[12] & 0x20) != 0;
}

/* 0, or -1: the connection ends. */
static int fake_frame_take(struct fake_connection *connection)
{
	char *payload = connection->payload;
	unsigned char head[7];
	uint32_t size;
	void *decoded;

	if (fake_read(connection, head, sizeof(head)))
		return -1;
	memcpy(&size, head + 3, 4);
	size = be32toh(size);
	if (size + 1 > FAKE_FRAME_MAX || fake_read(connection, payload, size + 1))
		return -1;
	if (head[0] == AMQP_FRAME_METHOD) {
		uint32_t id;

		memcpy(&id, payload, 4);
		id = be32toh(id);
		recycle_amqp_pool(&connection->pool);
		if (amqp_decode_method(id, &connection->pool,
				       (amqp_bytes_t){ .len = size - 4, .bytes = payload + 4 },
				       &decoded))
			return -1;
		return fake_method_answer(connection, id, decoded);
	}
	if (head[0] == AMQP_FRAME_HEADER)
		fake_header_take(connection, payload, size);
	else if (head[0] == AMQP_FRAME_BODY)
		connection->body_left -= size;
	else
		return 0;
	return connection->body_left == 0 ? fake_publish_answer(connection) : 0;
}

static void *fake_connection_serve(void *data)
{
	struct fake_connection *connection = data;
	amqp_connection_start_t start = { .version_minor = 9,
					  .mechanisms = amqp_cstring_bytes("PLAIN"),
					  .locales = amqp_cstring_bytes("en_US") };
	char protocol[8];

	init_amqp_pool(&connection->pool, 4096);
	if (fake_read(connection, protocol, sizeof(protocol)) == 0 &&
	    fake_method(connection, 0, AMQP_CONNECTION_START_METHOD, &start) == 0)
		while (fake_frame_take(connection) == 0)
			;
	close(connection->fd);
	atomic_fetch_add(&connection->broker->closed, 1);
	empty_amqp_pool(&connection->pool);
	free(connection->header);
	return NULL;
}

static void *fake_main(void *data)
{
	struct fake_broker *broker = data;

	while (!broker->stop && broker->connections < FAKE_CONNECTIONS_MAX) {
		struct pollfd pollfd = { .fd = broker->listener, .events = POLLIN };
		struct fake_connection *connection;

		if (poll(&pollfd, 1, 20) <= 0)
			continue;
		connection = calloc(1, sizeof(*connection));
		connection->broker = broker;
		connection->fd = accept(broker->listener, NULL, NULL);
		/* it is counted before the client can know that it is open */
		broker->list[atomic_fetch_add(&broker->connections, 1)] = connection;
		if (connection->fd < 0 ||
		    pthread_create(&connection->thread, NULL, fake_connection_serve, connection))
			abort();
	}
	return NULL;
}

/* `broker` is all zero except `plan` and `delivers`. Writes its URL. 0, or -1. */
static int fake_broker_start(struct fake_broker *broker, char url[64])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);

	broker->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (broker->listener < 0 ||
	    bind(broker->listener, (struct sockaddr *)(void *)&address, len) ||
	    getsockname(broker->listener, (struct sockaddr *)(void *)&address, &len) ||
	    listen(broker->listener, 16))
		return -1;
	snprintf(url, 64, "amqp://guest:guest@127.0.0.1:%d/%%2f", ntohs(address.sin_port));
	return pthread_create(&broker->thread, NULL, fake_main, broker);
}

static void fake_broker_stop(struct fake_broker *broker)
{
	broker->stop = 1;
	pthread_join(broker->thread, NULL);
	for (int i = 0; i < broker->connections; i++) {
		pthread_join(broker->list[i]->thread, NULL);
		free(broker->list[i]);
	}
	close(broker->listener);
}
