/*
 * couponctl dead requeue. Each message is published anew, and taken out of the dead-letter queue
 * only when RabbitMQ has confirmed it: ended in between, it is in both queues, which settlement
 * makes harmless; it is never in neither.
 *
 *	coupon.receive.dead ──take, un-acked──▶ round ──publish, mandatory──▶ coupon.topic
 *	        ▲                                 │ ◀──────── confirm ────────────┘
 *	        └────────────── ack ──────────────┘
 *
 * Two connections: on one channel a confirm could come between a message's frames.
 */
#include "common/rabbit/connection.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/rabbit/confirm.h"
#include "common/log.h"
#include "ctl/dead/walk.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ROUND 64 /* messages looked at between two waits for confirms */
#define CONFIRM_TIMEOUT_MS 10000
#define STUCK_S 20 /* a publish that hangs is cut: the broker may stop reading */

struct requeue {
	struct dead_walk walk;
	amqp_connection_state_t link;
	struct confirm_window *window;
	uint64_t tags[ROUND]; /* of the dead letters published in this round */
	size_t tags_n;
	int64_t moved;
	const char *failure; /* NULL: none yet */
};

static volatile sig_atomic_t stuck_fd;

static void on_alarm(int number)
{
	(void)number;
	shutdown(stuck_fd, SHUT_RDWR);
}

static void letter_confirmed(void *context, void *item, enum confirm_result result)
{
	struct requeue *requeue = context;

	/* After a return nothing in this round is trusted: it tells not which message it was. */
	if (requeue->failure || result == CONFIRM_LOST)
		return;
	if (result != CONFIRM_DONE) {
		requeue->failure = "RabbitMQ refused a message";
		return;
	}
	dead_queue_remove(requeue->walk.queue, *(const uint64_t *)item);
	requeue->moved++;
}

static void letter_publish(struct requeue *requeue, const struct dead_letter *letter)
{
	/* What workers and gateways use. The headers told of the first death, and go. */
	static const amqp_flags_t kept = AMQP_BASIC_CONTENT_TYPE_FLAG |
					 AMQP_BASIC_CONTENT_ENCODING_FLAG |
					 AMQP_BASIC_CORRELATION_ID_FLAG |
					 AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG;
	amqp_basic_properties_t properties = letter->raw.properties;
	int status;

	properties._flags = (properties._flags & kept) | AMQP_BASIC_DELIVERY_MODE_FLAG;
	properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
	requeue->tags[requeue->tags_n] = letter->tag;
	confirm_push(requeue->window, &requeue->tags[requeue->tags_n++]);
	status = amqp_basic_publish(requeue->link, AMQP_LINK_CHANNEL,
				    amqp_cstring_bytes(AMQP_EXCHANGE),
				    amqp_cstring_bytes(AMQP_ROUTING_KEY), 1, 0, &properties,
				    letter->raw.body);
	if (status != AMQP_STATUS_OK)
		requeue->failure = amqp_error_string2(status);
}

static void returned_read(struct requeue *requeue)
{
	amqp_message_t message;

	requeue->failure =
		"no queue took a message: start a coupon-worker, which declares " AMQP_QUEUE;
	if (amqp_read_message(requeue->link, AMQP_LINK_CHANNEL, &message, 0).reply_type ==
	    AMQP_RESPONSE_NORMAL)
		amqp_destroy_message(&message);
}

static void frame_take(struct requeue *requeue, const amqp_frame_t *frame)
{
	const amqp_basic_ack_t *ack;
	const amqp_basic_nack_t *nack;

	if (frame->frame_type != AMQP_FRAME_METHOD)
		return;
	switch (frame->payload.method.id) {
	case AMQP_BASIC_ACK_METHOD:
		ack = frame->payload.method.decoded;
		confirm_settle(requeue->window, ack->delivery_tag, ack->multiple, CONFIRM_DONE);
		return;
	case AMQP_BASIC_NACK_METHOD:
		nack = frame->payload.method.decoded;
		confirm_settle(requeue->window, nack->delivery_tag, nack->multiple, CONFIRM_NACKED);
		return;
	case AMQP_BASIC_RETURN_METHOD:
		returned_read(requeue);
		return;
	case AMQP_CONNECTION_BLOCKED_METHOD:
		requeue->failure = "RabbitMQ takes no messages: it has an alarm for memory or disk";
		return;
	case AMQP_CHANNEL_CLOSE_METHOD:
	case AMQP_CONNECTION_CLOSE_METHOD:
		requeue->failure = "RabbitMQ closed the connection";
		return;
	default:
		return;
	}
}

