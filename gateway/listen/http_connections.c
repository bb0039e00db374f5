#include "gateway/listen/http_connections.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/serve/http_reply.h"
#include "gateway/metrics.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <uthash.h>

#define HEADERS_MAX 100
#define SMALL_BYTES 4096 /* a request of this size is taken whatever the others have sent */
#define RECEIVE_MS 60000 /* for one request to arrive, and between two */
#define RESERVE 16       /* connections beyond the limit, for monitoring */
#define RESERVE_MS 5000
#define TICK_MS 50
#define SWEEP_N 1000 /* connections looked at in one tick */
#define SWEEP_PAUSE_MS 5

enum state { RECEIVING, ANSWERING, REFUSED };

/* Why a connection is refused. */
enum refusal { REFUSAL_FULL, REFUSAL_SLOW, REFUSAL_HEADERS, REFUSAL_BYTES };

static const struct {
	int status;
	const char *reason;
	enum answer answer;
	const char *message;
} refusals[] = {
	[REFUSAL_FULL] = { 429, "Too Many Requests", ANSWER_BUSY, "too many connections" },
	[REFUSAL_SLOW] = { 408, "Request Timeout", ANSWER_BAD_REQUEST,
			   "the request took too long to arrive" },
	[REFUSAL_HEADERS] = { 431, "Request Header Fields Too Large", ANSWER_BAD_REQUEST,
			      "the request has more than 100 headers" },
	[REFUSAL_BYTES] = { 429, "Too Many Requests", ANSWER_BUSY,
			    "the requests of all clients are too large together" },
};

struct http_connection {
	struct http_connections *all;
	/*
	 * Referenced, so that it outlives evhttp's connection: it is then without callbacks, and
	 * its descriptor is still open and not given to another connection.
	 */
	struct bufferevent *bev;
	UT_hash_handle hh; /* by bev */
	TAILQ_ENTRY(http_connection) next;
	enum state state;
	enum refusal refusal;
	int64_t until_ms; /* RECEIVING: the request must have arrived */
	size_t received;  /* bytes of the request so far */
	int lines;        /* of its head so far */
	int line_begun;
	int head_ended;
	int is_reserve; /* not counted by intake */
	int is_new;     /* REFUSED, and the reply is not yet sent */
	int gets_reply; /* REFUSED */
};

struct http_connections {
	const struct config *config;
	struct intake *intake;
	struct http_connection *by_bev;
	TAILQ_HEAD(, http_connection) list; /* the next one to be looked at first */
	size_t n;
	size_t reserve_n;
	size_t received; /* sum */
	int64_t swept_ms;
	struct event *tick;
	struct event *refuse; /* to send replies of REFUSED connections outside of evhttp */
};

static int64_t receive_ms(const struct http_connection *connection)
{
	int64_t idle_ms = connection->all->config->idle_timeout_ms;
	int64_t most_ms = connection->is_reserve ? RESERVE_MS : RECEIVE_MS;

	return idle_ms < most_ms ? idle_ms : most_ms;
}

static void received_set(struct http_connection *connection, size_t received)
{
	connection->all->received += received - connection->received;
	connection->received = received;
}

/* evhttp has freed its connection. */
static int is_closed(const struct http_connection *connection)
{
	bufferevent_event_cb on_event;

	bufferevent_getcb(connection->bev, NULL, NULL, &on_event, NULL);
	return on_event == NULL;
}

static void on_input(struct evbuffer *input, const struct evbuffer_cb_info *info, void *data);

static void connection_free(struct http_connection *connection)
{
	struct http_connections *all = connection->all;

	received_set(connection, 0);
	HASH_DELETE(hh, all->by_bev, connection);
	TAILQ_REMOVE(&all->list, connection, next);
	all->n--;
	if (connection->is_reserve)
		all->reserve_n--;
	else
		intake_connection_close(all->intake);
	evbuffer_remove_cb(bufferevent_get_input(connection->bev), on_input, connection);
	bufferevent_decref(connection->bev);
	free(connection);
	metrics_set(METRIC_HTTP_CONNECTIONS, (int64_t)all->n);
}

static void refuse(struct http_connection *connection, enum refusal refusal)
{
	connection->state = REFUSED;
	connection->refusal = refusal;
	connection->is_new = 1;
	/* A connection that is idle between two requests gets no reply. */
	connection->gets_reply = connection->received > 0 || refusal == REFUSAL_FULL;
	received_set(connection, 0); /* at once: the next one need not be refused as well */
	event_active(connection->all->refuse, EV_TIMEOUT, 1);
}

