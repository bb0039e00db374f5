#include "gateway/listen/lines.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/fault.h"
#include "common/log/log.h"
#include "common/serve/loop.h"
#include "gateway/metrics.h"

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

static const char *const http_begins[] = { "GET ",     "HEAD ",    "POST ",  "PUT ",
					   "DELETE ",  "OPTIONS ", "PATCH ", "TRACE ",
					   "CONNECT ", "PRI ",     "Host:" };

struct line_connection {
	struct connection base; /* first; closed while only its requests are left */
	struct lines *lines;
	LIST_ENTRY(line_connection) all;
	TAILQ_ENTRY(line_connection) next; /* of those with new output */
	size_t inflight;
	size_t scanned;     /* bytes at the front of the input without a line's end */
	int has_unread;     /* to be read in its turn */
	int skipping;       /* in a line that is too long */
	int paused;         /* not read from, until less is in flight */
	int64_t stalled_ms; /* not read from since then, because it holds much; 0: it is */
	int at_end;         /* the client sends no more than what is in the input */
	int ended;          /* nothing more is taken from it */
	int cut;
	int written; /* has new output: is in the list of those */
};

struct lines {
	const struct config *config;
	struct intake *intake;
	size_t line_limit_bytes;
	LIST_HEAD(, line_connection) conns;
	size_t answering_n;     /* connections with something in flight, those closed too */
	struct ticker *stalled; /* while a connection is not read from because it holds much */
	TAILQ_HEAD(, line_connection) written;
	struct event *send;         /* active when `written` is not empty */
	const struct timeval *idle; /* a common timeout, so that thousands of timers are cheap */
};

/*
 * After a change of its input or output. What one that is cut has is freed soon; input is served no
 * more when the intake is stopped.
 */
static void conn_hold(struct line_connection *conn)
{
	size_t bytes = evbuffer_get_length(conn->base.output) +
		       stream_held(&conn->base.arrival.stream);

	if (intake_is_stopped(conn->base.intake))
		bytes = connection_unsent(&conn->base);
	else
		bytes += evbuffer_get_length(conn->base.input);
	connection_hold(&conn->base, conn->cut ? 0 : bytes);
}

/*
 * Closes the connection when it is cut or finished, and frees the object when no request refers to
 * it.
 */
static void conn_reap(struct line_connection *conn)
{
	if (conn->base.is_serving)
		return;
	if (!conn->base.is_closed && !conn->cut && conn->ended && conn->inflight == 0 &&
	    connection_unsent(&conn->base) == 0) {
		/*
		 * When the gateway ends, the client is told so, and what it still sends stays
		 * unread: a socket that is closed with bytes unread is reset, and the client may
		 * then not get its last replies.
		 */
		if (intake_is_stopped(conn->base.intake) && !conn->at_end)
			stream_end(&conn->base.arrival.stream);
		else
			conn->cut = 1;
	}
	if (!conn->base.is_closed && conn->cut) {
		if (conn->written)
			TAILQ_REMOVE(&conn->lines->written, conn, next);
		conn->written = 0;
		LIST_REMOVE(conn, all);
		connection_close(&conn->base);
		metrics_add(METRIC_CONNECTIONS, -1);
	}
	if (conn->base.is_closed && conn->inflight == 0) {
		connection_fini(&conn->base);
		free(conn);
	}
}

/*
 * Whether it has as many requests in flight as it may, much output, or a key that is asked for. One
 * that waits goes on at half as many.
 */
static int conn_is_full(const struct line_connection *conn, int is_waiting)
{
	size_t most = intake_inflight_share(conn->base.intake, conn->lines->answering_n);

	return conn->base.asking || conn->inflight >= (is_waiting ? most / 2 + 1 : most) ||
	       connection_is_over_share(&conn->base, connection_unsent(&conn->base));
}

/*
 * Goes on when half of its requests are answered, so that many lines are taken at once, and enough
 * of its replies are read. In its turn, because the parts that answer must not be called back.
 */
