#include "common/log/log_output.h"

#include "common/clock.h"
#include "common/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define POLL_MS 100
#define PAUSE_US 10000

/* How to write without blocking. Other processes may share the descriptor, so its flags stay. */
enum way {
	WAY_WRITE,  /* a file: it takes everything */
	WAY_OPENED, /* a pipe or a terminal, opened once more as non-blocking */
	WAY_SOCKET, /* MSG_DONTWAIT */
	WAY_POLLED  /* as WAY_OPENED, but it may not be opened: another process may come first */
};

static struct {
	pthread_mutex_t mutex; /* guards all of this */
	int is_known;          /* what standard error is: */
	dev_t device;
	ino_t inode;
	enum way way;
	int opened; /* WAY_OPENED */
	char bytes[LOG_OUTPUT_BYTES];
	size_t len; /* whole lines, but the first may be partly written */
	int64_t dropped;
	int draining; /* the thread runs */
} output = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Finds out what standard error is now. */
static void target_find(void)
{
	struct stat status = { 0 };

	fstat(STDERR_FILENO, &status);
	if (output.is_known && status.st_dev == output.device && status.st_ino == output.inode)
		return;
	if (output.is_known && output.way == WAY_OPENED)
		close(output.opened);
	output.is_known = 1;
	output.device = status.st_dev;
	output.inode = status.st_ino;
	output.way = WAY_WRITE;
	if (S_ISSOCK(status.st_mode)) {
		output.way = WAY_SOCKET;
	} else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
		output.opened = open("/proc/self/fd/2",
				     O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		output.way = output.opened < 0 ? WAY_POLLED : WAY_OPENED;
	}
}

static int target_waits(int timeout_ms)
{
	struct pollfd pollfd = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&pollfd, 1, timeout_ms) == 0;
}

static ssize_t target_write_once(const char *bytes, size_t len)
{
	switch (output.way) {
	case WAY_WRITE:
		return write(STDERR_FILENO, bytes, len);
	case WAY_OPENED:
		return write(output.opened, bytes, len);
	case WAY_SOCKET:
		return send(STDERR_FILENO, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	case WAY_POLLED:
		if (!target_waits(0))
			return write(STDERR_FILENO, bytes, len);
		errno = EAGAIN;
		return -1;
	}
	return -1;
}

/* Returns how many bytes it took; all of them when the log has no reader any more. */
static size_t target_write(const char *bytes, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = target_write_once(bytes + done, len - done);

		if (n > 0)
			done += (size_t)n;
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return done;
		else if (n == 0 || errno != EINTR)
			return len;
	}
	return done;
}

static void wait_add(const char *line, size_t len)
{
	if (len > LOG_OUTPUT_BYTES - output.len) {
		output.dropped++;
		return;
	}
	memcpy(output.bytes + output.len, line, len);
	output.len += len;
}

/* Writes line by line, because a pipe takes a line as a whole or not at all. */
static void lines_write(void)
{
	size_t at = 0;

	while (at < output.len) {
		const char *line = output.bytes + at;
		const char *stop = memchr(line, '\n', output.len - at);
		size_t len = stop ? (size_t)(stop + 1 - line) : output.len - at;
		size_t done = target_write(line, len);

		at += done;
		if (done < len)
			break;
	}
	memmove(output.bytes, output.bytes + at, output.len - at);
	output.len -= at;
}

/* Writes what waits; returns whether something still does. */
static int drain(void)
{
	char line[LOG_LINE_SIZE];
	int64_t dropped;

	target_find();
	lines_write();
	while (output.len == 0 && output.dropped > 0) {
		dropped = output.dropped;
		output.dropped = 0;
		wait_add(line, log_dropped_line(dropped, line));
		lines_write();
	}
	return output.len > 0;
}

static void *drain_main(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&output.mutex);
	while (drain()) {
		pthread_mutex_unlock(&output.mutex);
		if (!target_waits(POLL_MS))
			usleep(PAUSE_US); /* writable, but not for a whole line */
		pthread_mutex_lock(&output.mutex);
	}
	output.draining = 0;
	pthread_mutex_unlock(&output.mutex);
	return NULL;
}

void log_output_write(const char *line, size_t len)
{
	size_t done = 0;

	pthread_mutex_lock(&output.mutex);
	target_find();
	if (output.len == 0)
		done = target_write(line, len);
	if (done < len) {
		wait_add(line + done, len - done);
		if (!output.draining && thread_detach(drain_main, NULL) == 0)
			output.draining = 1;
	}
	pthread_mutex_unlock(&output.mutex);
}

void log_output_last(const char *text, size_t len)
{
	int64_t until_ms = clock_monotonic_ms() + LOG_OUTPUT_END_MS;
	int waits;

	/* A thread that is in write() to a file that hangs may hold the mutex. */
	while (pthread_mutex_trylock(&output.mutex)) {
		if (clock_monotonic_ms() >= until_ms)
			return;
		usleep(1000);
	}
	do {
		waits = drain();
		if (len > 0 && len <= LOG_OUTPUT_BYTES - output.len) {
			wait_add(text, len);
			len = 0;
			waits = drain();
		}
		if (waits) {
			pthread_mutex_unlock(&output.mutex);
			usleep(PAUSE_US);
			pthread_mutex_lock(&output.mutex);
		}
	} while (waits && clock_monotonic_ms() < until_ms);
	pthread_mutex_unlock(&output.mutex);
}

static void on_exit_write(void)
{
	log_output_last("", 0);
}

/* A child has no thread, and its parent writes what waits. */
static void fork_prepare(void)
{
	pthread_mutex_lock(&output.mutex);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&output.mutex);
}

static void fork_child(void)
{
	output.len = 0;
	output.dropped = 0;
	output.draining = 0;
	pthread_mutex_unlock(&output.mutex);
}

static void init_once(void)
{
	atexit(on_exit_write);
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void log_output_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_once);
}
