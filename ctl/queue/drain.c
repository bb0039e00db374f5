/*
 *	from ──consume, un-acked──▶ round ──publish, mandatory──▶ to
 *	  ▲                           │ ◀──────── confirm ─────────┘
 *	  └──────────── ack ──────────┘
 *
 * RabbitMQ counts a consumer until it has acked or returned all that it was delivered, also after
 * it was cancelled. So a queue that is empty and has one consumer, this one, has no message that
 * another program holds.
 */
#include "ctl/queue/drain.h"

#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/rabbit/envelope.h"
#include "common/rabbit/publisher.h"
#include "common/rabbit/topology.h"

#include <inttypes.h>
#include <string.h>
#include <sys/time.h>

#define ROUND 256 /* messages taken between two waits for confirms */
#define TAKE_WAIT_US 50000
#define LOOK_EVERY_MS 100
#define LEAVE_EVERY_MS 300 /* a consumer that leaves takes less */
#define CONFIRM_TIMEOUT_MS 30000
#define LEAVE_TTL_MS "10000"

struct drainage {
	const struct drain *drain;
	amqp_connection_state_t consumer;
	struct rabbit_sender *sender;
	const char *failure; /* of a publish; NULL: none */
	int64_t moved;
	uint64_t tag; /* the last one taken */
	/* others have been requested to leave since then; 0: there are none */
	int64_t leave_since_ms;
	int64_t leave_sent_ms; /* the last time */
};

static void copy_done(void *context, void *item, enum confirm_result result)
{
	struct drainage *drainage = context;

	(void)item;
	if (result == CONFIRM_NACKED)
		drainage->failure = "RabbitMQ refused a message";
	else if (result == CONFIRM_RETURNED)
		drainage->failure = "the queue that is to take the messages is gone";
}

static void consumer_open(struct drainage *drainage)
{
	const struct drain *drain = drainage->drain;
	char error[RABBIT_ERROR_SIZE];

	drainage->consumer = rabbit_connection_open(drain->ctl->config.amqp_url, 0, error);
	if (!drainage->consumer)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be reached: %s", error);
	amqp_basic_qos(drainage->consumer, RABBIT_CHANNEL, 0, ROUND, 0);
	if (rabbit_reply_check(amqp_get_rpc_reply(drainage->consumer), error))
		log_fatal("RabbitMQ, queue %s: %s", drain->from, error);
	amqp_basic_consume(drainage->consumer, RABBIT_CHANNEL, amqp_cstring_bytes(drain->from),
			   amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
	if (rabbit_reply_check(amqp_get_rpc_reply(drainage->consumer), error))
		log_fatal("RabbitMQ, queue %s: %s", drain->from, error);
	drainage->sender = rabbit_sender_open(drain->ctl->config.amqp_url, copy_done, drainage,
					      error);
	if (!drainage->sender)
		log_fatal("RabbitMQ, which AMQP_URL names, cannot be reached: %s", error);
}

static int is_text(amqp_bytes_t bytes, const char *text)
{
	return bytes.len == strlen(text) && memcmp(bytes.bytes, text, bytes.len) == 0;
}

static int is_leave(const amqp_basic_properties_t *properties)
{
	return properties->_flags & AMQP_BASIC_TYPE_FLAG &&
	       is_text(properties->type, RABBIT_LEAVE_TYPE);
}

static void copy_publish(struct drainage *drainage, const amqp_message_t *message)
{
	struct rabbit_copy copy;

	rabbit_copy_init(&copy, &message->properties);
	rabbit_sender_send(drainage->sender, "", drainage->drain->to, &copy.properties,
			   message->body, drainage);
	drainage->moved++;
}

/* 1; 0 when nothing arrives within `wait_us`. */
static int take(struct drainage *drainage, amqp_envelope_t *envelope, int wait_us)
{
	struct timeval wait = { .tv_usec = wait_us };
	char error[RABBIT_ERROR_SIZE];
	amqp_rpc_reply_t reply;

	amqp_maybe_release_buffers(drainage->consumer);
	reply = amqp_consume_message(drainage->consumer, envelope, &wait, 0);
	if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
	    reply.library_error == AMQP_STATUS_TIMEOUT)
		return 0;
	if (rabbit_reply_check(reply, error))
		log_fatal("RabbitMQ, queue %s: %s", drainage->drain->from, error);
	return 1;
}

