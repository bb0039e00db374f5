#include "gateway/listen/http_output.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/message/number.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <event2/buffer.h>
#include <http_parser.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static int is_broken(ssize_t rc)
{
	return rc < 0 && errno != EAGAIN && errno != EINTR;
}

static void on_writable(evutil_socket_t fd, short what, void *data)
{
	struct http_output *output = data;
	int rc = is_broken(evbuffer_write(output->unsent, fd)) ? -1 : 0;

	(void)what;
	if (rc == 0 && evbuffer_get_length(output->unsent) > 0)
		return;
	event_del(output->writable);
	output->done(output->context, rc);
}

void http_output_init(struct http_output *output, struct event_base *base, int fd,
		      http_output_fn *done, void *context)
{
	*output = (struct http_output){ .fd = fd, .done = done, .context = context };
	output->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, output);
	output->unsent = evbuffer_new();
	check(output->writable && output->unsent);
}

void http_output_fini(struct http_output *output)
{
	event_free(output->writable);
	evbuffer_free(output->unsent);
}

int http_output_write(struct http_output *output, const struct iovec *pieces, size_t n)
{
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = n };
	ssize_t rc = sendmsg(output->fd, &message, MSG_NOSIGNAL);
	size_t sent = rc > 0 ? (size_t)rc : 0;

	if (is_broken(rc))
		return -1;
	for (size_t i = 0; i < n; i++) {
		size_t skip = sent < pieces[i].iov_len ? sent : pieces[i].iov_len;

		sent -= skip;
		if (skip < pieces[i].iov_len)
			evbuffer_add(output->unsent, (const char *)pieces[i].iov_base + skip,
				     pieces[i].iov_len - skip);
	}
	if (evbuffer_get_length(output->unsent) == 0)
		return 0;
	event_add(output->writable, NULL);
	return 1;
}

size_t http_output_length(const struct http_output *output)
{
	return evbuffer_get_length(output->unsent);
}

#define DATE_SIZE 64

/* Formatted once a second. */
static const char *date(void)
{
	static _Thread_local char text[DATE_SIZE];
	static _Thread_local time_t formatted;
	time_t now = time(NULL);
	struct tm tm;

	if (now == formatted)
		return text;
	gmtime_r(&now, &tm);
	strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	formatted = now;
	return text;
}

size_t http_head_write(const struct http_reply *reply, char out[HTTP_HEAD_SIZE])
{
	char *at = text_append(out, reply->minor == 0 ? "HTTP/1.0 " : "HTTP/1.1 ");

	check(strlen(reply->type) < 128 && (!reply->extra || strlen(reply->extra) < 64));
	at = text_append(number_append(at, reply->status), " ");
	at = text_append(at, http_status_str((enum http_status)reply->status));
	at = text_append(text_append(at, "\r\nContent-Type: "), reply->type);
	at = text_append(text_append(at, "\r\nDate: "), date());
	at = number_append(text_append(at, "\r\nContent-Length: "),
			   (int64_t)(reply->len + strlen(reply->end)));
	if (reply->connection)
		at = text_append(text_append(at, "\r\nConnection: "), reply->connection);
	if (reply->extra)
		at = text_append(text_append(at, "\r\n"), reply->extra);
	at = text_append(at, "\r\n\r\n");
	return (size_t)(at - out);
}

#define WAIT_MS 60000 /* for one request to arrive, between two, and for one reply */
#define RESERVE 16    /* connections beyond the limit, for monitoring */
#define RESERVE_MS 5000
#define SMALL_BYTES 4096 /* a request of this size is taken whatever the others have sent */

void http_limits_init(struct http_limits *limits, const struct config *config,
		      struct intake *intake)
{
	*limits = (struct http_limits){ .config = config, .intake = intake };
	TAILQ_INIT(&limits->counted);
	TAILQ_INIT(&limits->reserve);
}

enum intake_room http_limits_enter(struct http_limits *limits, struct http_member *member,
				   struct client *client, int fd)
{
	member->room = intake_connection_open(limits->intake, client, fd);
	limits->reserve_n += (size_t)(member->room == INTAKE_FULL);
	limits->n++;
	metrics_set(METRIC_HTTP_CONNECTIONS, (int64_t)limits->n);
	return member->room == INTAKE_FULL && limits->reserve_n <= RESERVE ? INTAKE_ROOM
									   : member->room;
}

void http_limits_leave(struct http_limits *limits, struct http_member *member,
		       struct client *client)
{
	limits->n--;
	intake_connection_close(limits->intake, client, member->room);
	limits->reserve_n -= (size_t)(member->room == INTAKE_FULL);
	metrics_set(METRIC_HTTP_CONNECTIONS, (int64_t)limits->n);
}

static struct http_member_queue *queue_of(struct http_limits *limits,
					  const struct http_member *member)
{
	return member->room == INTAKE_ROOM ? &limits->counted : &limits->reserve;
}

void http_limits_wait(struct http_limits *limits, struct http_member *member)
{
	int64_t idle_ms = limits->config->idle_timeout_ms;
	int64_t most_ms = member->room == INTAKE_ROOM ? WAIT_MS : RESERVE_MS;

	member->until_ms = clock_monotonic_ms() + (idle_ms < most_ms ? idle_ms : most_ms);
	TAILQ_INSERT_TAIL(queue_of(limits, member), member, next);
}

void http_limits_wait_end(struct http_limits *limits, struct http_member *member)
{
	TAILQ_REMOVE(queue_of(limits, member), member, next);
}

static struct http_connection *first_expired(const struct http_member_queue *queue, int64_t now_ms)
{
	const struct http_member *member = TAILQ_FIRST(queue);

	return member && member->until_ms <= now_ms ? member->connection : NULL;
}

struct http_connection *http_limits_expired(struct http_limits *limits, int64_t now_ms)
{
	struct http_connection *counted = first_expired(&limits->counted, now_ms);

	return counted ? counted : first_expired(&limits->reserve, now_ms);
}

void http_limits_received(struct http_limits *limits, struct http_member *member, size_t received)
{
	limits->received += received - member->received;
	member->received = received;
}

int http_limits_too_large(const struct http_limits *limits, const struct http_member *member)
{
	return limits->received > (size_t)limits->config->http_buffer_bytes &&
	       member->received > SMALL_BYTES;
}

size_t http_limits_room(const struct http_limits *limits, size_t most)
{
	return limits->received > (size_t)limits->config->http_buffer_bytes && most > SMALL_BYTES
		       ? SMALL_BYTES
		       : most;
}
