#include "gateway/listen/server.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/serve/loop.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#define READ_BYTES 16384 /* at once; with as much input that waits for its turn, no more is read */
#define EMPTY_LINE_COST 1
#define STALLED_TICK_MS 250
#define STALLED_MOST_MS 10000

struct conn {
	struct client client; /* first: a client is its conn; it holds its input and output */
	struct server *server;
	struct event *readable; /* pending while it is read from */
	struct event *writable; /* pending while the kernel takes no output */
	struct evbuffer *input;
	struct evbuffer *output;
	LIST_ENTRY(conn) all;
	TAILQ_ENTRY(conn) next; /* of those with new output */
	size_t inflight;
	size_t scanned;     /* bytes at the front of the input without a line's end */
	int has_unread;     /* to be read in its turn */
	int skipping;       /* in a line that is too long */
	int paused;         /* not read from, until less is in flight */
	int64_t stalled_ms; /* not read from since then, because it holds much; 0: it is */
	int at_end;         /* the client sends no more than what is in the input */
	int ended;          /* nothing more is taken from it */
	int serving;        /* in conn_serve: not to be freed */
	int cut;
	int written; /* has new output: is in the server's list */
	int closed;  /* only requests are left */
};

struct server {
	struct event_base *base;
	const struct config *config;
	struct intake *intake;
	LIST_HEAD(, conn) conns;
	size_t answering_n;     /* connections with something in flight, those closed too */
	struct ticker *stalled; /* while a connection is not read from because it holds much */
	TAILQ_HEAD(, conn) written;
	struct event *send;         /* active when `written` is not empty */
	const struct timeval *idle; /* a common timeout, so that thousands of timers are cheap */
};

static struct stream *stream_of(struct conn *conn)
{
	return &conn->client.arrival.stream;
}

static size_t output_length(const struct conn *conn)
{
	return evbuffer_get_length(conn->output) + stream_unsent(&conn->client.arrival.stream);
}

/*
 * After a change of its input or output. What one that is cut has is freed soon; input is served no
 * more when the intake is stopped.
 */
static void conn_hold(struct conn *conn)
{
	size_t bytes = evbuffer_get_length(conn->output) + stream_held(stream_of(conn));

	if (intake_is_stopped(conn->server->intake))
		bytes = output_length(conn);
	else
		bytes += evbuffer_get_length(conn->input);
	client_hold(&conn->client, conn->cut ? 0 : bytes);
}

static void conn_disconnect(struct conn *conn)
{
	if (conn->written)
		TAILQ_REMOVE(&conn->server->written, conn, next);
	conn->written = 0;
	event_free(conn->readable);
	event_free(conn->writable);
	evbuffer_free(conn->input);
	evbuffer_free(conn->output);
	conn->closed = 1;
	LIST_REMOVE(conn, all);
	client_close(&conn->client);
	metrics_add(METRIC_CONNECTIONS, -1);
}

static void conn_free(struct conn *conn)
{
	identity_forget(&conn->client.responder.identity);
	free(conn);
}

/*
 * Closes the connection when it is cut or finished, and frees the object when no request refers to
 * it.
 */
static void conn_reap(struct conn *conn)
{
	if (conn->serving)
		return;
	if (!conn->closed && conn->cut) {
		conn_disconnect(conn);
	} else if (!conn->closed && conn->ended && conn->inflight == 0 &&
		   output_length(conn) == 0) {
		/*
		 * When the gateway ends, the client is told so, and what it still sends stays
		 * unread: a socket that is closed with bytes unread is reset, and the client may
		 * then not get its last replies.
		 */
		if (intake_is_stopped(conn->server->intake) && !conn->at_end)
			stream_end(stream_of(conn));
		else
			conn_disconnect(conn);
	}
	if (conn->closed && conn->inflight == 0)
		conn_free(conn);
}

/* Whether it has as many requests in flight as it may, much output, or a key that is asked for. */
static int conn_is_full(const struct conn *conn, size_t inflight_max)
{
	return conn->client.asking || conn->inflight >= inflight_max ||
	       client_is_over_share(&conn->client, output_length(conn));
}

static size_t inflight_max(const struct conn *conn)
{
	return intake_inflight_share(conn->server->intake, conn->server->answering_n);
}

