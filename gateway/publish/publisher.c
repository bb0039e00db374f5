#include "gateway/publish/publisher.h"

#include "common/check.h"
#include "common/rabbit/watchdog.h"
#include "gateway/publish/channel.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

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
