#include "gateway/publish/publisher.h"

#include "common/changes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/rabbit/connection.h"
#include "common/rabbit/publisher.h"
#include "gateway/metrics.h"
#include "gateway/publish/batch.h"
#include "gateway/publish/waiters.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * The gateway's channel to RabbitMQ: publishes each batch until it is confirmed, over new
 * connections where needed, and receives the outcomes that workers send back (RabbitMQ's direct
 * reply-to). It belongs to the publisher's thread.
 *
 *	pending ──burst of packets──▶ confirm window ──ack──▶ finished
 *	   ▲                                │
 *	   └──────────── again ◀────────────┘ nack, return, connection lost
 *
 * A packet is one message. Batches that a client waits for go in other packets than the others,
 * because the worker sends outcomes for all batches of a message or for none.
 */

/* The publisher embeds it, and moves batches out of `finished` and messages out of `arrived`. */
struct publish_channel {
	struct batch_list finished; /* confirmed */
	struct outcome_message_list arrived;
	char installation[INSTALLATION_SIZE]; /* of what is published; empty: not known */

	/* Its own. */
	struct rabbit_publisher *publisher;
	struct rabbit_link *link;     /* of the publisher */
	struct batch_list pending[2]; /* by batch->awaited */
	struct batch_list again;      /* failed, in order; published before pending */
	int turn;                     /* the list of the last packet */
	char *buffer;                 /* of PACKED_BYTES_MAX */
	int64_t hold_until_ms;        /* no publish before this time */
	int64_t burst_ms;             /* when the last burst began */
	size_t burst_receives;        /* how many went in it */
	uint64_t cuts;                /* the state of the link in the metrics */
};

#define WINDOW_MAX 2000      /* messages published and not confirmed */
#define REFUSED_PAUSE_MS 200 /* after a nack or a return, before the next publish */
#define BURST_MESSAGES 64    /* then the lists are exchanged */
#define BURST_MS 5           /* after this time the next burst no longer waits for confirms */
#define LINGER_MS 32         /* between bursts that no client waits for, at most */
#define REPLY_TO "amq.rabbitmq.reply-to"

static void message_refused(struct publish_channel *channel, const char *why)
{
	log_warn("message_refused", LOG_S("queue", AMQP_QUEUE), LOG_S("why", why));
	channel->hold_until_ms = clock_monotonic_ms() + REFUSED_PAUSE_MS;
}

/* One message's end, from the confirm window. */
static void packet_settled(void *context, void *item, enum confirm_result result)
{
	struct publish_channel *channel = context;
	struct packet *packet = item;

	switch (result) {
	case CONFIRM_DONE:
		metrics_add(METRIC_CONFIRMED, 1);
		packet_open(packet, &channel->finished);
		return;
	case CONFIRM_RETURNED:
		log_warn("message_returned", LOG_S("queue", AMQP_QUEUE));
		message_refused(channel, "no queue took it");
		break;
	case CONFIRM_NACKED:
		message_refused(channel, "nack");
		break;
	case CONFIRM_LOST:
		break;
	}
	metrics_add(METRIC_PUBLISH_FAILED, 1);
	packet_open(packet, &channel->again);
}

static int packet_same(const void *item, const void *wanted)
{
	char text[ULID_SIZE];
	const amqp_bytes_t *correlation = wanted;

	ulid_format(&packet_first(item)->ulid, text);
	return correlation->len == ULID_LEN && memcmp(correlation->bytes, text, ULID_LEN) == 0;
}

static void opened(void *context)
{
	struct publish_channel *channel = context;

	channel->hold_until_ms = 0;
	metrics_set(METRIC_AMQP_UP, 1);
	log_info("amqp_ready", LOG_S("queue", AMQP_QUEUE));
}

static void lost(void *context)
{
	(void)context;
	metrics_set(METRIC_AMQP_UP, 0);
}

/* An outcome. */
static void delivered(void *context, size_t source, uint64_t tag, struct envelope *envelope)
{
	struct publish_channel *channel = context;
	struct outcome_message *outcome = malloc(sizeof(*outcome) + envelope->body_len);

	(void)source;
	(void)tag;
	check(outcome != NULL);
	outcome->len = envelope->body_len;
	memcpy(outcome->body, envelope->body, envelope->body_len);
	STAILQ_INSERT_TAIL(&channel->arrived, outcome, next);
	envelope_free(envelope);
}