/*
 * Goes on when half of its requests are answered, so that many lines are taken at once, and enough
 * of its replies are read. In its turn, because the parts that answer must not be called back.
 */
static void conn_resume(struct conn *conn)
{
	if (!conn->paused || intake_is_stopped(conn->server->intake) ||
	    conn_is_full(conn, inflight_max(conn) / 2 + 1))
		return;
	conn->paused = 0;
	turn_enter(&conn->client.turn);
}

/*
 * The output is sent when the events of this turn of the loop are handled. Left to libevent, which
 * waits until the socket is writable, each reply costs two changes of what epoll waits for.
 */
static void conn_mark_written(struct conn *conn)
{
	struct server *server = conn->server;

	if (conn->written)
		return;
	conn->written = 1;
	if (TAILQ_EMPTY(&server->written))
		event_active(server->send, EV_WRITE, 1);
	TAILQ_INSERT_TAIL(&server->written, conn, next);
}

static void on_cut(struct client *client)
{
	struct conn *conn = (struct conn *)client;

	conn->cut = 1;
	conn_mark_written(conn); /* it is closed soon, and not from here */
}

static void conn_reply(struct responder *responder, const struct request *request,
		       enum answer answer, const char *line, size_t len)
{
	struct conn *conn = (struct conn *)responder;
	struct server *server = conn->server;

	check(conn->inflight > 0);
	server->answering_n -= (size_t)(--conn->inflight == 0);
	intake_answered(server->intake, answer);
	if (intake_logs(server->intake))
		access_log(&conn->client, request, answer, NULL);
	if (conn->closed || conn->cut) {
		conn_reap(conn);
		return;
	}

	fault_point_half(FAULT_GATEWAY_MID_REPLY, stream_of(conn)->fd, line, len);
	check(evbuffer_add(conn->output, line, len) == 0);
	check(evbuffer_add(conn->output, "\n", 1) == 0);
	conn_mark_written(conn);
	conn_hold(conn);
	if ((int64_t)output_length(conn) > server->config->output_limit_bytes)
		client_cut(&conn->client, "the client does not read its replies");
	else
		intake_relieve(server->intake);
	if (!conn->cut)
		conn_resume(conn);
	conn_reap(conn);
}

static void conn_line(struct conn *conn, const char *line, size_t len)
{
	struct server *server = conn->server;
	char message[128];

	if (len > 0 && line[len - 1] == '\r')
		len--;
	if (len == 0) {
		turns_spend(conn->client.turn.turns, EMPTY_LINE_COST);
		return;
	}
	/* Takes nothing more from the client, so that the body is not executed. */
	if (*line != '{' && request_is_http(line, len)) {
		log_warn("connection_http",
			 LOG_S("reason", "a client sent HTTP to the socket API"));
		metrics_add(METRIC_CONNECTIONS_HTTP, 1);
		conn->ended = 1;
		return;
	}
	server->answering_n += (size_t)(conn->inflight++ == 0);
	if ((int64_t)len <= server->config->line_limit_bytes) {
		intake_request(server->intake, line, len, OP_COUNT, &conn->client.responder);
		return;
	}
	snprintf(message, sizeof(message), "the line is longer than %lld bytes",
		 (long long)server->config->line_limit_bytes);
	intake_refuse(server->intake, &conn->client.responder, ANSWER_TOO_LARGE, message);
}

/*
 * Takes the complete lines of `len` bytes, as many as its turn and the limit allow; returns how
 * many bytes were consumed.
 */
static size_t conn_lines(struct conn *conn, const char *data, size_t len)
{
	const char *at = data, *end = data + len, *stop;
	size_t left;

	while (!conn->cut && !conn->ended) {
		left = (size_t)(end - at);
		if (turn_is_over(&conn->client.turn) ||
		    conn_is_full(conn, inflight_max(conn))) /* what is left is scanned later */
			return (size_t)(at - data);
		stop = memchr(at + conn->scanned, '\n', left - conn->scanned);
		if (!stop) {
			/* A part of a line; one that is too long is answered at once. */
			conn->scanned = left;
			if ((int64_t)left > conn->server->config->line_limit_bytes + 1 &&
			    !conn->skipping) {
				conn->skipping = 1;
				conn_line(conn, at, left);
			}
			if (!conn->skipping)
				return (size_t)(at - data);
			conn->scanned = 0;
			return len;
		}
		if (!conn->skipping &&
		    !turn_affords(&conn->client.turn, intake_text_cost((size_t)(stop - at))))
			return (size_t)(at - data);
		if (!conn->skipping)
			conn_line(conn, at, (size_t)(stop - at));
		conn->skipping = 0;
		conn->scanned = 0;
		at = stop + 1;
	}
	return len;
}

