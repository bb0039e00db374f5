#include "ctl/dead/refresh.h"

#include "common/log/log.h"
#include "common/rabbit/envelope.h"
#include "common/rabbit/publisher.h"
#include "ctl/dead/queue.h"

#define ROUND 64 /* messages taken between two waits for confirms */
#define CONFIRM_TIMEOUT_MS 30000

struct refresh {
	struct dead_queue *queue;
	struct rabbit_sender *sender;
	uint64_t tags[ROUND]; /* of the messages copied in this round */
	size_t tags_n;
	const char *failure;
};

static void failure_check(const char *failure)
{
	if (failure)
		log_fatal("RabbitMQ, queue %s: %s", AMQP_DEAD_QUEUE, failure);
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
	return dead_queue_take(refresh->queue, message, &refresh->tags[refresh->tags_n]);
}

static void copy_publish(struct refresh *refresh, amqp_message_t *message)
{
	struct rabbit_copy copy;

	rabbit_copy_init(&copy, &message->properties);
	rabbit_sender_send(refresh->sender, "", AMQP_DEAD_QUEUE, &copy.properties, message->body,
			   refresh);
	amqp_destroy_message(message);
	refresh->tags_n++;
}

/* Removes the originals when all copies are confirmed. */
static void round_end(struct refresh *refresh)
{
	const char *trouble = rabbit_sender_wait(refresh->sender, CONFIRM_TIMEOUT_MS);

	failure_check(trouble ? trouble : refresh->failure);
	for (size_t i = 0; i < refresh->tags_n; i++)
		dead_queue_remove(refresh->queue, refresh->tags[i]);
	refresh->tags_n = 0;
}

/* `message` is the oldest, and is taken. The order stays the same. */
static void all_refresh(struct refresh *refresh, const char *url, amqp_message_t *message)
{
	char error[RABBIT_ERROR_SIZE];
	int64_t n = 0;

	refresh->sender = rabbit_sender_open(url, copy_done, refresh, error);
	if (!refresh->sender)
		failure_check(error);
	do {
		copy_publish(refresh, message);
		if (refresh->tags_n == ROUND)
			round_end(refresh);
	} while (++n < dead_queue_length(refresh->queue) && take(refresh, message));
	round_end(refresh);
	rabbit_sender_close(refresh->sender);
}

void dead_refresh(const char *url)
{
	struct refresh refresh = { .queue = dead_queue_open(url) };
	amqp_message_t message;

	if (dead_queue_length(refresh.queue) > 0 && take(&refresh, &message))
		all_refresh(&refresh, url, &message);
	dead_queue_close(refresh.queue);
}
