#include "common/rabbit/watchdog.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_S 1

struct watch {
	struct watch *next;
	int fd;           /* a duplicate: stays valid when the library closes its own */
	int64_t begun_ms; /* 0: no call is in progress */
	int cut;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct watch *watches;
static int started;

static void look(int64_t now_ms)
{
	for (struct watch *watch = watches; watch; watch = watch->next) {
		if (watch->begun_ms == 0 || now_ms - watch->begun_ms < WATCHDOG_CALL_MS)
			continue;
		log_warn("amqp_call_hangs", LOG_I("for_ms", now_ms - watch->begun_ms));
		shutdown(watch->fd, SHUT_RDWR);
		watch->begun_ms = 0;
		watch->cut = 1;
	}
}

static void *run(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&mutex);
	for (;;) {
		struct timespec until;

		while (!watches)
			pthread_cond_wait(&changed, &mutex);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += LOOK_EVERY_S;
		pthread_cond_timedwait(&changed, &mutex, &until);
		look(clock_monotonic_ms());
	}
	return NULL;
}

struct watch *watch_new(int fd)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	pthread_t thread;

	check(watch != NULL);
	watch->fd = dup(fd);
	pthread_mutex_lock(&mutex);
	watch->next = watches;
	watches = watch;
	if (!started) {
		check(pthread_create(&thread, NULL, run, NULL) == 0);
		pthread_detach(thread);
		started = 1;
	}
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mutex);
	return watch;
}

void watch_free(struct watch *watch)
{
	struct watch **at = &watches;

	if (!watch)
		return;
	pthread_mutex_lock(&mutex);
	while (*at != watch)
		at = &(*at)->next;
	*at = watch->next;
	pthread_mutex_unlock(&mutex);
	if (watch->fd >= 0)
		close(watch->fd);
	free(watch);
}

void watch_begin(struct watch *watch)
{
	pthread_mutex_lock(&mutex);
	watch->begun_ms = clock_monotonic_ms();
	pthread_mutex_unlock(&mutex);
}

int watch_end(struct watch *watch)
{
	int cut;

	pthread_mutex_lock(&mutex);
	cut = watch->cut;
	watch->begun_ms = 0;
	watch->cut = 0;
	pthread_mutex_unlock(&mutex);
	return cut;
}

void watch_cut_all(void)
{
	pthread_mutex_lock(&mutex);
	for (struct watch *watch = watches; watch; watch = watch->next)
		shutdown(watch->fd, SHUT_RDWR);
	pthread_mutex_unlock(&mutex);
}