static void conn_resume(struct line_connection *conn)
{
	if (!conn->paused || intake_is_stopped(conn->base.intake) || conn_is_full(conn, 1))
		return;
	conn->paused = 0;
	turn_enter(&conn->base.turn);
}

/*
 * The output is sent when the events of this turn of the loop are handled. Left to libevent, which
 * waits until the socket is writable, each reply costs two changes of what epoll waits for.
 */
static void conn_mark_written(struct line_connection *conn)
{
	struct lines *lines = conn->lines;

	if (conn->written)
		return;
	conn->written = 1;
	if (TAILQ_EMPTY(&lines->written))
		event_active(lines->send, EV_WRITE, 1);
	TAILQ_INSERT_TAIL(&lines->written, conn, next);
}

static void on_cut(struct connection *base)
{
	struct line_connection *conn = (struct line_connection *)base;

	conn->cut = 1;
	conn_mark_written(conn); /* it is closed soon, and not from here */
}

static void conn_reply(struct responder *responder, const struct request *request,
		       enum answer answer, const char *line, size_t len)
{
	struct line_connection *conn = (struct line_connection *)responder;
	struct lines *lines = conn->lines;

	check(conn->inflight > 0);
	lines->answering_n -= (size_t)(--conn->inflight == 0);
	intake_answered(lines->intake, answer);
	if (intake_logs(lines->intake))
		access_log(&conn->base, request, answer, NULL);
	if (conn->base.is_closed || conn->cut) {
		conn_reap(conn);
		return;
	}

	fault_point_half(FAULT_GATEWAY_MID_REPLY, conn->base.arrival.stream.fd, line, len);
	check(evbuffer_add(conn->base.output, line, len) == 0);
	check(evbuffer_add(conn->base.output, "\n", 1) == 0);
	conn_mark_written(conn);
	conn_hold(conn);
	if ((int64_t)connection_unsent(&conn->base) > lines->config->output_limit_bytes)
		connection_cut(&conn->base, "the client does not read its replies");
	else
		intake_relieve(lines->intake);
	if (!conn->cut)
		conn_resume(conn);
	conn_reap(conn);
}

static void conn_line(struct line_connection *conn, const char *line, size_t len)
{
	struct lines *lines = conn->lines;
	int is_http = 0;
	char message[128];

	if (len > 0 && line[len - 1] == '\r')
		len--;
	if (len == 0) {
		turns_spend(conn->base.turn.turns, EMPTY_LINE_COST);
		return;
	}
	/*
	 * A line of HTTP, or the preface of HTTP/2: a web page can make a browser send HTTP to any
	 * port, with a body that the page chooses. Nothing more is taken from the client, so that
	 * the body is not executed.
	 */
	for (size_t i = 0; *line != '{' && i < sizeof(http_begins) / sizeof(http_begins[0]); i++)
		is_http |= len >= strlen(http_begins[i]) &&
			   strncasecmp(line, http_begins[i], strlen(http_begins[i])) == 0;
	if (is_http) {
		log_warn("connection_http",
			 LOG_S("reason", "a client sent HTTP to the socket API"));
		metrics_add(METRIC_CONNECTIONS_HTTP, 1);
		conn->ended = 1;
		return;
	}
	lines->answering_n += (size_t)(conn->inflight++ == 0);
	if (len <= lines->line_limit_bytes) {
		intake_request(lines->intake, line, len, OP_COUNT, &conn->base.responder);
		return;
	}
	snprintf(message, sizeof(message), "the line is longer than %zu bytes",
		 lines->line_limit_bytes);
	intake_refuse(lines->intake, &conn->base.responder, ANSWER_TOO_LARGE, message);
}

/*
 * Takes the complete lines of `len` bytes, as many as its turn and the limit allow; returns how
 * many bytes were consumed.
 */
