#include "gateway/listen/http_connection.h"

#include "common/check.h"
#include "gateway/listen/http_output.h"
#include "gateway/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_ONCE_BYTES 16384
#define JSON_TYPE "application/json"
#define EXTRA_SIZE 64  /* of one more header */
#define REQUEST_COST 4 /* beside that of its operation (intake.h) */

enum state { RECEIVING, ANSWERING, SENDING };

/* What was read together with a request, and belongs to the next ones. */
struct surplus {
	char *bytes; /* NULL: nothing */
	size_t at;   /* consumed until here */
	size_t len;
};

struct http_connection {
	struct client client; /* first; while SENDING it holds what the kernel did not take */
	struct http_shared *shared;
	struct http_member member; /* waits unless ANSWERING */
	int fd;
	struct event *read;
	enum state state;
	struct http_request request;
	struct surplus surplus;
	struct http_output output;
	int is_unread; /* `read` is not pending: until it is served, and all is answered */
	int is_last;   /* closed after the reply */
	int is_refused;
	int is_held; /* not to be freed */
	int is_closed;
};

static void state_set(struct http_connection *connection, enum state state)
{
	static const unsigned allowed[] = {
		[RECEIVING] = 1u << ANSWERING,
		[ANSWERING] = 1u << RECEIVING | 1u << SENDING,
		[SENDING] = 1u << ANSWERING,
	};

	check(allowed[connection->state] & 1u << state);
	if (connection->state != ANSWERING)
		http_limits_wait_end(&connection->shared->limits, &connection->member);
	connection->shared->sending += (size_t)(state == SENDING);
	connection->shared->sending -= (size_t)(connection->state == SENDING);
	connection->state = state;
	if (state != ANSWERING)
		http_limits_wait(&connection->shared->limits, &connection->member);
}

static struct turns *turns_of(const struct http_connection *connection)
{
	return intake_turns(connection->shared->limits.intake);
}

static void hold(struct http_connection *connection, size_t bytes)
{
	holdings_set(intake_holdings(connection->shared->limits.intake),
		     &connection->client.holding, bytes);
}

static void received_set(struct http_connection *connection, size_t received)
{
	http_limits_received(&connection->shared->limits, &connection->member, received);
}

static void surplus_free(struct surplus *surplus)
{
	free(surplus->bytes);
	*surplus = (struct surplus){ 0 };
}

static void surplus_keep(struct surplus *surplus, const char *bytes, size_t len)
{
	surplus->bytes = malloc(len);
	check(surplus->bytes != NULL);
	memcpy(surplus->bytes, bytes, len);
	surplus->len = len;
}

static void connection_free(struct http_connection *connection)
{
	http_request_fini(&connection->request);
	surplus_free(&connection->surplus);
	free(connection);
}

/*
 * The kernel resets a connection that is closed with bytes unread, and the client may then not get
 * the reply.
 */
static void unread_drop(int fd)
{
	char bytes[READ_ONCE_BYTES];

	for (int i = 0; i < 8 && recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0; i++)
		;
}

void http_connection_close(struct http_connection *connection)
{
	if (connection->state != ANSWERING)
		state_set(connection, ANSWERING);
	received_set(connection, 0);
	event_free(connection->read);
	http_output_fini(&connection->output);
	if (connection->is_refused)
		unread_drop(connection->fd);
	close(connection->fd);
	http_limits_leave(&connection->shared->limits, &connection->member, &connection->client);
	connection->is_closed = 1;
	if (!connection->is_held)
		connection_free(connection);
}

static void read_resume(struct http_connection *connection)
{
	if (connection->is_unread)
		event_add(connection->read, NULL);
	connection->is_unread = 0;
}

static void receive_begin(struct http_connection *connection)
{
	state_set(connection, RECEIVING);
	http_request_reset(&connection->request);
	/* Not from here: the parts that answer must not be called back. */
	if (connection->surplus.bytes)
		turn_enter(turns_of(connection), &connection->client.turn);
	else
		read_resume(connection);
}

static void reply_sent(struct http_connection *connection)
{
	if (connection->is_last)
		http_connection_close(connection);
	else
		receive_begin(connection);
}

static void output_done(void *context, int rc)
{
	struct http_connection *connection = context;

	hold(connection, 0);
	state_set(connection, ANSWERING);
	if (rc)
		http_connection_close(connection);
	else
		reply_sent(connection);
}

static void pieces_send(struct http_connection *connection, const struct iovec *pieces, size_t n)
{
	int rc = http_output_write(&connection->output, pieces, n);

	if (rc < 0) {
		http_connection_close(connection);
	} else if (rc == 0) {
		reply_sent(connection);
	} else {
		state_set(connection, SENDING);
		hold(connection, http_output_length(&connection->output));
		holdings_relieve(intake_holdings(connection->shared->limits.intake));
	}
}

