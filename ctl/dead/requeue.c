/*
 * couponctl dead requeue. Publishes a copy of each message, and removes the original from the
 * dead-letter queue after RabbitMQ has confirmed the copy. After an interruption in between the
 * message is in both queues, never in neither; settling it twice changes nothing. Before the
 * publish its mark in Redis is removed, so that the keeper sends it again if RabbitMQ loses it.
 *
 *	coupon.receive.dead ──take, un-acked──▶ round ──publish, mandatory──▶ coupon.topic
 *	        ▲                                 │ ◀──────── confirm ────────────┘
 *	        └────────────── ack ──────────────┘
 *
 * Two connections: one takes messages with basic.get, which blocks, the other publishes.
 */
#include "common/log/log.h"
#include "common/rabbit/publisher.h"
#include "ctl/dead/outbox.h"
#include "ctl/dead/walk.h"

#include <inttypes.h>
#include <stdio.h>

#define ROUND 64 /* messages taken between two waits for confirms */
#define CONFIRM_TIMEOUT_MS 10000

struct requeue {
	struct dead_walk walk;
	struct dead_outbox outbox;
	struct rabbit_sender *sender;
	uint64_t tags[ROUND]; /* of the dead letters published in this round */
	size_t tags_n;
	int64_t moved;
	int is_adopted;      /* the id of the installation is dropped */
	const char *failure; /* NULL: none */
};

static void letter_done(void *context, void *item, enum confirm_result result)
{
	struct requeue *requeue = context;

	switch (result) {
	case CONFIRM_DONE:
		dead_queue_remove(requeue->walk.queue, *(const uint64_t *)item);
		requeue->moved++;
		return;
	case CONFIRM_NACKED:
		requeue->failure = "RabbitMQ refused a message";
		return;
	case CONFIRM_RETURNED:
		requeue->failure = "no queue took a message: start a coupon-worker, which "
				   "declares " AMQP_QUEUE;
		return;
	case CONFIRM_LOST: /* rabbit_sender_wait() returns why */
		return;
	}
}

static void letter_publish(struct requeue *requeue, const struct dead_letter *letter)
{
	/* The properties that programs use. Headers are dropped: they describe the first death. */
	static const amqp_flags_t kept = AMQP_BASIC_CONTENT_TYPE_FLAG |
					 AMQP_BASIC_CONTENT_ENCODING_FLAG |
					 AMQP_BASIC_CORRELATION_ID_FLAG |
					 AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG;
	amqp_basic_properties_t properties = letter->raw.properties;
	uint64_t *tag = &requeue->tags[requeue->tags_n++];

	*tag = letter->tag;
	properties._flags &= kept | (requeue->is_adopted ? 0 : AMQP_BASIC_APP_ID_FLAG);
	rabbit_sender_send(requeue->sender, AMQP_EXCHANGE, AMQP_ROUTING_KEY, &properties,
			   letter->raw.body, tag);
}

/* 1 when there are more. */
static int round_run(struct requeue *requeue)
{
	static struct dead_letter letter;
	enum dead_step step = DEAD_STEP_PASSED;
	const char *trouble;

	requeue->tags_n = 0;
	for (int i = 0; i < ROUND && step != DEAD_STEP_END; i++) {
		step = dead_walk_step(&requeue->walk, &letter);
		if (step != DEAD_STEP_CHOSEN)
			continue;
		dead_outbox_unmark(&requeue->outbox, &letter);
		letter_publish(requeue, &letter);
		dead_letter_fini(&letter);
	}
	trouble = rabbit_sender_wait(requeue->sender, CONFIRM_TIMEOUT_MS);
	if (!requeue->failure)
		requeue->failure = trouble;
	return step != DEAD_STEP_END && !requeue->failure;
}

static int requeue_run(struct ctl *ctl)
{
	char error[RABBIT_ERROR_SIZE];
	struct requeue requeue = { .outbox.ctl = ctl, .is_adopted = args_has(&ctl->args, "adopt") };

	dead_choice_read_many(&requeue.walk.choice, ctl);
	dead_walk_begin(&requeue.walk, ctl);
	requeue.sender = rabbit_sender_open(ctl->config.amqp_url, letter_done, &requeue, error);
	if (!requeue.sender)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be reached: %s", error);
	while (round_run(&requeue))
		;
	if (requeue.failure)
		fprintf(stderr, "couponctl: %s; what was not confirmed is still in %s\n",
			requeue.failure, AMQP_DEAD_QUEUE);
	rabbit_sender_close(requeue.sender);
	dead_outbox_close(&requeue.outbox);
	dead_walk_end(&requeue.walk);
	if (!requeue.failure)
		dead_walk_check_found(&requeue.walk);
	printf("%" PRId64 " message%s requeued\n", requeue.moved, requeue.moved == 1 ? "" : "s");
	return requeue.failure ? 1 : 0;
}

static const struct option requeue_options[] = {
	SWITCH("all", "all messages that are in the queue at the start"),
	OPTION("limit", "N", "the N oldest messages"),
	SWITCH("adopt", "as messages of this installation, whichever they are of"),
	OPTIONS_END,
};

const struct command dead_requeue_command = {
	.name = "dead requeue",
	.run = requeue_run,
	.argument = "[N|BATCH]",
	.options = requeue_options,
	.summary = "publish dead letters to the workers again",
	.detail = "First repair what made them fail, or they return. A message leaves the\n"
		  "dead-letter queue only after RabbitMQ has confirmed its copy. After an\n"
		  "interruption it may be in both queues, which changes nothing: a receive is\n"
		  "settled once.",
};