static size_t conn_lines(struct line_connection *conn, const char *data, size_t len)
{
	const char *at = data, *end = data + len, *stop;
	size_t left;

	while (!conn->cut && !conn->ended) {
		left = (size_t)(end - at);
		if (turn_is_over(&conn->base.turn) ||
		    conn_is_full(conn, 0)) /* what is left is scanned later */
			return (size_t)(at - data);
		stop = memchr(at + conn->scanned, '\n', left - conn->scanned);
		if (!stop) {
			/* A part of a line; one that is too long is answered at once. */
			conn->scanned = left;
			if (left > conn->lines->line_limit_bytes + 1 && !conn->skipping) {
				conn->skipping = 1;
				conn_line(conn, at, left);
			}
			if (!conn->skipping)
				return (size_t)(at - data);
			conn->scanned = 0;
			return len;
		}
		if (!conn->skipping &&
		    !turn_affords(&conn->base.turn, intake_text_cost((size_t)(stop - at))))
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
static int conn_may_read(const struct line_connection *conn, int waits)
{
	size_t len = evbuffer_get_length(conn->base.input);

	return !conn->paused && !conn->at_end && !conn->ended &&
	       !connection_is_over_share(&conn->base, len) && !(waits && len >= READ_BYTES);
}

static void conn_flow(struct line_connection *conn, int waits)
{
	int reads = event_pending(conn->base.readable, EV_READ, NULL);
	int is_stalled = connection_is_over_share(&conn->base,
						  evbuffer_get_length(conn->base.input));
	int may_read = conn_may_read(conn, waits);

	if (is_stalled && !conn->stalled_ms) {
		conn->stalled_ms = clock_monotonic_ms();
		ticker_start(conn->lines->stalled);
	} else if (!is_stalled) {
		conn->stalled_ms = 0;
	}
	if (reads && !may_read)
		event_del(conn->base.readable);
	if (may_read && (!reads || stream_is_ready(&conn->base.arrival.stream)))
		stream_watch(&conn->base.arrival.stream, conn->base.readable, conn->lines->idle);
}

/*
 * A connection that is not read from cannot end its line: reads it again once others hold less, or
 * cuts it.
 */
static int on_stalled(void *context)
{
	struct lines *lines = context;
	int64_t now_ms = clock_monotonic_ms();
	struct line_connection *conn;
	int stalled_n = 0;

	LIST_FOREACH (conn, &lines->conns, all) {
		if (!conn->stalled_ms || conn->cut || intake_is_stopped(lines->intake))
			continue;
		if (now_ms - conn->stalled_ms >= STALLED_MOST_MS)
			connection_cut(&conn->base,
				       "the client sent an incomplete line and no rest of it");
		else
			conn_flow(conn, conn->base.turn.queue != NULL);
		stalled_n += conn->stalled_ms != 0;
	}
	return stalled_n > 0;
}

static int conn_serve(struct turn *turn)
{
	struct line_connection *conn = turn->owner;
	struct evbuffer *input = conn->base.input;
	size_t len = evbuffer_get_length(input);
	int more;

	if (conn->cut || intake_is_stopped(conn->base.intake))
		return 0;
	conn->base.is_serving = 1;
	if (!event_pending(conn->base.readable, EV_READ, NULL))
		connection_look(&conn->base); /* it may have left while it waited */
	if (conn->has_unread && conn_may_read(conn, len > conn->scanned)) {
		char bytes[STREAM_BYTES];
		ssize_t n = connection_read(&conn->base, bytes, READ_BYTES);

		conn->has_unread = 0;
		if (n > 0)
			check(evbuffer_add(conn->base.input, bytes, (size_t)n) == 0);
		else if (n == 0)
			conn->at_end = conn->base.responder.has_left = 1;
		else if (n == CONNECTION_BROKEN)
			conn->cut = 1;
	}
	len = evbuffer_get_length(input);
	if (len > 0)
		evbuffer_drain(input,
			       conn_lines(conn, (const char *)checked(evbuffer_pullup(input, -1)),
					  len));
	conn->base.is_serving = 0;
	conn_hold(conn);
	intake_relieve(conn->base.intake);
	conn->paused = conn_is_full(conn, 0);
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
	struct line_connection *conn = data;

	(void)fd;
	if (what & EV_TIMEOUT) {
		/* Closed, unless something is left to do for a client that was silent so long. */
		if (conn->inflight > 0 || conn->base.turn.queue)
			return;
		metrics_add(METRIC_CONNECTIONS_IDLE, 1);
		conn->cut = 1;
		conn_reap(conn);
		return;
	}
	conn->has_unread = 1;
	if (conn->base.turn.queue || intake_is_stopped(conn->base.intake))
		event_del(conn->base.readable); /* until it was served */
	else
		turn_enter(&conn->base.turn);
}

static void conn_send(struct line_connection *conn)
{
	if (stream_write(&conn->base.arrival.stream, conn->base.output))
		conn->cut = 1;
	conn_hold(conn);
	if (connection_unsent(&conn->base) > 0) {
		event_add(conn->base.writable, conn->lines->idle);
	} else {
		event_del(conn->base.writable);
		conn_resume(conn);
	}
	conn_reap(conn);
}

static void on_writable(evutil_socket_t fd, short what, void *data)
{
	struct line_connection *conn = data;

	(void)fd;
	if (what & EV_TIMEOUT) {
		metrics_add(METRIC_CONNECTIONS_IDLE, 1);
		conn->cut = 1;
		conn_reap(conn);
	} else {
		conn_send(conn);
	}
}

static void on_send(evutil_socket_t fd, short what, void *data)
{
	struct lines *lines = data;
	struct line_connection *conn;

	(void)fd;
	(void)what;
	while ((conn = TAILQ_FIRST(&lines->written))) {
		TAILQ_REMOVE(&lines->written, conn, next);
		conn->written = 0;
		if (conn->cut || !event_pending(conn->base.writable, EV_WRITE, NULL))
			conn_send(conn);
	}
}

void lines_accept(void *context, const struct arrival *arrival)
{
	struct lines *lines = context;
	struct line_connection *conn = checked(calloc(1, sizeof(*conn)));
	char *text;

	conn->lines = lines;
	conn->base = (struct connection){ .responder = { .reply = conn_reply },
					  .turn = { .serve = conn_serve, .owner = conn },
					  .cut = on_cut };
	connection_open(&conn->base, lines->intake, arrival, on_readable, on_writable);
	/* One too many is closed, after a reply if the kernel takes that at once. */
	if (arrival->room != ROOM_FREE) {
		text = answer_message_line("", ANSWER_BUSY, arrival_refused(arrival->room));
		if (dprintf(arrival->stream.fd, "%s\n", text) < 0)
			log_debug("refuse", LOG_I("fd", arrival->stream.fd));
		cJSON_free(text);
		connection_close(&conn->base);
		connection_fini(&conn->base);
		free(conn);
		return;
	}

	stream_watch(&conn->base.arrival.stream, conn->base.readable, lines->idle);
	LIST_INSERT_HEAD(&lines->conns, conn, all);
	metrics_add(METRIC_CONNECTIONS_TOTAL, 1);
	metrics_add(METRIC_CONNECTIONS, 1);
}

struct lines *lines_new(struct event_base *base, const struct config *config, struct intake *intake,
			size_t line_limit_bytes)
{
	struct lines *lines = checked(calloc(1, sizeof(*lines)));
	struct timeval idle = { .tv_sec = config->idle_timeout_ms / 1000,
				.tv_usec = config->idle_timeout_ms % 1000 * 1000 };

	*lines = (struct lines){ .config = config,
				 .intake = intake,
				 .line_limit_bytes = line_limit_bytes };
	lines->idle = event_base_init_common_timeout(base, &idle);
	TAILQ_INIT(&lines->written);
	lines->send = checked(event_new(base, -1, 0, on_send, lines));
	lines->stalled = ticker_new(base, STALLED_TICK_MS, on_stalled, lines);
	check(lines->idle != NULL);
	return lines;
}

void lines_stop(struct lines *lines)
{
	struct line_connection *conn, *next;

	for (conn = LIST_FIRST(&lines->conns); conn; conn = next) {
		next = LIST_NEXT(conn, all);
		event_del(conn->base.readable);
		conn_hold(conn);
		conn->ended = 1;
		conn_reap(conn);
	}
}