static const char *connection_header(const struct http_connection *connection)
{
	if (connection->is_last)
		return "close";
	return connection->request.parser.http_minor == 0 ? "keep-alive" : NULL;
}

static void reply_send(struct http_connection *connection, struct http_reply *reply)
{
	const http_parser *parser = &connection->request.parser;
	char head[HTTP_HEAD_SIZE];
	struct iovec pieces[] = {
		{ .iov_base = head },
		{ .iov_base = (void *)(uintptr_t)reply->body, .iov_len = reply->len },
		{ .iov_base = (void *)(uintptr_t)reply->end, .iov_len = strlen(reply->end) },
	};
	int is_head_only = (connection->request.complete && parser->method == HTTP_HEAD) ||
			   reply->status == 304;

	check(connection->state == ANSWERING);
	if (connection->member.room != INTAKE_ROOM || connection->is_refused ||
	    intake_is_stopped(connection->shared->limits.intake) || !http_should_keep_alive(parser))
		connection->is_last = 1;
	reply->minor = parser->http_major == 1 ? parser->http_minor : 1;
	reply->connection = connection_header(connection);
	pieces[0].iov_len = http_head_write(reply, head);
	pieces_send(connection, pieces, is_head_only ? 1 : 3);
}

void http_connection_reply(struct http_connection *connection, int status, const char *type,
			   const char *body, size_t len)
{
	reply_send(connection,
		   &(struct http_reply){
			   .status = status, .type = type, .body = body, .len = len, .end = "" });
}

void http_connection_reply_json(struct http_connection *connection, int status, const char *text,
				size_t len)
{
	reply_send(connection, &(struct http_reply){ .status = status,
						     .type = JSON_TYPE,
						     .body = text,
						     .len = len,
						     .end = "\n" });
}

static void refusal_send(struct http_connection *connection, int status, enum answer answer,
			 const char *message, const char *header)
{
	char *text = answer_message_line("", answer, message);

	reply_send(connection, &(struct http_reply){ .status = status,
						     .type = JSON_TYPE,
						     .body = text,
						     .len = strlen(text),
						     .end = "\n",
						     .extra = header });
	cJSON_free(text);
}

void http_connection_reply_refusal(struct http_connection *connection, int status,
				   enum answer answer, const char *message)
{
	refusal_send(connection, status, answer, message, NULL);
}

void http_connection_reply_methods(struct http_connection *connection, const char *allowed)
{
	char header[EXTRA_SIZE], message[EXTRA_SIZE];

	snprintf(header, sizeof(header), "Allow: %s", allowed);
	snprintf(message, sizeof(message), "this path takes %s", allowed);
	refusal_send(connection, 405, ANSWER_BAD_REQUEST, message, header);
}

void http_connection_reply_tagged(struct http_connection *connection, const char *tag,
				  const char *text, size_t len)
{
	char header[EXTRA_SIZE];

	snprintf(header, sizeof(header), "ETag: \"%s\"", tag);
	reply_send(connection,
		   &(struct http_reply){
			   .status = http_request_has_tag(&connection->request, tag) ? 304 : 200,
			   .type = JSON_TYPE,
			   .body = text,
			   .len = len,
			   .end = "",
			   .extra = header });
}

static void intake_reply(struct responder *responder, enum answer answer, const char *line,
			 size_t len)
{
	struct http_connection *connection = (struct http_connection *)responder;

	intake_answered(connection->shared->limits.intake, answer);
	http_connection_reply_json(connection, answer_http(answer), line, len);
}

/* Replies and closes the connection, whatever of the request has not been read. */
static void refuse(struct http_connection *connection, int status, enum answer answer,
		   const char *message)
{
	if (connection->state != ANSWERING)
		state_set(connection, ANSWERING);
	received_set(connection, 0);
	connection->is_refused = 1;
	http_connection_reply_refusal(connection, status, answer, message);
}

int http_connection_is_reserve(const struct http_connection *connection)
{
	return connection->member.room == INTAKE_FULL;
}

void http_connection_refuse_full(struct http_connection *connection)
{
	refuse(connection, 429, ANSWER_BUSY, intake_connection_refused(INTAKE_FULL));
}

struct responder *http_connection_responder(struct http_connection *connection)
{
	return &connection->client.responder;
}

static void continue_send(struct http_connection *connection)
{
	static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";

	connection->request.wants_continue = 0;
	if (send(connection->fd, line, sizeof(line) - 1, MSG_NOSIGNAL) != sizeof(line) - 1)
		http_connection_close(connection);
}

static void request_handle(struct http_connection *connection, size_t left)
{
	struct http_shared *shared = connection->shared;

	received_set(connection, left);
	state_set(connection, ANSWERING);
	turns_spend(turns_of(connection), REQUEST_COST);
	shared->handle(shared->context, connection, &connection->request);
	if (!connection->is_closed)
		http_request_shrink(&connection->request);
}

