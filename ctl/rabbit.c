#include "ctl/rabbit.h"

#include "common/array.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/rabbit/link.h"
#include "common/rabbit/rabbit_publisher.h"
#include "common/rabbit/topology.h"
#include "ctl/ctl.h"

#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

/* Less than two heartbeats: the other connection sends none meanwhile. */
#define CONFIRM_TIMEOUT_MS 9000
#define RETURN_WAIT_MS 1000
#define RETURN_POLL_US 200
#define HEADERS_MAX 64 /* of a copy: further ones are dropped */

static _Noreturn void unreachable(const char *error)
{
	log_fatal_as(CTL_AWAY, "RabbitMQ, which AMQP_URL names, cannot be reached: %s", error);
}

amqp_connection_state_t rabbit_open(const char *url)
{
	char error[RABBIT_ERROR_SIZE];
	amqp_connection_state_t connection = rabbit_connection_open(url, 0, error);

	if (!connection)
		unreachable(error);
	return connection;
}

int rabbit_queue_try(amqp_connection_state_t connection, const char *queue, int64_t *ready,
		     int64_t *consumers, char error[RABBIT_ERROR_SIZE])
{
	const amqp_queue_declare_ok_t *declared = amqp_queue_declare(connection, RABBIT_CHANNEL,
								     amqp_cstring_bytes(queue), 1,
								     0, 0, 0, amqp_empty_table);
	amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);

	*ready = *consumers = 0;
	if (rabbit_reply_check(reply, error) == 0) {
		*ready = declared->message_count;
		*consumers = declared->consumer_count;
		amqp_maybe_release_buffers(connection);
		return 1;
	}
	if (rabbit_reply_code(reply) != AMQP_NOT_FOUND ||
	    rabbit_channel_reopen(connection, 0, clock_monotonic_ms() + 1000 * RABBIT_TIMEOUT_S,
				  error))
		return -1;
	rabbit_time_restore(connection);
	return 0;
}

int rabbit_queue_find(amqp_connection_state_t connection, const char *queue, int64_t *ready,
		      int64_t *consumers)
{
	char error[RABBIT_ERROR_SIZE];
	int found = rabbit_queue_try(connection, queue, ready, consumers, error);

	if (found < 0)
		log_fatal_as(CTL_AWAY, "RabbitMQ, queue %s: %s", queue, error);
	return found;
}

/*
 * As rabbit_queue_try(). If the leader of a queue does not answer, RabbitMQ reports the queue as
 * empty and without consumers: so such a queue is asked for a message, which returns to the queue.
 */
static int queue_look(amqp_connection_state_t connection, const char *queue, int64_t *ready,
		      int64_t *consumers, char error[RABBIT_ERROR_SIZE])
{
	int found = rabbit_queue_try(connection, queue, ready, consumers, error);
	amqp_rpc_reply_t reply;
	amqp_message_t message;
	uint64_t tag;

	if (found != 1 || *ready > 0 || *consumers > 0)
		return found;
	reply = amqp_basic_get(connection, RABBIT_CHANNEL, amqp_cstring_bytes(queue), 0);
	if (rabbit_reply_check(reply, error))
		return -1;
	if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
		return 1;
	tag = ((const amqp_basic_get_ok_t *)reply.reply.decoded)->delivery_tag;
	if (rabbit_reply_check(amqp_read_message(connection, RABBIT_CHANNEL, &message, 0), error))
		return -1;
	amqp_destroy_message(&message);
	amqp_basic_nack(connection, RABBIT_CHANNEL, tag, 0, 1);
	*ready = 1;
	return 1;
}

/* A queue that does not exist is empty. */
void broker_look(struct broker *broker, struct broker_look *look)
{
	static const struct {
		const char *name;
		int is_dead, is_consumed;
	} queues[] = {
		{ AMQP_QUEUE, 0, 1 },
		{ AMQP_PARKED_QUEUE, 0, 1 },
		{ AMQP_DEAD_QUEUE, 1, 0 },
		{ AMQP_PARKED_QUEUE AMQP_MOVING_SUFFIX, 0, 0 },
		{ AMQP_DEAD_QUEUE AMQP_MOVING_SUFFIX, 1, 0 },
	};

	if (!broker->connection)
		broker->connection = rabbit_connection_open(broker->url, 0, broker->error);
	*look = (struct broker_look){ .ok = broker->connection != NULL };
	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]) && look->ok; i++) {
		int64_t ready = 0, consumers = 0;

		look->ok = queue_look(broker->connection, queues[i].name, &ready, &consumers,
				      broker->error) >= 0;
		*(queues[i].is_dead ? &look->dead : &look->ready) += ready;
		look->consumers += queues[i].is_consumed ? consumers : 0;
	}
	if (look->ok)
		return;
	amqp_destroy_connection(broker->connection);
	broker->connection = NULL;
}

