#include "admin/child.h"

#include "common/check.h"
#include "common/message/json.h"
#include "common/program/couponctl.h"

#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_BYTES 65536

/* Standard output or error. */
struct channel {
	struct child *child;
	struct event *readable; /* NULL: it is closed */
	struct evbuffer *bytes;
	size_t bytes_max;
};

struct child {
	struct children *children;
	TAILQ_ENTRY(child) next;
	struct child_task task; /* request and by are its own */
	int is_waiting;
	pid_t pid; /* 0: it waits, or was not started */
	int is_reaped, wait_status, start_error;
	enum child_end end;
	struct channel out, err;
	struct event *timer;
	char line[256];
};

TAILQ_HEAD(child_list, child);

/* The children that are read-only, or those that change something. */
struct child_lane {
	struct child_list waiting;
	size_t waiting_n, running_n, running_max;
};

struct children {
	struct event_base *base;
	struct child_limits limits;
	struct child_list running;
	struct child_lane lanes[2]; /* by `changes` */
	int is_drained;
	struct event *reaped;
};

static struct child_lane *lane_of(const struct child *child)
{
	return &child->children->lanes[child->task.changes];
}

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
	free((void *)child->task.request);
	free((void *)child->task.by);
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

static void waiting_start(struct children *children);

/* A child has ended when it was reaped and all its output was read. */
static void child_end_check(struct child *child)
{
	struct children *children = child->children;
	struct child_result result = { .end = child->end };

	if (!child->is_reaped || child->out.readable || child->err.readable)
		return;
	TAILQ_REMOVE(&children->running, child, next);
	lane_of(child)->running_n--;

	result.out_len = evbuffer_get_length(child->out.bytes);
	check(evbuffer_add(child->out.bytes, "", 1) == 0);
	result.out = (const char *)evbuffer_pullup(child->out.bytes, -1);
	if (!child->pid) {
		result.status = child->start_error;
	} else if (WIFEXITED(child->wait_status)) {
		result.status = WEXITSTATUS(child->wait_status);
	} else {
		result.status = WTERMSIG(child->wait_status);
		if (result.end == CHILD_EXITED)
			result.end = CHILD_CRASHED;
	}

	if (child->task.ended)
		child->task.ended(child->task.context, &result);
	child_free(child);
	waiting_start(children);
}

static void on_readable(evutil_socket_t fd, short what, void *data)
{
	struct channel *channel = data;
	struct child *child = channel->child;
	int n = evbuffer_read(channel->bytes, fd, READ_BYTES);
	size_t len = evbuffer_get_length(channel->bytes), bytes_max = channel->bytes_max;

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		channel_close(channel);
	else if (len > bytes_max && channel == &child->err)
		evbuffer_drain(channel->bytes, len - bytes_max);
	else if (len > bytes_max)
		child_stop(child, CHILD_WORDY);
	child_end_check(child);
}

static void channel_init(struct channel *channel, struct child *child, size_t bytes_max)
{
	channel->child = child;
	channel->bytes = checked(evbuffer_new());
	channel->bytes_max = bytes_max;
}

/* Reads what is written to the other end of the pipe. */
static void channel_open(struct channel *channel, int fd)
{
	check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	channel->readable = checked(event_new(channel->child->children->base, fd,
					      EV_READ | EV_PERSIST, on_readable, channel));
	event_add(channel->readable, NULL);
}

/* Its time is over; or it was not started, and its caller waits to hear that. */
static void on_timer(evutil_socket_t fd, short what, void *data)
{
	struct child *child = data;

	(void)fd, (void)what;
	if (child->pid)
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
		/* What it has started may still write, until its time is over. */
		child->is_reaped = 1;
		child_end_check(child);
	}
}

/* Its caller is told from the loop. */
static void child_skip(struct child *child, enum child_end end, int error)
{
	static const struct timeval at_once;

	child->end = end;
	child->start_error = error;
	child->pid = 0;
	child->is_reaped = 1;
	event_add(child->timer, &at_once);
}

static void child_run(struct child *child)
{
	struct timeval timeout = { .tv_sec = child->task.timeout_ms / 1000,
				   .tv_usec = child->task.timeout_ms % 1000 * 1000 };
	static char *const words[] = { "couponctl", "--api", NULL };
	const char *request = child->task.request;
	size_t len = strlen(request);
	int in = -1, out[2] = { -1, -1 }, err[2] = { -1, -1 }, error = 0;

	if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		error = errno;
	if (!error) {      /* a file in memory */
		errno = 0; /* it stays so where only a part is written */
		in = memfd_create("request", MFD_CLOEXEC);
		if (in < 0 || pwrite(in, request, len, 0) != (ssize_t)len)
			error = errno ? errno : EIO;
	}
	if (!error)
		error = couponctl_spawn(&child->pid, words, in, out[1], err[1]);
	if (in >= 0)
		close(in);
	if (out[1] >= 0)
		close(out[1]);
	if (err[1] >= 0)
		close(err[1]);
	if (!error) {
		channel_open(&child->out, out[0]);
		channel_open(&child->err, err[0]);
		if (child->task.timeout_ms)
			event_add(child->timer, &timeout);
		return;
	}
	if (out[0] >= 0)
		close(out[0]);
	if (err[0] >= 0)
		close(err[0]);
	child_skip(child, CHILD_NOT_STARTED, error);
}

