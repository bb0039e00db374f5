#include "gateway/listen/http.h"

#include "common/check.h"
#include "common/serve/exposition.h"
#include "common/serve/http_reply.h"
#include "common/serve/listener.h"
#include "gateway/listen/http_connections.h"
#include "gateway/metrics.h"

#include <ctype.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdlib.h>
#include <string.h>

#define HEADERS_LIMIT_BYTES 16384
#define TIMEOUT_S 60 /* of an idle or slow HTTP connection */
#define API_PREFIX "/v1/"

struct http {
	struct event_base *base;
	struct evconnlistener *listener; /* evhttp's */
	struct http_connections *connections;
	size_t line_limit_bytes;
	size_t sending; /* replies that are not yet in the kernel */
	int stopped;
	struct evhttp *evhttp;
	struct intake *intake;
	http_ready_fn *ready;
	void *context;
};

/*
 * One request under /v1/, until its reply is sent, or until it is answered after the client has
 * closed the connection.
 */
struct exchange {
	struct responder responder; /* first: a responder is its exchange */
	struct http *http;
	struct evhttp_request *request; /* NULL: the client has closed the connection */
	int replied;
};

static void exchange_sent(struct exchange *exchange)
{
	exchange->http->sending--;
	free(exchange);
}

static void on_sent(struct evhttp_request *request, void *data)
{
	struct exchange *exchange = data;

	evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
	http_connection_replied(exchange->http->connections, request);
	exchange_sent(exchange);
}

/* The client closed the connection: evhttp frees the request. */
static void on_close(struct evhttp_connection *connection, void *data)
{
	struct exchange *exchange = data;

	(void)connection;
	exchange->request = NULL;
	if (exchange->replied)
		exchange_sent(exchange);
}

static void exchange_reply(struct responder *responder, enum answer answer, const char *line,
			   size_t len)
{
	struct exchange *exchange = (struct exchange *)responder;

	intake_answered(exchange->http->intake, answer);
	if (!exchange->request) {
		free(exchange);
		return;
	}
	exchange->replied = 1;
	exchange->http->sending++;
	evhttp_request_set_on_complete_cb(exchange->request, on_sent, exchange);
	if (exchange->http->stopped)
		evhttp_add_header(evhttp_request_get_output_headers(exchange->request),
				  "Connection", "close");
	http_reply_json(exchange->request, answer_http(answer), line, len);
}

static struct responder *exchange_new(struct http *http, struct evhttp_request *request)
{
	struct exchange *exchange = calloc(1, sizeof(*exchange));

	check(exchange != NULL);
	exchange->responder.reply = exchange_reply;
	exchange->http = http;
	exchange->request = request;
	evhttp_connection_set_closecb(evhttp_request_get_connection(request), on_close, exchange);
	return &exchange->responder;
}

/*
 * Whether two hexadecimal digits follow each %, of a byte other than NUL. libevent would leave any
 * other % as it is, and it would end the value at a NUL and read `1%00x` as 1.
 */
static int percent_valid(const char *query)
{
	while ((query = strchr(query, '%'))) {
		if (!isxdigit((unsigned char)query[1]) || !isxdigit((unsigned char)query[2]) ||
		    (query[1] == '0' && query[2] == '0'))
			return 0;
		query += 3;
	}
	return 1;
}

/*
 * The query's parameters as a JSON object's text (malloc), so that there is one parser for all
 * requests; NULL: not a query.
 */
static char *query_object(const char *query)
{
	struct evkeyvalq params;
	struct evkeyval *param;
	cJSON *object;
	char *text;

	if (!percent_valid(query) || evhttp_parse_query_str(query, &params))
		return NULL;
	object = cJSON_CreateObject();
	check(object != NULL);
	TAILQ_FOREACH (param, &params, next)
		cJSON_AddStringToObject(object, param->key, param->value);
	text = cJSON_PrintUnformatted(object);
	check(text != NULL);
	cJSON_Delete(object);
	evhttp_clear_headers(&params);
	return text;
}

static void api_get(struct http *http, struct evhttp_request *request, enum request_op op)
{
	const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
	const char *query = evhttp_uri_get_query(uri);
	struct responder *responder = exchange_new(http, request);
	/* Behind a # that was not encoded there may be the rest of an id. */
	char *text = evhttp_uri_get_fragment(uri) ? NULL : query_object(query ? query : "");

	if (text)
		intake_request(http->intake, text, strlen(text), op, responder);
	else
		intake_refuse(http->intake, responder, ANSWER_BAD_REQUEST,
			      "the query: must be percent-encoded name=value pairs joined by &, "
			      "without NUL");
	free(text);
}

static void api_post(struct http *http, struct evhttp_request *request, enum request_op op)
{
	struct evbuffer *body = evhttp_request_get_input_buffer(request);
	size_t len = evbuffer_get_length(body);
	const char *text = len ? (const char *)evbuffer_pullup(body, -1) : "{}";
	struct responder *responder = exchange_new(http, request);

	if (len > http->line_limit_bytes)
		intake_refuse(http->intake, responder, ANSWER_TOO_LARGE,
			      "the body is longer than COUPON_LINE_LIMIT_BYTES");
	else
		intake_request(http->intake, text, len ? len : 2, op, responder);
	evbuffer_drain(body, len); /* not kept until the reply */
}

