#include "ctl/rabbit.h"

#include "common/rabbit/connection.h"
#include "common/check.h"

#include <amqp_framing.h>
#include <stdlib.h>

struct broker {
	const char *url;
	amqp_connection_state_t link; /* NULL: not connected */
	char error[AMQP_LINK_ERROR_SIZE];
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
	amqp_link_close(broker->link);
	free(broker);
}

const char *broker_error(const struct broker *broker)
{
	return broker->error;
}

static int is_not_found(amqp_rpc_reply_t reply)
{
	return reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
	       reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD &&
	       ((const amqp_channel_close_t *)reply.reply.decoded)->reply_code == AMQP_NOT_FOUND;
}

/* Passive: looking must not make a queue. 0, or -1; a queue that is not there is empty. */
static int queue_ask(struct broker *broker, const char *queue, int64_t *ready, int64_t *consumers)
{
	const amqp_queue_declare_ok_t *declared;
	amqp_rpc_reply_t reply;
	int missing;

	*ready = *consumers = 0;
	if (!broker->link)
		broker->link = amqp_link_open(broker->url, 0, broker->error);
	if (!broker->link)
		return -1;
	declared = amqp_queue_declare(broker->link, AMQP_LINK_CHANNEL, amqp_cstring_bytes(queue), 1,
				      0, 0, 0, amqp_empty_table);
	reply = amqp_get_rpc_reply(broker->link);
	if (amqp_link_result(reply, broker->error) == 0) {
		*ready = declared->message_count;
		*consumers = declared->consumer_count;
		amqp_maybe_release_buffers(broker->link);
		return 0;
	}
	/* The channel has ended with it, or the connection. */
	missing = is_not_found(reply);
	amqp_link_drop(broker->link);
	broker->link = NULL;
	return missing ? 0 : -1;
}

void broker_look(struct broker *broker, struct broker_look *look)
{
	int64_t parked, parked_consumers, none;

	look->ok = queue_ask(broker, AMQP_QUEUE, &look->ready, &look->consumers) == 0 &&
		   queue_ask(broker, AMQP_PARKED_QUEUE, &parked, &parked_consumers) == 0 &&
		   queue_ask(broker, AMQP_DEAD_QUEUE, &look->dead, &none) == 0;
	if (!look->ok)
		return;
	look->ready += parked;
	look->consumers += parked_consumers;
}
