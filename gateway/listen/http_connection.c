/*
 * One HTTP connection: its requests, one after the other, and their replies.
 *
 *	               ┌────────────── sent ───────────────┐
 *	accepted ─▶ RECEIVING ─ request ─▶ ANSWERING ─ reply ─▶ SENDING
 *	               └─ too slow, too large, no HTTP ─▶ refused ─▶ LINGERING ─▶ closed
 *
 * The kernel resets a connection that is closed while the client still sends, and the client may
 * then not get the reply. So what a refused client still sends is received and dropped, for at most
 * LINGER_MS and LINGER_BYTES_MAX.
 *
 * A connection counts with those of the socket API. Beyond their limit a few more are served, for
 * monitoring only.
 */
#include "gateway/listen/http.h"

#include "common/check.h"
#include "common/message/trace_context.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define DROP_BYTES 16384
#define DROPS_MAX 8 /* of so many bytes */
#define LINGER_MS 2000
#define LINGER_BYTES_MAX (4 << 20)
#define REQUEST_COST 4       /* beside that of its operation (intake.h) */
#define HEAD_BYTES_MAX 16384 /* of a request */
#define WAIT_MS 60000        /* for one request to arrive, between two, and for one reply */
#define RESERVE 16           /* connections beyond the limit, for monitoring */
#define RESERVE_MS 5000
#define TEXT_KEPT_BYTES 512 /* of each text, from one request to the next */
#define SMALL_BYTES 4096    /* a request of this size is taken whatever the others have sent */

/* The id is read again for the reply, and so is traceparent, which is shorter. */
_Static_assert(TEXT_KEPT_BYTES >= 2 * REQUEST_NAME_MAX, "an id must be kept as it grew");

/* While it is not ANSWERING, it waits for its client. */
static void state_set(struct http_connection *connection, enum http_state state)
{
	static const unsigned allowed[] = {
		[HTTP_RECEIVING] = 1u << HTTP_ANSWERING,
		[HTTP_ANSWERING] = 1u << HTTP_RECEIVING | 1u << HTTP_SENDING | 1u << HTTP_LINGERING,
		[HTTP_SENDING] = 1u << HTTP_RECEIVING | 1u << HTTP_LINGERING,
	};

	check(allowed[connection->state] & 1u << state);
	connection->state = state;
	if (state == HTTP_LINGERING)
		event_add(connection->timer, connection->http->linger);
	else if (state != HTTP_ANSWERING)
		event_add(connection->timer,
			  connection->http->waits[connection->base.arrival.room != ROOM_FREE]);
}

static void received_set(struct http_connection *connection, size_t received)
{
	connection->http->received += received - connection->received;
	connection->received = received;
}

/* Whether all requests together are too large for one that is not small. */
static int is_over(const struct http *http)
{
	return http->received > (size_t)http->config->buffer_bytes;
}

static void http_connection_free(struct http_connection *connection)
{
	http_request_free(&connection->request, 0);
	connection_fini(&connection->base);
	free(connection);
}

/* Receives some of what is there. Returns how many bytes; 0: there will be none; -1 with errno. */
static ssize_t unread_drop(int fd)
{
	char unread[DROP_BYTES];
	ssize_t n = 0, dropped = 0;

	for (int i = 0; i < DROPS_MAX; i++) {
		n = recv(fd, unread, sizeof(unread), MSG_DONTWAIT);
		if (n <= 0)
			break;
		dropped += n;
	}
	return dropped > 0 ? dropped : n;
}

static void http_connection_close(struct http_connection *connection)
{
	int fd = connection->base.arrival.stream.fd,
	    had_reserve = connection->base.arrival.room == ROOM_FULL;

	received_set(connection, 0);
	event_free(connection->timer);
	if (connection->is_refused)
		unread_drop(fd);
	connection_close(&connection->base);
	if (had_reserve) {
		TAILQ_REMOVE(&connection->http->reserve, connection, next);
		connection->http->reserve_n--;
	}
	metrics_add(METRIC_HTTP_CONNECTIONS, -1);
	if (!connection->base.is_serving)
		http_connection_free(connection);
}