/* Ends the process unless everything that was published is confirmed. */
static void confirms_await(struct drainage *drainage)
{
	const char *trouble = rabbit_sender_wait(drainage->sender, CONFIRM_TIMEOUT_MS);

	if (!trouble)
		trouble = drainage->failure;
	if (trouble)
		log_fatal("%s; what was not confirmed is still in %s. Run the command again",
			  trouble, drainage->drain->from);
}

/* Takes what is there, publishes it, and acks it when it is confirmed. Returns how many it was. */
static int round_run(struct drainage *drainage)
{
	amqp_envelope_t envelope;
	int n = 0;

	while (n < ROUND && take(drainage, &envelope, n == 0 ? TAKE_WAIT_US : 0)) {
		drainage->tag = envelope.delivery_tag;
		n++;
		if (!is_leave(&envelope.message.properties))
			copy_publish(drainage, &envelope.message);
		amqp_destroy_envelope(&envelope);
	}
	if (n == 0)
		return 0;
	confirms_await(drainage);
	fault_point(FAULT_MOVE_BEFORE_ACK);
	if (amqp_basic_ack(drainage->consumer, RABBIT_CHANNEL, drainage->tag, 1) != AMQP_STATUS_OK)
		log_fatal("RabbitMQ, queue %s: the connection is lost. Run the command again",
			  drainage->drain->from);
	return n;
}

/* Requests the other consumers to leave: one message for each. */
static void others_leave(struct drainage *drainage, int64_t others, int64_t now_ms)
{
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_TYPE_FLAG |
							 AMQP_BASIC_EXPIRATION_FLAG,
					       .type = amqp_cstring_bytes(RABBIT_LEAVE_TYPE),
					       .expiration = amqp_cstring_bytes(LEAVE_TTL_MS) };

	if (now_ms - drainage->leave_sent_ms < LEAVE_EVERY_MS)
		return;
	drainage->leave_sent_ms = now_ms;
	if (!drainage->leave_since_ms)
		drainage->leave_since_ms = now_ms;
	/* Round robin: about half of them arrive here when there is one other consumer. */
	for (int64_t i = 0; i < 2 * others; i++)
		rabbit_sender_send(drainage->sender, "", drainage->drain->from, &properties,
				   amqp_empty_bytes, drainage);
	confirms_await(drainage);
}

/* Whether the queue is empty and has no other consumer. */
static int look(struct drainage *drainage, int64_t now_ms)
{
	const struct drain *drain = drainage->drain;
	int64_t ready, consumers;
	char error[RABBIT_ERROR_SIZE];

	if (rabbit_connection_queue_read(drain->control, drain->from, &ready, &consumers, error))
		log_fatal("RabbitMQ, queue %s: %s", drain->from, error);
	if (consumers <= 1)
		drainage->leave_since_ms = 0;
	else if (ready == 0 && drainage->leave_since_ms &&
		 now_ms - drainage->leave_since_ms >= drain->leave_timeout_ms)
		log_fatal("%" PRId64 " other consumers of %s do not leave: programs of another "
			  "version, or other clients. End them, and run the command again",
			  consumers - 1, drain->from);
	else if (ready == 0)
		others_leave(drainage, consumers - 1, now_ms);
	return ready == 0 && consumers <= 1;
}

int64_t drain_run(const struct drain *drain)
{
	struct drainage drainage = { .drain = drain };
	int64_t now_ms = clock_monotonic_ms(), quiet_since_ms = now_ms, looked_ms = now_ms;

	consumer_open(&drainage);
	while (now_ms - quiet_since_ms < DRAIN_QUIET_MS) {
		int n = round_run(&drainage);

		now_ms = clock_monotonic_ms();
		if (n > 0)
			quiet_since_ms = now_ms;
		if (now_ms - looked_ms < LOOK_EVERY_MS)
			continue;
		looked_ms = now_ms;
		drain->turn(drain->context, drainage.moved);
		if (!look(&drainage, now_ms))
			quiet_since_ms = now_ms;
	}
	rabbit_sender_close(drainage.sender);
	rabbit_connection_close(drainage.consumer);
	return drainage.moved;
}