/* Takes bytes of the request. Returns how many do not belong to it. */
static size_t bytes_take(struct http_connection *connection, const char *bytes, size_t len)
{
	struct http_request *request = &connection->request;
	size_t left = len - http_request_feed(request, bytes, len);

	if (request->complete)
		return left;
	if (request->refusal)
		refuse(connection, request->refusal,
		       request->refusal == 413 ? ANSWER_TOO_LARGE : ANSWER_BAD_REQUEST,
		       request->refusal_text);
	else if (request->wants_continue)
		continue_send(connection);
	else if (http_limits_too_large(&connection->shared->limits, &connection->member))
		refuse(connection, 429, ANSWER_BUSY,
		       "the requests of all clients are too large together");
	return 0;
}

/* The surplus was counted as received when it was read. */
static void surplus_take(struct http_connection *connection)
{
	struct surplus *surplus = &connection->surplus;
	size_t len = surplus->len - surplus->at,
	       left = bytes_take(connection, surplus->bytes + surplus->at, len);

	turns_spend(turns_of(connection), intake_text_cost(len - left));
	surplus->at = surplus->len - left;
	if (left == 0)
		surplus_free(surplus);
}

static void socket_take(struct http_connection *connection)
{
	char bytes[READ_ONCE_BYTES];
	size_t room = http_limits_room(&connection->shared->limits, sizeof(bytes)), left;
	ssize_t n = recv(connection->fd, bytes, room, 0);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		http_connection_close(connection);
	if (n <= 0)
		return;
	received_set(connection, connection->member.received + (size_t)n);
	left = bytes_take(connection, bytes, (size_t)n);
	turns_spend(turns_of(connection), intake_text_cost((size_t)n - left));
	if (left > 0)
		surplus_keep(&connection->surplus, bytes + (size_t)n - left, left);
}

/* Goes on with its request. Returns whether it has to wait for another turn. */
static int advance(struct http_connection *connection)
{
	if (connection->state == RECEIVING && !connection->request.complete) {
		if (connection->surplus.bytes)
			surplus_take(connection);
		else
			socket_take(connection);
	}
	if (connection->is_closed || connection->state != RECEIVING)
		return 0;
	if (!connection->request.complete) {
		read_resume(connection);
		return 0;
	}
	if (!turn_affords(&connection->client.turn, intake_text_cost(connection->request.body.len)))
		return 1;
	request_handle(connection, connection->surplus.len - connection->surplus.at);
	return 0;
}

/* Served in its turn. What arrives until then stays in the kernel. */
static void on_readable(evutil_socket_t fd, short what, void *data)
{
	struct http_connection *connection = data;

	(void)fd;
	(void)what;
	if (connection->state != RECEIVING || connection->surplus.bytes ||
	    connection->client.turn.queue) {
		event_del(connection->read);
		connection->is_unread = 1;
		return;
	}
	turn_enter(turns_of(connection), &connection->client.turn);
}

static int serve(struct turn *turn)
{
	struct http_connection *connection = turn->owner;
	int more;

	connection->is_held = 1;
	more = advance(connection);
	connection->is_held = 0;
	if (connection->is_closed)
		connection_free(connection);
	return more;
}

static void on_cut(void *owner)
{
	http_connection_close(owner);
}

void http_connection_expire(struct http_connection *connection)
{
	if (connection->state == RECEIVING && connection->member.received > 0) {
		refuse(connection, 408, ANSWER_BAD_REQUEST, "the request took too long to arrive");
		return;
	}
	if (connection->state == SENDING)
		metrics_add(METRIC_CONNECTIONS_CUT, 1);
	http_connection_close(connection);
}

static struct http_connection *connection_new(struct http_shared *shared, int fd)
{
	size_t line_limit = (size_t)shared->limits.config->line_limit_bytes;
	struct http_connection *connection = calloc(1, sizeof(*connection));

	check(connection != NULL);
	connection->client = (struct client){ .responder = { .reply = intake_reply },
					      .turn = { .serve = serve, .owner = connection },
					      .holding = { .cut = on_cut, .owner = connection } };
	connection->shared = shared;
	connection->member.connection = connection;
	connection->fd = fd;
	connection->state = ANSWERING;
	connection->read = event_new(shared->base, fd, EV_READ | EV_PERSIST, on_readable,
				     connection);
	check(connection->read != NULL);
	http_output_init(&connection->output, shared->base, fd, output_done, connection);
	/* Up to the second limit the reply is that of a body that was read. */
	http_request_init(&connection->request, 2 * line_limit);
	return connection;
}

void http_connection_open(struct http_shared *shared, int fd)
{
	struct http_connection *connection = connection_new(shared, fd);
	enum intake_room room = http_limits_enter(&shared->limits, &connection->member,
						  &connection->client, fd);

	event_add(connection->read, NULL);
	receive_begin(connection);
	if (room != INTAKE_ROOM)
		refuse(connection, 429, ANSWER_BUSY, intake_connection_refused(room));
}
