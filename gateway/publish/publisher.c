#include "gateway/publish/publisher.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "gateway/metrics.h"
#include "gateway/publish/channel.h"

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

/* a turn of the channel longer than this is cut; more than TCP_USER_TIMEOUT and an RPC take */
#define STUCK_MS 15000

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

static void library_enter(struct publisher *publisher)
{
	atomic_store(&publisher->entered_ms, clock_monotonic_ms());
}

static void library_leave(struct publisher *publisher)
{
	atomic_store(&publisher->entered_ms, 0);
}

static void trouble_set(void *context, const char *text, int fd)
{
	struct publisher *publisher = context;

	pthread_mutex_lock(&publisher->mutex);
	snprintf(publisher->trouble, sizeof(publisher->trouble), "%s", text);
	publisher->fd = fd;
	pthread_mutex_unlock(&publisher->mutex);
}

/* Exchanges the lists with the event loop; 1 when the thread is to stop. */
static int lists_exchange(struct publisher *publisher)
{
	int something = !STAILQ_EMPTY(&publisher->channel.finished) ||
			!STAILQ_EMPTY(&publisher->channel.arrived),
	    stop;

	pthread_mutex_lock(&publisher->mutex);
	STAILQ_CONCAT(&publisher->channel.pending, &publisher->inbox);
	STAILQ_CONCAT(&publisher->confirmed, &publisher->channel.finished);
	STAILQ_CONCAT(&publisher->outcomes, &publisher->channel.arrived);
	stop = publisher->stop;
	pthread_mutex_unlock(&publisher->mutex);
	if (something)
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
		library_enter(publisher);
		publish_channel_turn(&publisher->channel);
		library_leave(publisher);
		if (STAILQ_EMPTY(&publisher->channel.finished) &&
		    STAILQ_EMPTY(&publisher->channel.arrived))
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
	publisher->fd = -1;
	snprintf(publisher->trouble, sizeof(publisher->trouble), "connecting");
	STAILQ_INIT(&publisher->inbox);
	STAILQ_INIT(&publisher->confirmed);
	STAILQ_INIT(&publisher->outcomes);
	publish_channel_init(&publisher->channel, publisher->url, trouble_set, publisher);
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
	if (abandon && publisher->fd >= 0)
		shutdown(publisher->fd, SHUT_RDWR); /* the thread may be waiting in the library */
	pthread_mutex_unlock(&publisher->mutex);
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
