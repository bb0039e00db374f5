#include "gateway/publisher.h"

#include "common/amqp_link.h"
#include "common/backoff.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/confirm.h"
#include "common/log.h"
#include "gateway/metrics.h"

#include <amqp_framing.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define WINDOW_MAX 2000       /* messages published and not confirmed */
#define REFUSED_PAUSE_MS 200  /* after a nack or a return, before the next publish */
#define BURST_MS 5            /* a burst that is not confirmed by then holds the next one no longer */
#define IDLE_POLL_MS 1000     /* heartbeats run inside library calls only */
#define STUCK_MS 15000        /* one library call longer than this is cut; more than TCP_USER_TIMEOUT and an RPC take */
#define REPLY_TO "amq.rabbitmq.reply-to"

struct publisher {
	char *url;
	pthread_t thread;
	int wake_thread; /* eventfds */
	int wake_loop;

	pthread_mutex_t mutex; /* guards from here … */
	struct batch_list inbox;
	struct batch_list confirmed;
	struct outcome_message_list outcomes;
	char trouble[AMQP_LINK_ERROR_SIZE]; /* empty: connected */
	int fd;                             /* of the connection, -1: none; for the watchdog */
	int stop;
	/* … to here */

	atomic_int_least64_t entered_ms; /* when the library was entered, 0: it is not */