static void reply_check(const struct hold *hold, amqp_rpc_reply_t reply)
{
	char error[RABBIT_ERROR_SIZE];

	if (rabbit_reply_check(reply, error))
		log_fatal_as(CTL_AWAY, "RabbitMQ, queue %s: %s", hold->queue, error);
}

static void status_check(const struct hold *hold, int status)
{
	if (status != AMQP_STATUS_OK)
		log_fatal_as(CTL_AWAY, "RabbitMQ, queue %s: %s", hold->queue,
			     rabbit_status_text(status));
}

static int64_t length_read(const struct hold *hold)
{
	int64_t ready, consumers;

	if (!rabbit_queue_find(hold->connection, hold->queue, &ready, &consumers))
		log_fatal_as(CTL_AWAY, "RabbitMQ, queue %s: it does not exist", hold->queue);
	return ready;
}

struct hold *hold_open(const char *url, const char *queue, int consumes, const char *unroutable)
{
	struct hold *hold = checked(malloc(sizeof(*hold)));

	*hold = (struct hold){
		.url = url, .queue = queue, .unroutable = unroutable, .consumes = consumes
	};
	hold->connection = rabbit_open(url);
	hold->length = length_read(hold);
	if (!consumes)
		return hold;
	amqp_basic_qos(hold->connection, RABBIT_CHANNEL, 0, HOLD_ROUND, 0);
	reply_check(hold, amqp_get_rpc_reply(hold->connection));
	amqp_basic_consume(hold->connection, RABBIT_CHANNEL, amqp_cstring_bytes(queue),
			   amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
	reply_check(hold, amqp_get_rpc_reply(hold->connection));
	return hold;
}

void hold_close(struct hold *hold)
{
	if (hold->sender) {
		rabbit_publisher_close(hold->sender);
		rabbit_publisher_free(hold->sender);
	}

	/*
	 * Messages return one by one, each after the one before is back in the queue: RabbitMQ 3.10
	 * loses the order of messages that return at once. The wait is limited, because another
	 * consumer may take them.
	 */
	if (hold->held > 0 && hold->taken <= HOLD_ORDER_MAX) {
		int64_t until_ms = clock_monotonic_ms() + RETURN_WAIT_MS;
		int64_t wanted = length_read(hold), length;

		for (uint64_t tag = 1; tag <= hold->taken; tag++) {
			if (!hold->is_held[tag])
				continue;
			status_check(hold,
				     amqp_basic_nack(hold->connection, RABBIT_CHANNEL, tag, 0, 1));
			wanted++;
			while ((length = length_read(hold)) < wanted &&
			       clock_monotonic_ms() < until_ms)
				usleep(RETURN_POLL_US);
			if (length >= wanted)
				until_ms = clock_monotonic_ms() + RETURN_WAIT_MS;
			amqp_maybe_release_buffers(hold->connection);
		}
	}

	/* RabbitMQ confirms the end of the channel after the removals before it. */
	reply_check(hold, amqp_channel_close(hold->connection, RABBIT_CHANNEL, AMQP_REPLY_SUCCESS));
	rabbit_connection_close(hold->connection);
	free(hold->is_held);
	free(hold);
}

int hold_take(struct hold *hold, amqp_message_t *message, uint64_t *tag, int wait_us)
{
	struct timeval wait = { .tv_usec = wait_us };
	amqp_envelope_t envelope;
	amqp_rpc_reply_t reply;

	/* rabbit_sender_wait() sends the heartbeats. What it returns is for hold_confirm(). */
	if (hold->sender)
		(void)rabbit_sender_wait(hold->sender, 0);
	amqp_maybe_release_buffers(hold->connection);

	if (hold->consumes) {
		reply = amqp_consume_message(hold->connection, &envelope, &wait, 0);
		if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
		    reply.library_error == AMQP_STATUS_TIMEOUT)
			return 0;
		reply_check(hold, reply);
		*tag = envelope.delivery_tag;
		*message = envelope.message;
		amqp_bytes_free(envelope.routing_key);
		amqp_bytes_free(envelope.exchange);
		amqp_bytes_free(envelope.consumer_tag);
	} else {
		reply = amqp_basic_get(hold->connection, RABBIT_CHANNEL,
				       amqp_cstring_bytes(hold->queue), 0);
		reply_check(hold, reply);
		if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
			return 0;
		*tag = ((const amqp_basic_get_ok_t *)reply.reply.decoded)->delivery_tag;
		reply_check(hold, amqp_read_message(hold->connection, RABBIT_CHANNEL, message, 0));
	}