/*
 * Takes frames until all is confirmed, and at least those that are there: heartbeats run inside
 * these calls only.
 */
static void round_finish(struct requeue *requeue)
{
	int64_t until_ms = clock_monotonic_ms() + CONFIRM_TIMEOUT_MS;
	int status = AMQP_STATUS_OK;

	while (!requeue->failure && status == AMQP_STATUS_OK) {
		int waiting = confirm_open(requeue->window) > 0;
		int64_t left_ms = until_ms - clock_monotonic_ms();
		struct timeval wait = { 0 };
		amqp_frame_t frame;

		if (waiting && left_ms > 0)
			wait = (struct timeval){ left_ms / 1000, left_ms % 1000 * 1000 };
		status = amqp_simple_wait_frame_noblock(requeue->link, &frame, &wait);
		if (status == AMQP_STATUS_OK)
			frame_take(requeue, &frame);
		else if (status != AMQP_STATUS_TIMEOUT)
			requeue->failure = amqp_error_string2(status);
		else if (waiting)
			requeue->failure = "RabbitMQ does not confirm";
	}
	amqp_maybe_release_buffers(requeue->link);
	requeue->tags_n = 0;
}

/* 1 when there is more. */
static int round_run(struct requeue *requeue)
{
	static struct dead_letter letter;
	enum dead_step step = DEAD_STEP_PASSED;

	for (int i = 0; i < ROUND && step != DEAD_STEP_END && !requeue->failure; i++) {
		step = dead_walk_step(&requeue->walk, &letter);
		if (step != DEAD_STEP_CHOSEN)
			continue;
		alarm(STUCK_S);
		letter_publish(requeue, &letter);
		alarm(0);
		dead_letter_fini(&letter);
	}
	if (!requeue->failure)
		round_finish(requeue);
	return step != DEAD_STEP_END && !requeue->failure;
}

static int requeue_run(struct ctl *ctl)
{
	char error[AMQP_LINK_ERROR_SIZE];
	struct requeue requeue = { 0 };

	dead_choice_read_many(&requeue.walk.choice, ctl);
	dead_walk_begin(&requeue.walk, ctl);
	requeue.link = amqp_link_open(ctl->config.amqp_url, 1, error);
	if (!requeue.link)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be reached: %s", error);
	stuck_fd = amqp_get_sockfd(requeue.link);
	signal(SIGALRM, on_alarm);
	requeue.window = confirm_new(letter_confirmed, &requeue);
	while (round_run(&requeue))
		;
	confirm_free(requeue.window);
	if (requeue.failure)
		amqp_link_drop(requeue.link);
	else
		amqp_link_close(requeue.link);
	dead_walk_end(&requeue.walk);
	if (!requeue.failure)
		dead_walk_check_found(&requeue.walk);
	printf("%" PRId64 " message%s requeued\n", requeue.moved, requeue.moved == 1 ? "" : "s");
	if (!requeue.failure)
		return 0;
	fprintf(stderr, "couponctl: %s; what was not confirmed is still in %s\n", requeue.failure,
		AMQP_DEAD_QUEUE);
	return 1;
}

static const struct option requeue_options[] = {
	SWITCH("all", "all that are there when it begins"),
	OPTION("limit", "N", "the N oldest"),
	OPTIONS_END,
};

const struct command dead_requeue_command = {
	.name = "dead requeue",
	.run = requeue_run,
	.argument = "[N|BATCH]",
	.options = requeue_options,
	.summary = "send dead letters to the workers once more",
	.detail = "Mend first what made them fail, or they come back. A message leaves the "
		  "dead-letter queue only when RabbitMQ has\n"
		  "confirmed its copy: ended half-way it may be in both, which changes nothing, "
		  "since a receive is settled once.",
};