static void packet_publish(struct publish_channel *channel, struct packet *packet)
{
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG |
							 AMQP_BASIC_CORRELATION_ID_FLAG };
	const struct batch *first = packet_first(packet);
	amqp_bytes_t body = { .len = packet->bytes, .bytes = packet_body(packet, channel->buffer) };
	char ulid[ULID_SIZE];

	properties.content_type = amqp_cstring_bytes("application/json");
	properties.correlation_id = amqp_cstring_bytes(ulid_format(&first->ulid, ulid));
	if (*channel->installation) {
		properties._flags |= AMQP_BASIC_APP_ID_FLAG;
		properties.app_id = amqp_cstring_bytes(channel->installation);
	}
	if (packet->wants_outcome) {
		properties._flags |= AMQP_BASIC_REPLY_TO_FLAG;
		properties.reply_to = amqp_cstring_bytes(REPLY_TO);
	}
	metrics_add(METRIC_PUBLISHED, 1);
	rabbit_publisher_send(channel->publisher, AMQP_EXCHANGE, AMQP_ROUTING_KEY, &properties,
			      body, packet);
}

/*
 * Messages go out in bursts: the next one begins when the last is confirmed, so that a busy broker
 * writes, syncs and confirms many at once (measured: a quarter less CPU a message), and an idle one
 * gets a message without delay. What waits for the next burst is packed into few messages, and each
 * is a transaction of a worker. So where no client waits, a burst of n receives is followed by the
 * next one after n ms, at most LINGER_MS: one that goes alone delays nothing, and the bursts grow
 * only while more than one receive arrives in a millisecond.
 */
static int64_t burst_due_ms(const struct publish_channel *channel)
{
	int is_busy = rabbit_publisher_open(channel->publisher) > 0;
	int64_t linger_ms = channel->burst_receives < LINGER_MS ? (int64_t)channel->burst_receives
								: LINGER_MS;

	if (!STAILQ_EMPTY(&channel->pending[1]))
		return is_busy ? channel->burst_ms + BURST_MS : 0;
	return channel->burst_ms + (is_busy && linger_ms < BURST_MS ? BURST_MS : linger_ms);
}

static int has_pending(const struct publish_channel *channel)
{
	return !STAILQ_EMPTY(&channel->pending[0]) || !STAILQ_EMPTY(&channel->pending[1]);
}

static int may_publish(const struct publish_channel *channel)
{
	return has_pending(channel) && clock_monotonic_ms() >= channel->hold_until_ms &&
	       rabbit_publisher_open(channel->publisher) < WINDOW_MAX &&
	       rabbit_publisher_ready(channel->publisher);
}

/* The two lists take turns. */
static struct batch_list *pending_next(struct publish_channel *channel)
{
	channel->turn = !channel->turn;
	if (STAILQ_EMPTY(&channel->pending[channel->turn]))
		channel->turn = !channel->turn;
	return &channel->pending[channel->turn];
}

/* Publishes as much as is allowed, and reads what has arrived before each message. */
static void pending_publish(struct publish_channel *channel)
{
	if (clock_monotonic_ms() < burst_due_ms(channel))
		return;
	channel->burst_ms = clock_monotonic_ms();
	channel->burst_receives = 0;
	for (int n = 0; n < BURST_MESSAGES && may_publish(channel); n++) {
		struct packet *packet = packet_take(pending_next(channel));

		channel->burst_receives += packet->receives;
		packet_publish(channel, packet);
		fault_point(FAULT_GATEWAY_AFTER_PUBLISH);
		rabbit_link_read(channel->link);
	}
}

/* Takes the batches; the list is empty afterwards. */
static void publish_channel_submit(struct publish_channel *channel, struct batch_list *list)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		STAILQ_INSERT_TAIL(&channel->pending[batch->awaited], batch, next);
	}
}

/* Batches to be published again go first. */
static void again_prepend(struct publish_channel *channel)
{
	if (STAILQ_EMPTY(&channel->again))
		return;
	for (int i = 0; i < 2; i++)
		STAILQ_CONCAT(&channel->again, &channel->pending[i]);
	publish_channel_submit(channel, &channel->again);
}

static void cuts_count(struct publish_channel *channel)
{
	uint64_t cuts = rabbit_link_cuts(channel->link);

	metrics_add(METRIC_PUBLISHER_CUTS, (int64_t)(cuts - channel->cuts));
	channel->cuts = cuts;
}

/* Connects when that is due, reads what the broker sent, and publishes what is allowed. */
static void publish_channel_turn(struct publish_channel *channel)
{
	rabbit_link_step(channel->link, clock_monotonic_ms());
	rabbit_link_read(channel->link);
	pending_publish(channel);
	again_prepend(channel);
	cuts_count(channel);
}

