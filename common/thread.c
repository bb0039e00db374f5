#include "common/thread.h"

#include "common/check.h"
#include "common/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FILES_MAX 2 /* beside the wake-up */
#define PAUSE_MAX_MS 3600000

int wake_new(void)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	check(fd >= 0);
	return fd;
}

void wake_send(int fd)
{
	/* EAGAIN: nobody has taken 2^64 - 2 of them */
	check(eventfd_write(fd, 1) == 0 || errno == EAGAIN);
}

int wake_take(int fd)
{
	eventfd_t count;
	int was_sent = eventfd_read(fd, &count) == 0;

	check(was_sent || errno == EAGAIN);
	return was_sent;
}

/* Faults of the thread itself are not blocked: the reports of sanitizers depend on them. */
static int begin(pthread_t *id, void *(*run)(void *context), void *context)
{
	sigset_t blocked, before;
	int error;

	sigfillset(&blocked);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGFPE);
	sigdelset(&blocked, SIGILL);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	error = pthread_create(id, NULL, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

void thread_start(struct thread *thread, void *(*run)(void *context), void *context)
{
	thread->fd = wake_new();
	thread->stops = 0;
	check(begin(&thread->id, run, context) == 0);
}

void thread_wake(struct thread *thread)
{
	wake_send(thread->fd);
}

void thread_join(struct thread *thread)
{
	check(pthread_join(thread->id, NULL) == 0);
	close(thread->fd);
}

void thread_stop(struct thread *thread)
{
	thread->stops = 1;
	thread_wake(thread);
	thread_join(thread);
}

int thread_pause(struct thread *thread, int64_t until_ms, const struct pollfd *fds, size_t n)
{
	struct pollfd all[1 + FILES_MAX] = { { .fd = thread->fd, .events = POLLIN } };
	int64_t left_ms = until_ms - clock_monotonic_ms();

	check(n <= FILES_MAX);
	if (n > 0)
		memcpy(&all[1], fds, n * sizeof(*fds));
	if (left_ms > PAUSE_MAX_MS)
		left_ms = PAUSE_MAX_MS;
	/* It is taken before the thread works, so that a wake-up during the work is not lost. */
	return poll(all, 1 + n, left_ms > 0 ? (int)left_ms : 0) > 0 && all[0].revents &&
	       wake_take(thread->fd);
}

int thread_detach(void *(*run)(void *context), void *context)
{
	pthread_t id;
	int error = begin(&id, run, context);

	if (!error)
		pthread_detach(id);
	return error;
}