static int refusal_body(enum refusal refusal, char *body, size_t size)
{
	return snprintf(body, size, "{\"code\":%d,\"status\":\"%s\",\"message\":\"%s\"}",
			answer_code(refusals[refusal].answer),
			answer_status(refusals[refusal].answer), refusals[refusal].message);
}

/* Replies if the kernel takes it at once, and ends the stream: evhttp then frees the connection. */
static void refusal_send(struct http_connection *connection)
{
	int fd = bufferevent_getfd(connection->bev);
	char body[256], reply[512];
	int n = refusal_body(connection->refusal, body, sizeof(body));

	connection->is_new = 0;
	n = snprintf(reply, sizeof(reply),
		     "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
		     "Connection: close\r\n\r\n%s\n",
		     refusals[connection->refusal].status, refusals[connection->refusal].reason,
		     n + 1, body);
	if (connection->gets_reply)
		if (send(fd, reply, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			metrics_add(METRIC_CONNECTIONS_CUT, 1);
	shutdown(fd, SHUT_RDWR);
	evbuffer_drain(bufferevent_get_input(connection->bev), SIZE_MAX);
}

static void on_refuse(evutil_socket_t fd, short what, void *data)
{
	struct http_connections *all = data;
	struct http_connection *connection;

	(void)fd;
	(void)what;
	TAILQ_FOREACH (connection, &all->list, next)
		if (connection->is_new && !is_closed(connection))
			refusal_send(connection);
}

/* Counts the lines of the request's head. */
static void head_scan(struct http_connection *connection, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len && !connection->head_ended; i++) {
		if (bytes[i] == '\n') {
			connection->head_ended = connection->lines > 0 && !connection->line_begun;
			connection->lines++;
			connection->line_begun = 0;
		} else if (bytes[i] != '\r') {
			connection->line_begun = 1;
		}
	}
}

/* Takes note of the last `len` bytes of the input. */
static void bytes_take(struct http_connection *connection, struct evbuffer *input, size_t len)
{
	struct http_connections *all = connection->all;
	struct evbuffer_ptr at;
	char piece[1024];

	received_set(connection, connection->received + len);
	if (connection->head_ended)
		len = 0;
	if (len > 0)
		evbuffer_ptr_set(input, &at, evbuffer_get_length(input) - len, EVBUFFER_PTR_SET);
	while (len > 0) {
		size_t n = len < sizeof(piece) ? len : sizeof(piece);

		if (evbuffer_copyout_from(input, &at, piece, n) != (ev_ssize_t)n)
			break;
		head_scan(connection, piece, n);
		len -= n;
		if (len > 0)
			evbuffer_ptr_set(input, &at, n, EVBUFFER_PTR_ADD);
	}
	if (connection->lines > HEADERS_MAX + 2) /* the first line and the empty one */
		refuse(connection, REFUSAL_HEADERS);
	else if (all->received > (size_t)all->config->http_buffer_bytes &&
		 connection->received > SMALL_BYTES)
		refuse(connection, REFUSAL_BYTES);
}

static void on_input(struct evbuffer *input, const struct evbuffer_cb_info *info, void *data)
{
	struct http_connection *connection = data;

	if (info->n_added > 0 && connection->state == RECEIVING)
		bytes_take(connection, input, info->n_added);
}

static void connection_look(struct http_connection *connection, int64_t now_ms)
{
	if (is_closed(connection))
		connection_free(connection);
	else if (connection->state == RECEIVING && now_ms >= connection->until_ms)
		refuse(connection, REFUSAL_SLOW);
}

/* Looks at the first `n` connections and moves them to the end. */
static void sweep(struct http_connections *all, size_t n)
{
	int64_t now_ms = clock_monotonic_ms();
	struct http_connection *connection;

	for (n = n < all->n ? n : all->n; n > 0; n--) {
		connection = TAILQ_FIRST(&all->list);
		TAILQ_REMOVE(&all->list, connection, next);
		TAILQ_INSERT_TAIL(&all->list, connection, next);
		connection_look(connection, now_ms);
	}
}

static void on_tick(evutil_socket_t fd, short what, void *data)
{
	(void)fd;
	(void)what;
	sweep(data, SWEEP_N);
}

/* Frees the closed connections at once; not too often, as it looks at all of them. */
static void room_make(void *context)
{
	struct http_connections *all = context;
	int64_t now_ms = clock_monotonic_ms();
	size_t n = all->n;

	if (now_ms < all->swept_ms + SWEEP_PAUSE_MS)
		return;
	sweep(all, SIZE_MAX);
	if (all->n == n)
		all->swept_ms = now_ms;
}

struct bufferevent *http_connection_open(struct http_connections *all)
{
	struct http_connection *connection = calloc(1, sizeof(*connection));

	check(connection != NULL);
	connection->all = all;
	connection->bev = bufferevent_socket_new(event_get_base(all->tick), -1,
						 BEV_OPT_CLOSE_ON_FREE);
	check(connection->bev != NULL);
	bufferevent_incref(connection->bev);
	connection->is_reserve = intake_connection_open(all->intake) != 0;
	connection->until_ms = clock_monotonic_ms() + receive_ms(connection);
	HASH_ADD_PTR(all->by_bev, bev, connection);
	TAILQ_INSERT_TAIL(&all->list, connection, next);
	all->n++;
	metrics_set(METRIC_HTTP_CONNECTIONS, (int64_t)all->n);
	evbuffer_add_cb(bufferevent_get_input(connection->bev), on_input, connection);
	if (connection->is_reserve && ++all->reserve_n > RESERVE) {
		metrics_add(METRIC_CONNECTIONS_REFUSED, 1);
		refuse(connection, REFUSAL_FULL);
	}
	return connection->bev;
}

static struct http_connection *connection_of(struct http_connections *all,
					     struct evhttp_request *request)
{
	struct bufferevent *bev = evhttp_connection_get_bufferevent(
		evhttp_request_get_connection(request));
	struct http_connection *connection;

	HASH_FIND_PTR(all->by_bev, &bev, connection);
	check(connection != NULL);
	return connection;
}

static int headers_n(struct evhttp_request *request)
{
	struct evkeyval *header;
	int n = 0;

	TAILQ_FOREACH (header, evhttp_request_get_input_headers(request), next)
		n++;
	return n;
}

enum http_admit http_connection_request(struct http_connections *all,
					struct evhttp_request *request)
{
	struct http_connection *connection = connection_of(all, request);

	if (connection->state == RECEIVING && headers_n(request) > HEADERS_MAX) {
		connection->state = REFUSED;
		connection->refusal = REFUSAL_HEADERS;
	}
	/* What is left belongs to the next request, and is not read on before the reply. */
	received_set(connection, evbuffer_get_length(bufferevent_get_input(connection->bev)));
	if (connection->state == REFUSED) {
		connection->is_new = 0;
		return HTTP_ADMIT_NONE;
	}
	connection->state = ANSWERING;
	if (!connection->is_reserve)
		return HTTP_ADMIT_ALL;
	evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
	return HTTP_ADMIT_MONITORING;
}

void http_connection_refuse(struct http_connections *all, struct evhttp_request *request)
{
	struct http_connection *connection = connection_of(all, request);
	enum refusal refusal = connection->state == REFUSED ? connection->refusal : REFUSAL_FULL;
	char body[256];
	int n = refusal_body(refusal, body, sizeof(body));

	if (refusal == REFUSAL_FULL)
		metrics_add(METRIC_CONNECTIONS_REFUSED, 1);
	evhttp_remove_header(evhttp_request_get_output_headers(request), "Connection");
	evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
	http_reply_json(request, refusals[refusal].status, body, (size_t)n);
}

void http_connection_replied(struct http_connections *all, struct evhttp_request *request)
{
	struct http_connection *connection = connection_of(all, request);
	struct evbuffer *input = bufferevent_get_input(connection->bev);

	if (connection->state == REFUSED)
		return;
	connection->state = RECEIVING;
	connection->until_ms = clock_monotonic_ms() + receive_ms(connection);
	connection->lines = connection->line_begun = connection->head_ended = 0;
	received_set(connection, 0);
	bytes_take(connection, input, evbuffer_get_length(input));
}

struct http_connections *http_connections_new(struct event_base *base, const struct config *config,
					      struct intake *intake)
{
	struct http_connections *all = calloc(1, sizeof(*all));
	struct timeval tick = { .tv_usec = TICK_MS * 1000 };

	check(all != NULL);
	all->config = config;
	all->intake = intake;
	TAILQ_INIT(&all->list);
	all->tick = event_new(base, -1, EV_PERSIST, on_tick, all);
	all->refuse = event_new(base, -1, 0, on_refuse, all);
	check(all->tick != NULL && all->refuse != NULL);
	event_add(all->tick, &tick);
	intake_on_full(intake, room_make, all);
	return all;
}

void http_connections_free(struct http_connections *all)
{
	sweep(all, SIZE_MAX);
	check(all->n == 0);
	intake_on_full(all->intake, NULL, NULL);
	event_free(all->tick);
	event_free(all->refuse);
	free(all);
}