/* Not if it has ended, has too much in flight or before its turn, or holds more than its share. */
static int conn_may_read(const struct conn *conn, int waits)
{
	size_t len = evbuffer_get_length(conn->input);

	return !conn->paused && !conn->at_end && !conn->ended &&
	       !client_is_over_share(&conn->client, len) && !(waits && len >= READ_BYTES);
}

static void conn_flow(struct conn *conn, int waits)
{
	int reads = event_pending(conn->readable, EV_READ, NULL);
	int is_stalled = client_is_over_share(&conn->client, evbuffer_get_length(conn->input));
	int may_read = conn_may_read(conn, waits);

	if (is_stalled && !conn->stalled_ms) {
		conn->stalled_ms = clock_monotonic_ms();
		ticker_start(conn->server->stalled);
	} else if (!is_stalled) {
		conn->stalled_ms = 0;
	}
	if (reads && !may_read)
		event_del(conn->readable);
	if (may_read && (!reads || stream_is_ready(stream_of(conn))))
		stream_watch(stream_of(conn), conn->readable, conn->server->idle);
}

/*
 * A connection that is not read from cannot end its line: reads it again once others hold less, or
 * cuts it.
 */
static int on_stalled(void *context)
{
	struct server *server = context;
	int64_t now_ms = clock_monotonic_ms();
	struct conn *conn;
	int stalled_n = 0;

	LIST_FOREACH (conn, &server->conns, all) {
		if (!conn->stalled_ms || conn->cut || intake_is_stopped(server->intake))
			continue;
		if (now_ms - conn->stalled_ms >= STALLED_MOST_MS)
			client_cut(&conn->client, "the client sends parts of lines");
		else
			conn_flow(conn, conn->client.turn.queue != NULL);
		stalled_n += conn->stalled_ms != 0;
	}
	return stalled_n > 0;
}

static void conn_read(struct conn *conn)
{
	char bytes[STREAM_BYTES];
	ssize_t n;

	conn->has_unread = 0;
	client_meet(&conn->client);
	n = stream_read(stream_of(conn), bytes, READ_BYTES);
	if (n > 0)
		check(evbuffer_add(conn->input, bytes, (size_t)n) == 0);
	else if (n == 0)
		conn->at_end = conn->client.responder.has_left = 1;
	else if (errno != EAGAIN && errno != EINTR)
		conn->cut = 1;
	client_pay_read(&conn->client, n);
}

static int conn_serve(struct turn *turn)
{
	struct conn *conn = turn->owner;
	struct evbuffer *input = conn->input;
	size_t len = evbuffer_get_length(input);
	int more;

	if (conn->cut || intake_is_stopped(conn->server->intake))
		return 0;
	conn->serving = 1;
	if (!event_pending(conn->readable, EV_READ, NULL))
		client_look(&conn->client); /* it may have left while it waited */
	if (conn->has_unread && conn_may_read(conn, len > conn->scanned))
		conn_read(conn);
	len = evbuffer_get_length(input);
	if (len > 0)
		evbuffer_drain(input,
			       conn_lines(conn, (const char *)checked(evbuffer_pullup(input, -1)),
					  len));
	conn->serving = 0;
	conn_hold(conn);
	intake_relieve(conn->server->intake);
	conn->paused = conn_is_full(conn, inflight_max(conn));
	more = !conn->paused && evbuffer_get_length(input) > conn->scanned;
	if (conn->at_end && !conn->paused && !more)
		conn->ended = 1;
	conn_flow(conn, more);
	conn_reap(conn);
	return more;
}