	/* The thread's own. */
	amqp_connection_state_t link;
	struct confirm_window *window;
	struct batch_list pending;
	struct batch_list again;     /* lost by the connection, in order; goes before pending */
	struct batch_list finished;  /* confirmed since the last hand-over */
	struct outcome_message_list arrived;
	struct backoff backoff;
	int64_t hold_until_ms; /* nothing is published before */
	int64_t burst_ms;      /* when the last burst began */
	int declare_again;
	int blocked;
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

static void library_enter(struct publisher *publisher)
{
	atomic_store(&publisher->entered_ms, clock_monotonic_ms());
}

static void library_leave(struct publisher *publisher)
{
	atomic_store(&publisher->entered_ms, 0);
}

/* One message's end, from the confirm window. */
static void batch_settled(void *context, void *item, enum confirm_result result)
{
	struct publisher *publisher = context;
	struct batch *batch = item;

	switch (result) {
	case CONFIRM_DONE:
		metrics_add(METRIC_CONFIRMED, 1);
		STAILQ_INSERT_TAIL(&publisher->finished, batch, next);
		return;
	case CONFIRM_RETURNED:
		publisher->declare_again = 1;
		/* fall through */
	case CONFIRM_NACKED:
		publisher->hold_until_ms = clock_monotonic_ms() + REFUSED_PAUSE_MS;
		/* fall through */
	case CONFIRM_LOST:
		metrics_add(METRIC_PUBLISH_FAILED, 1);
		STAILQ_INSERT_TAIL(&publisher->again, batch, next);
		return;
	}
}

static void trouble_set(struct publisher *publisher, const char *text, int fd)
{
	pthread_mutex_lock(&publisher->mutex);
	snprintf(publisher->trouble, sizeof(publisher->trouble), "%s", text);
	publisher->fd = fd;
	pthread_mutex_unlock(&publisher->mutex);
}

/* The connection is broken: what it had not confirmed is published again over the next one. */
static void link_lost(struct publisher *publisher, const char *why)
{
	log_warn("amqp_lost", LOG_S("error", why), LOG_I("unconfirmed", confirm_open(publisher->window)));
	trouble_set(publisher, why, -1);
	metrics_set(METRIC_AMQP_UP, 0);
	amqp_link_drop(publisher->link);
	publisher->link = NULL;
	confirm_reset(publisher->window);
	publisher->hold_until_ms = clock_monotonic_ms() + backoff_ms(&publisher->backoff);
}

/* Outcomes come as deliveries of the pseudo-queue that RabbitMQ ties to this channel. */
static int outcomes_consume(amqp_connection_state_t link, char error[AMQP_LINK_ERROR_SIZE])
{
	amqp_basic_consume(link, AMQP_LINK_CHANNEL, amqp_cstring_bytes(REPLY_TO), amqp_empty_bytes, 0, 1, 0,
			   amqp_empty_table);
	return amqp_link_result(amqp_get_rpc_reply(link), error);
}

static void link_connect(struct publisher *publisher)
{
	char error[AMQP_LINK_ERROR_SIZE];

	publisher->link = amqp_link_open(publisher->url, 1, error);
	if (!publisher->link || amqp_link_declare(publisher->link, error) || outcomes_consume(publisher->link, error)) {
		amqp_link_drop(publisher->link);
		publisher->link = NULL;
		log_warn("amqp_connect", LOG_S("error", error));
		trouble_set(publisher, error, -1);
		publisher->hold_until_ms = clock_monotonic_ms() + backoff_ms(&publisher->backoff);
		return;
	}
	publisher->blocked = 0;
	publisher->declare_again = 0;
	publisher->hold_until_ms = 0;
	backoff_reset(&publisher->backoff);
	trouble_set(publisher, "", amqp_get_sockfd(publisher->link));
	metrics_set(METRIC_AMQP_UP, 1);
	log_info("amqp_ready", LOG_S("queue", AMQP_QUEUE));
}

static int same_ulid(const void *item, const void *wanted)
{
	char text[ULID_SIZE];
	const amqp_bytes_t *correlation = wanted;

	ulid_format(&((const struct batch *)item)->ulid, text);
	return correlation->len == ULID_LEN && memcmp(correlation->bytes, text, ULID_LEN) == 0;
}

/* A message that follows its method frame: an outcome, or (`returned`) one of ours that no queue took. */
static int message_read(struct publisher *publisher, int returned)
{
	struct outcome_message *outcome;
	amqp_message_t message;

	if (amqp_read_message(publisher->link, AMQP_LINK_CHANNEL, &message, 0).reply_type != AMQP_RESPONSE_NORMAL)
		return -1;
	if (returned) {
		log_warn("message_returned", LOG_S("queue", AMQP_QUEUE));
		confirm_return(publisher->window, same_ulid, &message.properties.correlation_id);
	} else {
		outcome = malloc(sizeof(*outcome) + message.body.len);
		check(outcome != NULL);
		outcome->len = message.body.len;
		memcpy(outcome->body, message.body.bytes, message.body.len);
		STAILQ_INSERT_TAIL(&publisher->arrived, outcome, next);
	}
	amqp_destroy_message(&message);
	return 0;
}

static void blocked_set(struct publisher *publisher, int blocked)
{
	publisher->blocked = blocked;
	log_warn(blocked ? "amqp_blocked" : "amqp_unblocked", LOG_I("unconfirmed", confirm_open(publisher->window)));
	trouble_set(publisher, blocked ? "blocked by a resource alarm of the broker" : "", amqp_get_sockfd(publisher->link));
}

/* 0, or -1 with the reason the connection must go. */
static int frame_take(struct publisher *publisher, const amqp_frame_t *frame, const char **why)
{
	const amqp_basic_ack_t *ack;
	const amqp_basic_nack_t *nack;

	if (frame->frame_type != AMQP_FRAME_METHOD)
		return 0; /* a heartbeat, or the rest of a message nobody waited for */
	switch (frame->payload.method.id) {
	case AMQP_BASIC_ACK_METHOD:
		ack = frame->payload.method.decoded;
		confirm_settle(publisher->window, ack->delivery_tag, ack->multiple, CONFIRM_DONE);
		return 0;
	case AMQP_BASIC_NACK_METHOD:
		nack = frame->payload.method.decoded;
		confirm_settle(publisher->window, nack->delivery_tag, nack->multiple, CONFIRM_NACKED);
		return 0;
	case AMQP_BASIC_RETURN_METHOD:
	case AMQP_BASIC_DELIVER_METHOD:
		*why = "a message broke off";
		return message_read(publisher, frame->payload.method.id == AMQP_BASIC_RETURN_METHOD);
	case AMQP_CONNECTION_BLOCKED_METHOD:
		blocked_set(publisher, 1);
		return 0;
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		blocked_set(publisher, 0);
		return 0;
	case AMQP_BASIC_CANCEL_METHOD:
		*why = "the broker cancelled the reply consumer";
		return -1;
	case AMQP_CHANNEL_CLOSE_METHOD:
		*why = "the broker closed the channel";
		return -1;
	case AMQP_CONNECTION_CLOSE_METHOD:
		*why = "the broker closed the connection";
		return -1;
	default:
		return 0;
	}
}

/* Takes every frame that is there. 0, or -1 with the reason the connection must go. */
static int frames_drain(struct publisher *publisher, const char **why)
{
	struct timeval none = { 0 };
	amqp_frame_t frame;
	int status;

	for (;;) {
		status = amqp_simple_wait_frame_noblock(publisher->link, &frame, &none);
		if (status == AMQP_STATUS_TIMEOUT)
			break;
		if (status != AMQP_STATUS_OK) {
			*why = amqp_error_string2(status);
			return -1;
		}
		if (frame_take(publisher, &frame, why))
			return -1;
	}
	amqp_maybe_release_buffers(publisher->link);
	return 0;
}

static int batch_publish(struct publisher *publisher, struct batch *batch)
{
	amqp_basic_properties_t properties = { ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG |
							 AMQP_BASIC_CORRELATION_ID_FLAG };
	amqp_bytes_t body = { .len = batch->body_len, .bytes = batch->body };
	char ulid[ULID_SIZE];

	properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
	properties.content_type = amqp_cstring_bytes("application/json");
	properties.correlation_id = amqp_cstring_bytes(ulid_format(&batch->ulid, ulid));
	if (batch->wants_outcome) {
		properties._flags |= AMQP_BASIC_REPLY_TO_FLAG;
		properties.reply_to = amqp_cstring_bytes(REPLY_TO);
	}
	metrics_add(METRIC_PUBLISHED, 1);
	confirm_push(publisher->window, batch); /* before: a publish that fails half-way may have arrived */
	return amqp_basic_publish(publisher->link, AMQP_LINK_CHANNEL, amqp_cstring_bytes(AMQP_EXCHANGE),
				  amqp_cstring_bytes(AMQP_ROUTING_KEY), 1, 0, &properties, body);
}

/*
 * Messages go out in bursts: the next one begins when the last is confirmed, so that a busy broker writes, syncs and confirms many at
 * once (measured: a quarter less CPU a message), and an idle one gets a message the moment it is there.
 */
static int may_begin_burst(const struct publisher *publisher)
{
	return confirm_open(publisher->window) == 0 || clock_monotonic_ms() - publisher->burst_ms >= BURST_MS;
}

static int may_publish(const struct publisher *publisher)
{
	return !publisher->blocked && !STAILQ_EMPTY(&publisher->pending) && clock_monotonic_ms() >= publisher->hold_until_ms &&
	       confirm_open(publisher->window) < WINDOW_MAX;
}

/* Publishes what it may, taking what comes before each. 0, or -1 with the reason the connection must go. */
static int pending_publish(struct publisher *publisher, const char **why)
{
	char error[AMQP_LINK_ERROR_SIZE];
	int status;

	if (publisher->declare_again) {
		*why = "a queue cannot be declared";
		if (amqp_link_declare(publisher->link, error))
			return -1;
		publisher->declare_again = 0;
	}
	if (frames_drain(publisher, why))
		return -1;
	if (!may_begin_burst(publisher))
		return 0;
	publisher->burst_ms = clock_monotonic_ms();
	while (may_publish(publisher)) {
		struct batch *batch = STAILQ_FIRST(&publisher->pending);

		STAILQ_REMOVE_HEAD(&publisher->pending, next);
		status = batch_publish(publisher, batch);
		*why = amqp_error_string2(status);
		if (status != AMQP_STATUS_OK || frames_drain(publisher, why))
			return -1;
	}
	return 0;
}

/* Exchanges the lists with the event loop; 1 when the thread is to stop. */
static int lists_exchange(struct publisher *publisher)
{
	int something = !STAILQ_EMPTY(&publisher->finished) || !STAILQ_EMPTY(&publisher->arrived), stop;

	pthread_mutex_lock(&publisher->mutex);
	STAILQ_CONCAT(&publisher->pending, &publisher->inbox);
	STAILQ_CONCAT(&publisher->confirmed, &publisher->finished);
	STAILQ_CONCAT(&publisher->outcomes, &publisher->arrived);
	stop = publisher->stop;
	pthread_mutex_unlock(&publisher->mutex);
	if (something)
		wake(publisher->wake_loop);
	return stop;
}

/* What is to be published again goes first. */
static void again_prepend(struct publisher *publisher)
{
	if (STAILQ_EMPTY(&publisher->again))
		return;
	STAILQ_CONCAT(&publisher->again, &publisher->pending);
	STAILQ_CONCAT(&publisher->pending, &publisher->again);
}

/* How long the thread may sleep when nothing wakes it. */
static int sleep_ms(const struct publisher *publisher)
{
	int64_t hold_ms = publisher->hold_until_ms - clock_monotonic_ms();

	if (publisher->link && (amqp_frames_enqueued(publisher->link) || amqp_data_in_buffer(publisher->link)))
		return 0;
	if (hold_ms > 0 && hold_ms < IDLE_POLL_MS)
		return (int)hold_ms;
	if (publisher->link && !publisher->blocked && !STAILQ_EMPTY(&publisher->pending))
		return BURST_MS;
	return !publisher->link && hold_ms <= 0 ? 0 : IDLE_POLL_MS;
}

static void thread_sleep(struct publisher *publisher)
{
	struct pollfd fds[2] = { { .fd = publisher->wake_thread, .events = POLLIN },
				 { .fd = publisher->link ? amqp_get_sockfd(publisher->link) : -1, .events = POLLIN } };

	if (poll(fds, 2, sleep_ms(publisher)) > 0 && fds[0].revents)
		wake_clear(publisher->wake_thread);
}

static void *thread_main(void *data)
{
	struct publisher *publisher = data;
	const char *why = "";

	while (!lists_exchange(publisher)) {
		library_enter(publisher);
		if (!publisher->link && clock_monotonic_ms() >= publisher->hold_until_ms)
			link_connect(publisher);
		if (publisher->link && pending_publish(publisher, &why))
			link_lost(publisher, why);
		library_leave(publisher);
		again_prepend(publisher);
		if (STAILQ_EMPTY(&publisher->finished) && STAILQ_EMPTY(&publisher->arrived))
			thread_sleep(publisher);
	}
	if (publisher->link) {
		trouble_set(publisher, "stopping", -1);
		amqp_link_close(publisher->link);
	}
	return NULL;
}

struct publisher *publisher_new(const char *amqp_url, int *wake_fd)
{
	struct publisher *publisher = calloc(1, sizeof(*publisher));

