#include "admin/child.h"

#include "common/check.h"
#include "common/program/couponctl.h"

#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES 65536

/* Standard output or error. */
struct channel {
	struct event *readable; /* NULL: it is closed */
	struct evbuffer *bytes;
};

struct child {
	struct children *children;
	TAILQ_ENTRY(child) next;
	char **words;
	int64_t timeout_ms;
	child_ended_fn *ended;
	void *context;
	pid_t pid; /* 0: it waits, or could not be started */
	int is_reaped, wait_status, start_error;
	enum child_end end;
	struct channel out, err;
	struct event *timer;
	char line[256];
};

TAILQ_HEAD(child_list, child);

struct children {
	struct event_base *base;
	size_t running_max, waiting_max, running_n, waiting_n;
	struct child_list running, waiting;
	struct event *reaped;
};

static void channel_close(struct channel *channel)
{
	if (!channel->readable)
		return;
	close(event_get_fd(channel->readable));
	event_free(channel->readable);
	channel->readable = NULL;
}

static void child_free(struct child *child)
{
	for (char **word = child->words; *word; word++)
		free(*word);
	free(child->words);
	channel_close(&child->out);
	channel_close(&child->err);
	evbuffer_free(child->out.bytes);
	evbuffer_free(child->err.bytes);
	event_free(child->timer);
	free(child);
}

/* Kills it and what it has started, if it runs. It has ended when it is reaped. */
static void child_stop(struct child *child, enum child_end end)
{
	child->end = end;
	channel_close(&child->out);
	channel_close(&child->err);
	if (!child->is_reaped && child->pid)
		kill(-child->pid, SIGKILL);
}

static const char *bytes_text(struct evbuffer *bytes)
{
	check(evbuffer_add(bytes, "", 1) == 0);
	return (const char *)evbuffer_pullup(bytes, -1);
}

static struct child_result result_of(struct child *child)
{
	struct child_result result = { .end = child->end };

	result.out_len = evbuffer_get_length(child->out.bytes);
	result.out = bytes_text(child->out.bytes);
	result.err = bytes_text(child->err.bytes);
	if (child->start_error) {
		result.end = CHILD_NOT_STARTED;
		result.status = child->start_error;
	} else if (WIFEXITED(child->wait_status)) {
		result.status = WEXITSTATUS(child->wait_status);
	} else {
		result.status = WTERMSIG(child->wait_status);
		if (result.end == CHILD_EXITED)
			result.end = CHILD_CRASHED;
	}
	return result;
}

static void waiting_start(struct children *children);

/* It has ended when it was reaped, and all that it has written was read. */
static void child_end_check(struct child *child)
{
	struct children *children = child->children;
	struct child_result result;

	if (!child->is_reaped || child->out.readable || child->err.readable)
		return;
	TAILQ_REMOVE(&children->running, child, next);
	children->running_n--;
	result = result_of(child);
	if (child->ended)
		child->ended(child->context, &result);
	child_free(child);
	waiting_start(children);
}

static void channel_read(struct child *child, struct channel *channel, size_t bytes_max)
{
	int n = evbuffer_read(channel->bytes, event_get_fd(channel->readable), READ_BYTES);
	size_t len = evbuffer_get_length(channel->bytes);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		channel_close(channel);
	else if (len > bytes_max && channel == &child->err)
		evbuffer_drain(channel->bytes, len - bytes_max);
	else if (len > bytes_max)
		child_stop(child, CHILD_WORDY);
}

static void on_out(evutil_socket_t fd, short what, void *data)
{
	struct child *child = data;

	(void)fd, (void)what;
	channel_read(child, &child->out, CHILD_OUT_BYTES_MAX);
	child_end_check(child);
}

static void on_err(evutil_socket_t fd, short what, void *data)
{
	struct child *child = data;

	(void)fd, (void)what;
	channel_read(child, &child->err, CHILD_ERR_BYTES_MAX);
	child_end_check(child);
}

/* Its time is over; or it could not be started, and its caller waits to hear that. */
static void on_timer(evutil_socket_t fd, short what, void *data)
{
	struct child *child = data;

	(void)fd, (void)what;
	child_stop(child, CHILD_LATE);
	child_end_check(child);
}

static void on_child(evutil_socket_t fd, short what, void *data)
{
	struct children *children = data;
	struct child *child, *next;

	(void)fd, (void)what;
	for (child = TAILQ_FIRST(&children->running); child; child = next) {
		next = TAILQ_NEXT(child, next);
		if (child->is_reaped ||
		    waitpid(child->pid, &child->wait_status, WNOHANG) != child->pid)
			continue;
		child->is_reaped = 1;
		event_del(child->timer);
		child_end_check(child);
	}
}