/* `url` outlives it */
static void publish_channel_init(struct publish_channel *channel, const char *url)
{
	static const struct rabbit_source replies = { .queue = REPLY_TO };
	static const struct rabbit_publisher_port port = { .done = packet_settled,
							   .same = packet_same,
							   .opened = opened,
							   .lost = lost,
							   .source = &replies,
							   .delivered = delivered };

	memset(channel, 0, sizeof(*channel));
	STAILQ_INIT(&channel->pending[0]);
	STAILQ_INIT(&channel->pending[1]);
	STAILQ_INIT(&channel->again);
	STAILQ_INIT(&channel->finished);
	STAILQ_INIT(&channel->arrived);
	channel->buffer = malloc(PACKED_BYTES_MAX);
	check(channel->buffer != NULL);
	channel->publisher = rabbit_publisher_new("publisher", url, &port, channel);
	channel->link = rabbit_publisher_link(channel->publisher);
}

/* The reason why it is not ready; empty when it is. */
static const char *publish_channel_trouble(const struct publish_channel *channel)
{
	return rabbit_link_trouble(channel->link);
}

/* to poll for reading; -1: none */
static int publish_channel_fd(const struct publish_channel *channel)
{
	return rabbit_link_fd(channel->link);
}

/* how long a poll may last */
static int publish_channel_sleep_ms(const struct publish_channel *channel)
{
	int64_t now_ms = clock_monotonic_ms(), due_ms = burst_due_ms(channel),
		wait_ms = rabbit_link_deadline_ms(channel->link, now_ms) - now_ms;

	if (rabbit_link_up(channel->link) && !rabbit_link_blocked(channel->link) &&
	    has_pending(channel)) {
		if (due_ms < channel->hold_until_ms)
			due_ms = channel->hold_until_ms;
		if (due_ms <= now_ms) /* the broker takes no more now */
			due_ms = now_ms + BURST_MS;
		wait_ms = wait_ms < due_ms - now_ms ? wait_ms : due_ms - now_ms;
	}
	return wait_ms > 0 ? (int)wait_ms : 0;
}

/* Ends the connection; it waits for the broker's answer unless messages are unconfirmed. */
static void publish_channel_close(struct publish_channel *channel)
{
	/* A broker that does not confirm does not answer connection.close either. */
	if (rabbit_publisher_open(channel->publisher) > 0)
		rabbit_link_drop(channel->link);
	else
		rabbit_link_close(channel->link);
}

/* frees the batches it still has */
static void publish_channel_fini(struct publish_channel *channel)
{
	rabbit_publisher_free(channel->publisher); /* what is unconfirmed moves to `again` */
	batch_list_free(&channel->pending[0]);
	batch_list_free(&channel->pending[1]);
	batch_list_free(&channel->again);
	batch_list_free(&channel->finished);
	outcome_message_list_free(&channel->arrived);
	free(channel->buffer);
}

struct publisher {
	char *url;
	pthread_t thread;
	int wake_thread; /* eventfds */
	int wake_loop;

	pthread_mutex_t mutex; /* guards from here … */
	struct batch_list inbox;
	struct batch_list confirmed;
	struct outcome_message_list outcomes;
	char trouble[RABBIT_ERROR_SIZE]; /* empty: connected */
	char installation[INSTALLATION_SIZE];
	int stop;
	/* … to here */

	struct publish_channel channel; /* the thread's own */
};

static void wake(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));

	check(n == sizeof(one) || errno == EAGAIN);
}

static void wake_clear(int fd)
{
	uint64_t count;
	ssize_t n = read(fd, &count, sizeof(count));

	check(n == sizeof(count) || errno == EAGAIN);
}

static int has_arrived(const struct publisher *publisher)
{
	return !STAILQ_EMPTY(&publisher->channel.finished) ||
	       !STAILQ_EMPTY(&publisher->channel.arrived);
}

/* Only the thread writes `trouble`, so it may read it without the mutex. */
static int trouble_differs(const struct publisher *publisher)
{
	return strcmp(publisher->trouble, publish_channel_trouble(&publisher->channel)) != 0;
}