/* Read and served in its turn: what thousands send at once would keep the loop for long. */
static void on_readable(evutil_socket_t fd, short what, void *data)
{
	struct conn *conn = data;

	(void)fd;
	if (what & EV_TIMEOUT) {
		/* Closed, unless something is left to do for a client that was silent so long. */
		if (conn->inflight > 0 || conn->client.turn.queue)
			return;
		metrics_add(METRIC_CONNECTIONS_IDLE, 1);
		conn->cut = 1;
		conn_reap(conn);
		return;
	}
	conn->has_unread = 1;
	if (conn->client.turn.queue || intake_is_stopped(conn->server->intake))
		event_del(conn->readable); /* until it was served */
	else
		turn_enter(&conn->client.turn);
}

static void conn_send(struct conn *conn)
{
	if (stream_write(stream_of(conn), conn->output))
		conn->cut = 1;
	conn_hold(conn);
	if (output_length(conn) > 0) {
		event_add(conn->writable, conn->server->idle);
	} else {
		event_del(conn->writable);
		conn_resume(conn);
	}
	conn_reap(conn);
}

static void on_writable(evutil_socket_t fd, short what, void *data)
{
	struct conn *conn = data;

	(void)fd;
	if (what & EV_TIMEOUT) {
		metrics_add(METRIC_CONNECTIONS_IDLE, 1);
		conn->cut = 1;
		conn_reap(conn);
		return;
	}
	conn_send(conn);
}

static void on_send(evutil_socket_t fd, short what, void *data)
{
	struct server *server = data;
	struct conn *conn;

	(void)fd;
	(void)what;
	while ((conn = TAILQ_FIRST(&server->written))) {
		TAILQ_REMOVE(&server->written, conn, next);
		conn->written = 0;
		if (conn->cut || !event_pending(conn->writable, EV_WRITE, NULL))
			conn_send(conn);
	}
}

void server_accept(void *context, const struct arrival *arrival)
{
	struct server *server = context;
	struct conn *conn = checked(calloc(1, sizeof(*conn)));
	char *text;

	conn->client = (struct client){ .responder = { .reply = conn_reply },
					.turn = { .serve = conn_serve, .owner = conn },
					.cut = on_cut };
	client_open(&conn->client, server->intake, arrival);
	/* One too many is closed, after a reply if the kernel takes that at once. */
	if (arrival->room != ROOM_FREE) {
		text = answer_message_line("", ANSWER_BUSY, arrival_refused(arrival->room));
		if (dprintf(stream_of(conn)->fd, "%s\n", text) < 0)
			log_debug("refuse", LOG_I("fd", stream_of(conn)->fd));
		cJSON_free(text);
		client_close(&conn->client);
		conn_free(conn);
		return;
	}

	conn->server = server;
	conn->input = checked(evbuffer_new());
	conn->output = checked(evbuffer_new());
	conn->readable = checked(event_new(server->base, arrival->stream.fd, EV_READ | EV_PERSIST,
					   on_readable, conn));
	conn->writable = checked(event_new(server->base, arrival->stream.fd, EV_WRITE | EV_PERSIST,
					   on_writable, conn));
	stream_watch(stream_of(conn), conn->readable, server->idle);
	LIST_INSERT_HEAD(&server->conns, conn, all);
	metrics_add(METRIC_CONNECTIONS_TOTAL, 1);
	metrics_add(METRIC_CONNECTIONS, 1);
}

struct server *server_new(struct event_base *base, const struct config *config,
			  struct intake *intake)
{
	struct server *server = checked(calloc(1, sizeof(*server)));
	struct timeval idle = { .tv_sec = config->idle_timeout_ms / 1000,
				.tv_usec = config->idle_timeout_ms % 1000 * 1000 };

	*server = (struct server){ .base = base, .config = config, .intake = intake };
	server->idle = event_base_init_common_timeout(base, &idle);
	TAILQ_INIT(&server->written);
	server->send = checked(event_new(base, -1, 0, on_send, server));
	server->stalled = ticker_new(base, STALLED_TICK_MS, on_stalled, server);
	check(server->idle != NULL);
	return server;
}

void server_stop(struct server *server)
{
	struct conn *conn, *next;

	for (conn = LIST_FIRST(&server->conns); conn; conn = next) {
		next = LIST_NEXT(conn, all);
		event_del(conn->readable);
		conn_hold(conn);
		conn->ended = 1;
		conn_reap(conn);
	}
}