struct child_counts children_count(const struct children *children)
{
	const struct child_lane *looks = &children->lanes[0], *changes = &children->lanes[1];

	return (struct child_counts){ .running = looks->running_n + changes->running_n,
				      .waiting = looks->waiting_n + changes->waiting_n };
}

static int has_place(const struct children *children, const struct child_lane *lane)
{
	return lane->running_n < lane->running_max &&
	       children_count(children).running < children->limits.running_max;
}

static void waiting_remove(struct child *child)
{
	child->is_waiting = 0;
	TAILQ_REMOVE(&lane_of(child)->waiting, child, next);
	lane_of(child)->waiting_n--;
}

static void running_add(struct child *child)
{
	TAILQ_INSERT_TAIL(&child->children->running, child, next);
	lane_of(child)->running_n++;
}

/* Starts those whose turn has come; those that change something come first. */
static void waiting_start(struct children *children)
{
	struct child_lane *looks = &children->lanes[0], *changes = &children->lanes[1];

	for (;;) {
		struct child_lane *lane = changes->waiting_n > 0 && has_place(children, changes)
						  ? changes
						  : looks;
		struct child *child = TAILQ_FIRST(&lane->waiting);

		if (!child || !has_place(children, lane))
			return;
		waiting_remove(child);
		running_add(child);
		if (child->task.may_start && !child->task.may_start(child->task.context))
			child_skip(child, CHILD_REFUSED, 0);
		else
			child_run(child);
	}
}

struct child *child_start(struct children *children, const struct child_task *task)
{
	struct child_lane *lane = &children->lanes[task->changes];
	int runs = has_place(children, lane);
	size_t by_same_n = 0;
	struct child *child;

	if (children->is_drained)
		return NULL;
	TAILQ_FOREACH (child, &lane->waiting, next) {
		by_same_n += strcmp(child->task.by, task->by) == 0;
	}
	if (!runs && (lane->waiting_n >= children->limits.waiting_max ||
		      by_same_n >= children->limits.waiting_of_one_max))
		return NULL;

	child = checked(calloc(1, sizeof(*child)));
	child->task = *task;
	child->task.request = checked(strdup(task->request));
	child->task.by = checked(strdup(task->by));
	child->children = children;
	channel_init(&child->out, child, CHILD_OUT_BYTES_MAX);
	channel_init(&child->err, child, CHILD_ERR_BYTES_MAX);
	child->timer = checked(evtimer_new(children->base, on_timer, child));

	if (runs) {
		running_add(child);
		child_run(child);
	} else {
		child->is_waiting = 1;
		TAILQ_INSERT_TAIL(&lane->waiting, child, next);
		lane->waiting_n++;
	}
	return child;
}

void child_kill(struct child *child)
{
	child->task.ended = NULL;
	if (child->is_waiting) {
		waiting_remove(child);
		child_free(child);
	} else {
		child_stop(child, CHILD_LATE);
		child_end_check(child);
	}
}

int child_is_waiting(const struct child *child)
{
	return child->is_waiting;
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
	json_text_mend(child->line); /* it may be cut within a character */
	return child->line;
}

struct children *children_new(struct event_base *base, const struct child_limits *limits)
{
	struct children *children = checked(calloc(1, sizeof(*children)));

	children->base = base;
	children->limits = *limits;
	children->lanes[0].running_max = limits->looking_max;
	children->lanes[1].running_max = limits->running_max;
	TAILQ_INIT(&children->running);
	for (int i = 0; i < 2; i++)
		TAILQ_INIT(&children->lanes[i].waiting);
	children->reaped = checked(evsignal_new(base, SIGCHLD, on_child, children));
	event_add(children->reaped, NULL);
	return children;
}

void children_drain(struct children *children)
{
	struct child *child, *next;

	children->is_drained = 1;
	for (int i = 0; i < 2; i++)
		while ((child = TAILQ_FIRST(&children->lanes[i].waiting))) {
			waiting_remove(child);
			running_add(child);
			child_skip(child, CHILD_STOPPED, 0);
		}
	for (child = TAILQ_FIRST(&children->running); child; child = next) {
		next = TAILQ_NEXT(child, next);
		if (child->task.changes || !child->pid)
			continue;
		child_stop(child, CHILD_STOPPED);
		child_end_check(child);
	}
}

void children_free(struct children *children)
{
	const struct child_result late = { .end = CHILD_LATE, .out = "" };
	struct child *child;

	for (int i = 0; i < 2; i++)
		TAILQ_CONCAT(&children->running, &children->lanes[i].waiting, next);
	while ((child = TAILQ_FIRST(&children->running))) {
		TAILQ_REMOVE(&children->running, child, next);
		child_stop(child, CHILD_LATE);
		if (child->pid && !child->is_reaped)
			waitpid(child->pid, NULL, 0);
		if (child->task.ended)
			child->task.ended(child->task.context, &late);
		child_free(child);
	}
	event_free(children->reaped);
	free(children);
}