	check(publisher != NULL);
	publisher->url = strdup(amqp_url);
	publisher->wake_thread = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	publisher->wake_loop = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	publisher->fd = -1;
	snprintf(publisher->trouble, sizeof(publisher->trouble), "connecting");
	STAILQ_INIT(&publisher->inbox);
	STAILQ_INIT(&publisher->confirmed);
	STAILQ_INIT(&publisher->outcomes);
	STAILQ_INIT(&publisher->pending);
	STAILQ_INIT(&publisher->again);
	STAILQ_INIT(&publisher->finished);
	STAILQ_INIT(&publisher->arrived);
	publisher->window = confirm_new(batch_settled, publisher);
	check(publisher->url && publisher->wake_thread >= 0 && publisher->wake_loop >= 0);
	check(pthread_mutex_init(&publisher->mutex, NULL) == 0);
	check(pthread_create(&publisher->thread, NULL, thread_main, publisher) == 0);
	*wake_fd = publisher->wake_loop;
	return publisher;
}

static void batches_free(struct batch_list *list)
{
	struct batch *batch;

	while ((batch = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(batch);
	}
}

static void outcome_messages_free(struct outcome_message_list *list)
{
	struct outcome_message *message;

	while ((message = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(message);
	}
}

void publisher_free(struct publisher *publisher)
{
	if (!publisher)
		return;
	pthread_mutex_lock(&publisher->mutex);
	publisher->stop = 1;
	pthread_mutex_unlock(&publisher->mutex);
	wake(publisher->wake_thread);
	pthread_join(publisher->thread, NULL);
	confirm_reset(publisher->window); /* what is open moves to `again` */
	confirm_free(publisher->window);
	batches_free(&publisher->inbox);
	batches_free(&publisher->confirmed);
	batches_free(&publisher->pending);
	batches_free(&publisher->again);
	batches_free(&publisher->finished);
	outcome_messages_free(&publisher->outcomes);
	outcome_messages_free(&publisher->arrived);
	close(publisher->wake_thread);
	close(publisher->wake_loop);
	pthread_mutex_destroy(&publisher->mutex);
	free(publisher->url);
	free(publisher);
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

void publisher_collect(struct publisher *publisher, struct batch_list *confirmed, struct outcome_message_list *outcomes)
{
	wake_clear(publisher->wake_loop);
	pthread_mutex_lock(&publisher->mutex);
	STAILQ_CONCAT(confirmed, &publisher->confirmed);
	STAILQ_CONCAT(outcomes, &publisher->outcomes);
	pthread_mutex_unlock(&publisher->mutex);
}

void publisher_watch(struct publisher *publisher)
{
	int64_t entered_ms = atomic_load(&publisher->entered_ms);

	if (entered_ms == 0 || clock_monotonic_ms() - entered_ms < STUCK_MS)
		return;
	pthread_mutex_lock(&publisher->mutex);
	if (publisher->fd >= 0) {
		log_error("publisher_stuck", LOG_I("ms", clock_monotonic_ms() - entered_ms));
		metrics_add(METRIC_PUBLISHER_CUTS, 1);
		shutdown(publisher->fd, SHUT_RDWR);
		publisher->fd = -1;
	}
	pthread_mutex_unlock(&publisher->mutex);
}

void publisher_trouble(struct publisher *publisher, char *text, size_t size)
{
	pthread_mutex_lock(&publisher->mutex);
	snprintf(text, size, "%s", publisher->trouble);
	pthread_mutex_unlock(&publisher->mutex);
}