static void reply_sent(struct http_connection *connection)
{
	/* Beyond the limit of connections a place is worth more. */
	if (connection->is_refused && connection->base.arrival.room == ROOM_FREE &&
	    !intake_is_stopped(connection->http->intake)) {
		state_set(connection, HTTP_LINGERING);
		http_request_free(&connection->request, 0); /* it is no longer counted */
		stream_end(&connection->base.arrival.stream);
		event_add(connection->base.readable, NULL);
		return;
	}
	if (connection->is_last) {
		http_connection_close(connection);
		return;
	}
	state_set(connection, HTTP_RECEIVING);
	http_request_reset(&connection->request);
	/* Not from here: the parts that answer must not be called back. */
	if (evbuffer_get_length(connection->base.input) > 0)
		turn_enter(&connection->base.turn);
	else
		stream_watch(&connection->base.arrival.stream, connection->base.readable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *data)
{
	struct http_connection *connection = data;

	(void)fd;
	(void)what;
	if (stream_write(&connection->base.arrival.stream, connection->base.output)) {
		http_connection_close(connection);
	} else if (connection_unsent(&connection->base) == 0) {
		event_del(connection->base.writable);
		connection_hold(&connection->base, 0);
		reply_sent(connection);
	}
}

void http_connection_reply(struct http_connection *connection, int status, const char *type,
			   const char *extra, const char *body, size_t len)
{
	const http_parser *parser = &connection->request.parser;
	const struct intake *intake = connection->http->intake;
	struct evbuffer *unsent = connection->base.output;
	const char *end = type ? "" : "\n";
	char head[HTTP_HEAD_SIZE];
	int is_head_only = (connection->request.complete && parser->method == HTTP_HEAD) ||
			   status == 304 || status == 204;

	/* While the gateway drains, a client must go elsewhere once all it sent is answered. */
	check(connection->state == HTTP_ANSWERING);
	if (connection->base.arrival.room != ROOM_FREE || connection->is_refused ||
	    intake_is_stopped(intake) ||
	    (intake_is_draining(intake) && evbuffer_get_length(connection->base.input) == 0) ||
	    !http_should_keep_alive(parser))
		connection->is_last = 1;
	check(evbuffer_add(unsent, head,
			   http_head_write(connection, status, type ? type : HTTP_JSON, extra,
					   len + strlen(end), head)) == 0);
	if (!is_head_only) {
		check(evbuffer_add(unsent, body, len) == 0);
		check(evbuffer_add(unsent, end, strlen(end)) == 0);
	}

	/* What the kernel does not take at once is written when the socket is writable again. */
	if (stream_write(&connection->base.arrival.stream, unsent)) {
		http_connection_close(connection);
	} else if (connection_unsent(&connection->base) == 0) {
		reply_sent(connection);
	} else {
		event_add(connection->base.writable, NULL);
		state_set(connection, HTTP_SENDING);
		connection_hold(&connection->base, connection_unsent(&connection->base));
		intake_relieve(connection->http->intake);
	}
}

static void intake_reply(struct responder *responder, const struct request *request,
			 enum answer answer, const char *line, size_t len)
{
	struct http_connection *connection = (struct http_connection *)responder;

	intake_answered(connection->http->intake, answer);
	http_connection_answer(connection, request, answer_http(answer), answer, NULL, line, len);
}

/* Replies and closes the connection, whatever of the request has not been read. */
static void refuse(struct http_connection *connection, int status, const char *message)
{
	state_set(connection, HTTP_ANSWERING);
	received_set(connection, 0);
	connection->is_refused = 1;
	http_connection_refuse(connection, status, NULL, message);
}

/* The stores were asked for its key. */
static void on_again(struct connection *base)
{
	struct http_connection *connection = (struct http_connection *)base;

	connection->base.is_serving = 1;
	http_handle(connection);
	connection->base.is_serving = 0;
	if (connection->base.is_closed) {
		http_connection_free(connection);
		return;
	}
	base->is_asked = 0;
	http_request_free(&connection->request, TEXT_KEPT_BYTES);
}

/* Takes bytes of the request. Returns how many do not belong to it. */
static size_t bytes_take(struct http_connection *connection, const char *bytes, size_t len)
{
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct http_request *request = &connection->request;
	size_t left = len - http_request_feed(request, bytes, len);

	turns_spend(connection->base.turn.turns, intake_text_cost(len - left));
	if (request->complete)
		return left;
	if (request->refusal) {
		refuse(connection, request->refusal, request->refusal_text);
	} else if (request->wants_continue) {
		request->wants_continue = 0;
		check(evbuffer_add(connection->base.output, go_on, sizeof(go_on) - 1) == 0);
		if (stream_write(&connection->base.arrival.stream, connection->base.output) ||
		    connection_unsent(&connection->base) > 0)
			http_connection_close(connection);
	} else if (is_over(connection->http) && connection->received > SMALL_BYTES) {
		refuse(connection, 429,
		       "the unfinished requests of all clients together are too large");
	}
	return 0;
}

/* Receives bytes of the request: those that came with the one before, or from the socket. */
static void receive(struct http_connection *connection)
{
	char bytes[STREAM_BYTES];
	size_t room = is_over(connection->http) ? SMALL_BYTES : STREAM_READ_BYTES, left;
	size_t surplus = evbuffer_get_length(connection->base.input);
	ssize_t n;

	if (surplus > 0) { /* which was counted as received when it was read */
		left = bytes_take(connection,
				  (const char *)evbuffer_pullup(connection->base.input, -1),
				  surplus);
		evbuffer_drain(connection->base.input, surplus - left);
		return;
	}
	n = connection_read(&connection->base, bytes, room);
	if (n == 0 || n == CONNECTION_BROKEN)
		http_connection_close(connection);
	if (n <= 0)
		return;
	received_set(connection, connection->received + (size_t)n);
	left = bytes_take(connection, bytes, (size_t)n);
	if (left > 0)
		check(evbuffer_add(connection->base.input, bytes + (size_t)n - left, left) == 0);
}

/* Served in its turn. What arrives until then stays in the kernel. */
static void on_readable(evutil_socket_t fd, short what, void *data)
{
	struct http_connection *connection = data;

	(void)what;
	if (connection->state == HTTP_LINGERING) {
		ssize_t n = unread_drop(fd);

		connection->dropped += n > 0 ? (size_t)n : 0;
		if (n == 0 || (n < 0 && errno != EAGAIN) || connection->dropped > LINGER_BYTES_MAX)
			http_connection_close(connection);
		return;
	}
	if (connection->state != HTTP_RECEIVING ||
	    evbuffer_get_length(connection->base.input) > 0 || connection->base.turn.queue) {
		if (connection->state == HTTP_ANSWERING)
			connection_look(&connection->base);
		event_del(connection->base.readable); /* until it is served, and all is answered */
		return;
	}
	turn_enter(&connection->base.turn);
}

/* Goes on with its request. Returns whether it has to wait for another turn. */
static int serve(struct turn *turn)
{
	struct http_connection *connection = turn->owner;
	struct http_request *request = &connection->request;
	int more = 0;

	connection->base.is_serving = 1;
	if (connection->state == HTTP_RECEIVING && !request->complete)
		receive(connection);
	if (connection->base.is_closed || connection->state != HTTP_RECEIVING)
		goto out;
	if (!request->complete) {
		stream_watch(&connection->base.arrival.stream, connection->base.readable, NULL);
		goto out;
	}
	more = !turn_affords(turn, intake_text_cost(request->texts[TEXT_BODY].len));
	if (more)
		goto out;

	received_set(connection, evbuffer_get_length(connection->base.input));
	state_set(connection, HTTP_ANSWERING);
	if (!event_pending(connection->base.readable, EV_READ, NULL))
		connection_look(&connection->base); /* it may have left while it waited */
	turns_spend(turn->turns, REQUEST_COST);
	http_handle(connection);
	if (!connection->base.is_closed && !connection->base.asking)
		http_request_free(request, TEXT_KEPT_BYTES);
out:
	connection->base.is_serving = 0;
	if (connection->base.is_closed)
		http_connection_free(connection);
	return more;
}

/* A request that was admitted before keeps its connection until its reply. */
static void on_cut(struct connection *base)
{
	struct http_connection *connection = (struct http_connection *)base;

	if (connection->state == HTTP_ANSWERING && (!base->asking || base->asked))
		connection->is_last = 1;
	else
		http_connection_close(connection);
}

static void on_timer(evutil_socket_t fd, short what, void *data)
{
	struct http_connection *connection = data;

	(void)fd;
	(void)what;
	if (connection->state == HTTP_ANSWERING)
		return;
	if (connection->state == HTTP_RECEIVING && connection->received > 0) {
		refuse(connection, 408, "the request took too long to arrive");
		return;
	}
	if (connection->state == HTTP_SENDING)
		metrics_add(METRIC_CONNECTIONS_CUT, 1);
	http_connection_close(connection);
}

struct http *http_new(struct event_base *base, const struct config *config, struct intake *intake,
		      size_t body_limit_bytes, http_ready_fn *ready, void *context)
{
	const int64_t most_ms[] = { WAIT_MS, RESERVE_MS }, idle_ms = config->idle_timeout_ms;
	struct http *http = checked(calloc(1, sizeof(*http)));

	*http = (struct http){
		.base = base,
		.config = config,
		.intake = intake,
		.body_limit_bytes = body_limit_bytes,
		.ready = ready,
		.context = context,
	};
	TAILQ_INIT(&http->reserve);
	http_ids_init(&http->ids);
	http_parser_set_max_header_size(HEAD_BYTES_MAX);
	for (int i = 0; i < 2; i++) {
		int64_t ms = idle_ms < most_ms[i] ? idle_ms : most_ms[i];
		struct timeval wait = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

		http->waits[i] = event_base_init_common_timeout(base, &wait);
		check(http->waits[i] != NULL);
	}
	http->linger = checked(
		(void *)event_base_init_common_timeout(base, &(struct timeval){
								     .tv_sec = LINGER_MS / 1000 }));
	return http;
}

void http_accept(void *context, const struct arrival *arrival)
{
	struct http *http = context;
	struct http_connection *connection = checked(calloc(1, sizeof(*connection))), *oldest;

	connection->http = http;
	connection->base = (struct connection){ .responder = { .reply = intake_reply },
						.turn = { .serve = serve, .owner = connection },
						.cut = on_cut,
						.again = on_again };
	connection_open(&connection->base, http->intake, arrival, on_readable, on_writable);
	connection->timer = checked(event_new(http->base, -1, 0, on_timer, connection));
	/* Up to the second limit the reply is that of a body that was read. */
	http_request_init(&connection->request, 2 * http->body_limit_bytes);
	metrics_add(METRIC_HTTP_CONNECTIONS, 1);
	event_add(connection->timer, http->waits[connection->base.arrival.room != ROOM_FREE]);
	stream_watch(&connection->base.arrival.stream, connection->base.readable, NULL);

	if (arrival->room == ROOM_FULL_OF_ADDRESS)
		refuse(connection, 429, arrival_refused(ROOM_FULL_OF_ADDRESS));
	if (arrival->room != ROOM_FULL)
		return;

	/*
	 * A connection in the reserve that has sent nothing gives its place to the next one: else
	 * idle clients would take all places from monitoring.
	 */
	TAILQ_INSERT_TAIL(&http->reserve, connection, next);
	if (++http->reserve_n <= RESERVE)
		return;
	oldest = TAILQ_FIRST(&http->reserve);
	while (oldest->state != HTTP_RECEIVING)
		oldest = TAILQ_NEXT(oldest, next); /* at last the one that has come */
	refuse(oldest, 429, arrival_refused(ROOM_FULL));
}