	check(*tag == hold->taken + 1);
	hold->is_held = array_room(hold->is_held, *tag, &hold->size, 1);
	hold->is_held[*tag] = 1;
	hold->taken = *tag;
	hold->held++;
	return 1;
}

void hold_remove(struct hold *hold, uint64_t tag)
{
	check(tag >= 1 && tag <= hold->taken && hold->is_held[tag]);
	status_check(hold, amqp_basic_ack(hold->connection, RABBIT_CHANNEL, tag, 0));
	hold->is_held[tag] = 0;
	hold->held--;
}

static void sent_done(void *context, void *item, enum confirm_result result)
{
	struct hold *hold = context;
	struct hold_sent *sent = item;

	switch (result) {
	case CONFIRM_DONE:
		sent->is_confirmed = 1;
		return;
	case CONFIRM_NACKED:
		hold->failure = "RabbitMQ refused a message";
		return;
	case CONFIRM_RETURNED:
		hold->failure = hold->unroutable;
		return;
	case CONFIRM_LOST: /* rabbit_sender_wait() returns why */
		return;
	}
}

void hold_send_begin(struct hold *hold)
{
	static const struct rabbit_publisher_port port = { .done = sent_done };
	char error[RABBIT_ERROR_SIZE];

	if (!hold->sender)
		hold->sender = rabbit_sender_open(hold->url, &port, hold, error);
	if (!hold->sender)
		unreachable(error);
}

void hold_send(struct hold *hold, uint64_t tag, const char *exchange, const char *routing_key,
	       const amqp_basic_properties_t *properties, amqp_bytes_t body)
{
	struct hold_sent *sent;

	check(hold->round_n < HOLD_ROUND);
	hold_send_begin(hold);
	sent = &hold->round[hold->round_n++];
	*sent = (struct hold_sent){ .tag = tag };
	rabbit_sender_send(hold->sender, exchange, routing_key, properties, body, sent);
}

static void message_copy(struct hold *hold, uint64_t tag, const char *queue,
			 const amqp_message_t *message)
{
	static const char *const of_delivery[] = { "x-delivery-count", "x-acquired-count",
						   ENVELOPE_TAG_HEADER };
	amqp_basic_properties_t properties = message->properties;
	const amqp_table_t *from = &message->properties.headers;
	amqp_table_entry_t headers[HEADERS_MAX];
	int n = 0;

	/* RabbitMQ would compare the user with the one that sends the copy. */
	properties._flags &= (amqp_flags_t)~AMQP_BASIC_USER_ID_FLAG;
	if (properties._flags & AMQP_BASIC_HEADERS_FLAG) {
		for (int i = 0; i < from->num_entries && n < HEADERS_MAX; i++) {
			int is_kept = 1;

			for (size_t j = 0; j < sizeof(of_delivery) / sizeof(of_delivery[0]); j++)
				is_kept &= !rabbit_text_is(from->entries[i].key, of_delivery[j]);
			if (is_kept)
				headers[n++] = from->entries[i];
		}
		properties.headers = (amqp_table_t){ .num_entries = n, .entries = headers };
	}
	hold_send(hold, tag, "", queue, &properties, message->body);
}

int hold_is_full(const struct hold *hold)
{
	return hold->round_n == HOLD_ROUND;
}

const char *hold_confirm(struct hold *hold)
{
	const char *trouble = hold->sender ? rabbit_sender_wait(hold->sender, CONFIRM_TIMEOUT_MS)
					   : NULL;

	fault_point(FAULT_MOVE_BEFORE_ACK);
	for (size_t i = 0; i < hold->round_n; i++) {
		if (!hold->round[i].tag || !hold->round[i].is_confirmed)
			continue;
		hold_remove(hold, hold->round[i].tag);
		hold->moved++;
	}
	hold->round_n = 0;
	return hold->failure ? hold->failure : trouble;
}

int hold_copy_round(struct hold *hold, const char *queue, int64_t most, int wait_us,
		    const char **trouble)
{
	amqp_message_t message;
	uint64_t tag;
	int n = 0;

	for (; n < most && !hold_is_full(hold) &&
	       hold_take(hold, &message, &tag, n == 0 ? wait_us : 0);
	     n++) {
		if (message.properties._flags & AMQP_BASIC_TYPE_FLAG &&
		    rabbit_text_is(message.properties.type, RABBIT_LEAVE_TYPE))
			hold_remove(hold, tag);
		else
			message_copy(hold, tag, queue, &message);
		amqp_destroy_message(&message);
	}
	*trouble = n > 0 ? hold_confirm(hold) : NULL;
	return n;
}