static int pipe_make(int fds[2])
{
	if (pipe2(fds, O_CLOEXEC))
		return -1;
	check(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
	return 0;
}

static void channel_open(struct child *child, struct channel *channel, int fd,
			 event_callback_fn on_readable)
{
	channel->readable = checked(
		event_new(child->children->base, fd, EV_READ | EV_PERSIST, on_readable, child));
	event_add(channel->readable, NULL);
}

/* Its result comes from the loop in any case. */
static void child_run(struct child *child)
{
	static const struct timeval at_once;
	struct timeval timeout = { .tv_sec = child->timeout_ms / 1000,
				   .tv_usec = child->timeout_ms % 1000 * 1000 };
	int out[2] = { -1, -1 }, err[2] = { -1, -1 };

	if (pipe_make(out) || pipe_make(err))
		child->start_error = errno;
	else
		child->start_error = couponctl_spawn(&child->pid, child->words, out[1], err[1]);
	if (out[1] >= 0)
		close(out[1]);
	if (err[1] >= 0)
		close(err[1]);
	if (!child->start_error) {
		channel_open(child, &child->out, out[0], on_out);
		channel_open(child, &child->err, err[0], on_err);
		if (child->timeout_ms)
			event_add(child->timer, &timeout);
		return;
	}
	if (out[0] >= 0)
		close(out[0]);
	if (err[0] >= 0)
		close(err[0]);
	child->pid = 0;
	child->is_reaped = 1;
	event_add(child->timer, &at_once);
}

static void waiting_start(struct children *children)
{
	struct child *child;

	while (children->running_n < children->running_max &&
	       (child = TAILQ_FIRST(&children->waiting))) {
		TAILQ_REMOVE(&children->waiting, child, next);
		children->waiting_n--;
		TAILQ_INSERT_TAIL(&children->running, child, next);
		children->running_n++;
		child_run(child);
	}
}

struct child *child_start(struct children *children, const char *const *words, int64_t timeout_ms,
			  child_ended_fn *ended, void *context)
{
	struct child *child;
	size_t n = 0;

	if (children->running_n == children->running_max &&
	    children->waiting_n == children->waiting_max)
		return NULL;
	while (words[n])
		n++;
	child = checked(calloc(1, sizeof(*child)));
	child->words = checked(calloc(n + 1, sizeof(*child->words)));
	for (size_t i = 0; i < n; i++)
		child->words[i] = checked(strdup(words[i]));
	child->children = children;
	child->timeout_ms = timeout_ms;
	child->ended = ended;
	child->context = context;
	child->out.bytes = checked(evbuffer_new());
	child->err.bytes = checked(evbuffer_new());
	child->timer = checked(evtimer_new(children->base, on_timer, child));
	TAILQ_INSERT_TAIL(&children->waiting, child, next);
	children->waiting_n++;
	waiting_start(children);
	return child;
}

void child_kill(struct child *child)
{
	child->ended = NULL;
	if (child_is_waiting(child)) {
		TAILQ_REMOVE(&child->children->waiting, child, next);
		child->children->waiting_n--;
		child_free(child);
	} else {
		child_stop(child, CHILD_LATE);
	}
}

int child_is_waiting(const struct child *child)
{
	return !child->pid && !child->start_error;
}

const char *child_last_line(struct child *child)
{
	struct evbuffer *bytes = child->err.bytes;
	size_t len = evbuffer_get_length(bytes), begin;
	const char *text = len ? (const char *)evbuffer_pullup(bytes, -1) : "";

	while (len > 0 && text[len - 1] != '\n')
		len--;
	for (begin = len ? len - 1 : 0; begin > 0 && text[begin - 1] != '\n'; begin--)
		;
	snprintf(child->line, sizeof(child->line), "%.*s", len ? (int)(len - 1 - begin) : 0,
		 text + begin);
	return child->line;
}

struct children *children_new(struct event_base *base, size_t running_max, size_t waiting_max)
{
	struct children *children = checked(calloc(1, sizeof(*children)));

	children->base = base;
	children->running_max = running_max;
	children->waiting_max = waiting_max;
	TAILQ_INIT(&children->running);
	TAILQ_INIT(&children->waiting);
	children->reaped = checked(evsignal_new(base, SIGCHLD, on_child, children));
	event_add(children->reaped, NULL);
	return children;
}

void children_free(struct children *children)
{
	const struct child_result late = { .end = CHILD_LATE, .out = "", .err = "" };
	struct child *child;

	TAILQ_CONCAT(&children->running, &children->waiting, next);
	while ((child = TAILQ_FIRST(&children->running))) {
		TAILQ_REMOVE(&children->running, child, next);
		child_stop(child, CHILD_LATE);
		if (child->pid && !child->is_reaped)
			waitpid(child->pid, NULL, 0);
		if (child->ended)
			child->ended(child->context, &late);
		child_free(child);
	}
	event_free(children->reaped);
	free(children);
}