static void on_api(struct http *http, struct evhttp_request *request, const char *name)
{
	static const char not_allowed[] =
		"{\"code\":40,\"status\":\"bad_request\",\"message\":\"this path takes POST\"}";
	static const char no_path[] =
		"{\"code\":40,\"status\":\"bad_request\",\"message\":\"no such path\"}";
	enum request_op op = request_op_find(name);
	enum evhttp_cmd_type method = evhttp_request_get_command(request);

	if (http->stopped)
		intake_refuse(http->intake, exchange_new(http, request), ANSWER_UNAVAILABLE,
			      "the gateway is stopping");
	else if (op == OP_COUNT)
		http_reply_json(request, HTTP_NOTFOUND, no_path, sizeof(no_path) - 1);
	else if (method == EVHTTP_REQ_POST)
		api_post(http, request, op);
	else if (method == EVHTTP_REQ_GET && request_op_reads(op))
		api_get(http, request, op);
	else
		http_reply_json(request, HTTP_BADMETHOD, not_allowed, sizeof(not_allowed) - 1);
}

static void on_healthz(struct evhttp_request *request)
{
	http_reply_json(request, HTTP_OK, "{\"status\":\"ok\"}", 15);
}

static void on_readyz(struct http *http, struct evhttp_request *request)
{
	cJSON *body;
	int ready = http->ready(http->context, &body);
	char *text = cJSON_PrintUnformatted(body);

	check(text != NULL);
	http_reply_json(request, ready ? HTTP_OK : HTTP_SERVUNAVAIL, text, strlen(text));
	cJSON_free(text);
	cJSON_Delete(body);
}

static void on_metrics(struct evhttp_request *request)
{
	struct evbuffer *body = evbuffer_new();

	check(body != NULL);
	metrics_prometheus(body);
	http_reply(request, HTTP_OK, EXPOSITION_TYPE, body);
}

/* Of a request that is answered at once. */
static void on_replied(struct evhttp_request *request, void *data)
{
	struct http *http = data;

	http_connection_replied(http->connections, request);
}

static void on_request(struct evhttp_request *request, void *data)
{
	const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
	struct http *http = data;
	enum http_admit admit = http_connection_request(http->connections, request);

	if (!path)
		path = "";
	evhttp_request_set_on_complete_cb(request, on_replied, http);
	if (admit == HTTP_ADMIT_NONE)
		http_connection_refuse(http->connections, request);
	else if (strcmp(path, "/healthz") == 0)
		on_healthz(request);
	else if (strcmp(path, "/readyz") == 0)
		on_readyz(http, request);
	else if (strcmp(path, "/metrics") == 0)
		on_metrics(request);
	else if (admit == HTTP_ADMIT_MONITORING)
		http_connection_refuse(http->connections, request);
	else
		on_api(http, request, strncmp(path, API_PREFIX, 4) == 0 ? path + 4 : "");
}

/* Called by evhttp for each accepted connection. */
static struct bufferevent *on_connection(struct event_base *base, void *data)
{
	struct http *http = data;

	(void)base;
	listener_spare_descriptors(http->listener);
	return http_connection_open(http->connections);
}

struct http *http_new(struct event_base *base, const struct config *config, struct intake *intake,
		      http_ready_fn *ready, void *context)
{
	struct http *http = calloc(1, sizeof(*http));

	check(http != NULL);
	http->evhttp = evhttp_new(base);
	check(http->evhttp != NULL);
	http->base = base;
	http->intake = intake;
	http->ready = ready;
	http->context = context;
	http->line_limit_bytes = (size_t)config->line_limit_bytes;
	http->connections = http_connections_new(base, config, intake);
	/*
	 * Up to this size the reply is JSON; evhttp refuses a longer body with a page of its own.
	 */
	evhttp_set_max_body_size(http->evhttp, 2 * config->line_limit_bytes);
	evhttp_set_max_headers_size(http->evhttp, HEADERS_LIMIT_BYTES);
	evhttp_set_timeout(http->evhttp, TIMEOUT_S);
	evhttp_set_allowed_methods(http->evhttp,
				   EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD);
	evhttp_set_gencb(http->evhttp, on_request, http);
	evhttp_set_bevcb(http->evhttp, on_connection, http);
	return http;
}

void http_listen(struct http *http, int fd)
{
	http->listener = listener_new(http->base, fd, NULL, NULL);
	check(evhttp_bind_listener(http->evhttp, http->listener) != NULL);
}

void http_stop(struct http *http)
{
	http->stopped = 1;
	if (http->listener)
		evconnlistener_disable(http->listener);
}

size_t http_sending(const struct http *http)
{
	return http->sending;
}

void http_free(struct http *http)
{
	if (!http)
		return;
	evhttp_free(http->evhttp);
	http_connections_free(http->connections);
	free(http);
}
