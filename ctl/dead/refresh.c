#include "ctl/dead/refresh.h"

#include "common/clock.h"
#include "common/log/log.h"
#include "common/rabbit/copy.h"
#include "common/rabbit/sender.h"

#include <inttypes.h>

#define ROUND 64 /* messages taken between two waits for confirms */
#define CONFIRM_TIMEOUT_MS 30000

struct refresh {
	amqp_connection_state_t connection;
	struct rabbit_sender *sender;
	uint64_t tag; /* the last one taken */
	const char *failure;
};

static void failure_check(const char *failure)
{
	if (failure)
		log_fatal("RabbitMQ, queue %s: %s", AMQP_DEAD_QUEUE, failure);
}

static void reply_check(amqp_rpc_reply_t reply)
{
	char error[RABBIT_ERROR_SIZE];

	failure_check(rabbit_reply_check(reply, error) ? error : NULL);
}

static void copy_done(void *context, void *item, enum confirm_result result)
{
	struct refresh *refresh = context;

	(void)item;
	if (result != CONFIRM_DONE)
		refresh->failure = "it does not take a message";
}

/* 1, or 0 when the queue is empty. */
static int take(struct refresh *refresh, amqp_message_t *message)
{
	amqp_rpc_reply_t reply;

	amqp_maybe_release_buffers(refresh->connection);
	reply = amqp_basic_get(refresh->connection, RABBIT_CHANNEL,
			       amqp_cstring_bytes(AMQP_DEAD_QUEUE), 0);
	reply_check(reply);
	if (reply.reply.id != AMQP_BASIC_GET_OK_METHOD)
		return 0;
	refresh->tag = ((const amqp_basic_get_ok_t *)reply.reply.decoded)->delivery_tag;
	reply_check(amqp_read_message(refresh->connection, RABBIT_CHANNEL, message, 0));
	return 1;
}

static void copy_publish(struct refresh *refresh, amqp_message_t *message)
{
	struct rabbit_copy copy;

	rabbit_copy_init(&copy, &message->properties);
	rabbit_sender_send(refresh->sender, "", AMQP_DEAD_QUEUE, &copy.properties, message->body,
			   refresh);
	amqp_destroy_message(message);
}

/* Removes the originals when all copies are confirmed. */
static void round_end(struct refresh *refresh)
{
	const char *trouble = rabbit_sender_wait(refresh->sender, CONFIRM_TIMEOUT_MS);

	failure_check(trouble ? trouble : refresh->failure);
	if (amqp_basic_ack(refresh->connection, RABBIT_CHANNEL, refresh->tag, 1) != AMQP_STATUS_OK)
		failure_check("the connection is lost");
}

/* `message` is the oldest of `length`, and is taken. The order stays the same. */
static void all_refresh(struct refresh *refresh, const char *url, amqp_message_t *message,
			int64_t length)
{
	char error[RABBIT_ERROR_SIZE];
	int64_t n = 0;

	refresh->sender = rabbit_sender_open(url, copy_done, refresh, error);
	if (!refresh->sender)
		failure_check(error);
	do {
		copy_publish(refresh, message);
		if (++n % ROUND == 0)
			round_end(refresh);
	} while (n < length && take(refresh, message));
	if (n % ROUND != 0)
		round_end(refresh);
	rabbit_sender_close(refresh->sender);
}

void dead_refresh(const char *url)
{
	struct refresh refresh = { 0 };
	int64_t length, consumers;
	char error[RABBIT_ERROR_SIZE];
	amqp_message_t message;

	refresh.connection = rabbit_connection_open(url, 0, error);
	if (!refresh.connection)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be reached: %s", error);
	if (rabbit_connection_queue_read(refresh.connection, AMQP_DEAD_QUEUE, &length, &consumers,
					 error))
		failure_check(error);
	if (length > 0 && take(&refresh, &message))
		all_refresh(&refresh, url, &message, length);
	reply_check(amqp_channel_close(refresh.connection, RABBIT_CHANNEL, AMQP_REPLY_SUCCESS));
	rabbit_connection_close(refresh.connection);
}