/* Exchanges the lists with the event loop; 1 when the thread is to stop. */
static int lists_exchange(struct publisher *publisher)
{
	struct batch_list submitted = STAILQ_HEAD_INITIALIZER(submitted);
	int arrived = has_arrived(publisher), stop;

	pthread_mutex_lock(&publisher->mutex);
	STAILQ_CONCAT(&submitted, &publisher->inbox);
	STAILQ_CONCAT(&publisher->confirmed, &publisher->channel.finished);
	STAILQ_CONCAT(&publisher->outcomes, &publisher->channel.arrived);
	if (trouble_differs(publisher))
		snprintf(publisher->trouble, sizeof(publisher->trouble), "%s",
			 publish_channel_trouble(&publisher->channel));
	memcpy(publisher->channel.installation, publisher->installation, INSTALLATION_SIZE);
	stop = publisher->stop;
	pthread_mutex_unlock(&publisher->mutex);
	publish_channel_submit(&publisher->channel, &submitted);
	if (arrived)
		wake(publisher->wake_loop);
	return stop;
}

static void thread_sleep(struct publisher *publisher)
{
	struct pollfd fds[2] = { { .fd = publisher->wake_thread, .events = POLLIN },
				 { .fd = publish_channel_fd(&publisher->channel),
				   .events = POLLIN } };

	if (poll(fds, 2, publish_channel_sleep_ms(&publisher->channel)) > 0 && fds[0].revents)
		wake_clear(publisher->wake_thread);
}

static void *thread_main(void *data)
{
	struct publisher *publisher = data;

	while (!lists_exchange(publisher)) {
		publish_channel_turn(&publisher->channel);
		if (!has_arrived(publisher) && !trouble_differs(publisher))
			thread_sleep(publisher);
	}
	publish_channel_close(&publisher->channel);
	return NULL;
}

struct publisher *publisher_new(const char *amqp_url, int *wake_fd)
{
	struct publisher *publisher = calloc(1, sizeof(*publisher));

	check(publisher != NULL);
	publisher->url = strdup(amqp_url);
	publisher->wake_thread = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	publisher->wake_loop = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	STAILQ_INIT(&publisher->inbox);
	STAILQ_INIT(&publisher->confirmed);
	STAILQ_INIT(&publisher->outcomes);
	publish_channel_init(&publisher->channel, publisher->url);
	snprintf(publisher->trouble, sizeof(publisher->trouble), "%s",
		 publish_channel_trouble(&publisher->channel));
	check(publisher->url && publisher->wake_thread >= 0 && publisher->wake_loop >= 0);
	check(pthread_mutex_init(&publisher->mutex, NULL) == 0);
	check(pthread_create(&publisher->thread, NULL, thread_main, publisher) == 0);
	*wake_fd = publisher->wake_loop;
	return publisher;
}

void publisher_free(struct publisher *publisher, int abandon)
{
	if (!publisher)
		return;
	pthread_mutex_lock(&publisher->mutex);
	publisher->stop = 1;
	pthread_mutex_unlock(&publisher->mutex);
	if (abandon)
		watch_cut_all(); /* the thread may be blocked in the library */
	wake(publisher->wake_thread);
	pthread_join(publisher->thread, NULL);
	publish_channel_fini(&publisher->channel);
	batch_list_free(&publisher->inbox);
	batch_list_free(&publisher->confirmed);
	outcome_message_list_free(&publisher->outcomes);
	close(publisher->wake_thread);
	close(publisher->wake_loop);
	pthread_mutex_destroy(&publisher->mutex);
	free(publisher->url);
	free(publisher);
}

void publisher_installation(struct publisher *publisher, const char *installation)
{
	pthread_mutex_lock(&publisher->mutex);
	snprintf(publisher->installation, sizeof(publisher->installation), "%s", installation);
	pthread_mutex_unlock(&publisher->mutex);
}

void publisher_submit(struct publisher *publisher, struct batch *batch)
{
	int was_empty;

	pthread_mutex_lock(&publisher->mutex);
	was_empty = STAILQ_EMPTY(&publisher->inbox);
	STAILQ_INSERT_TAIL(&publisher->inbox, batch, next);
	pthread_mutex_unlock(&publisher->mutex);
	if (was_empty)
		wake(publisher->wake_thread);
}

void publisher_collect(struct publisher *publisher, struct batch_list *confirmed,
		       struct outcome_message_list *outcomes)
{
	wake_clear(publisher->wake_loop);
	pthread_mutex_lock(&publisher->mutex);
	STAILQ_CONCAT(confirmed, &publisher->confirmed);
	STAILQ_CONCAT(outcomes, &publisher->outcomes);
	pthread_mutex_unlock(&publisher->mutex);
}

void publisher_trouble(struct publisher *publisher, char *text, size_t size)
{
	pthread_mutex_lock(&publisher->mutex);
	snprintf(text, size, "%s", publisher->trouble);
	pthread_mutex_unlock(&publisher->mutex);
}
