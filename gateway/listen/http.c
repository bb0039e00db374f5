#include "gateway/listen/http.h"

#include "common/check.h"
#include "common/serve/exposition.h"
#include "common/serve/listener.h"
#include "embed.h"
#include "gateway/listen/http_connections.h"
#include "gateway/metrics.h"

#include <ctype.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_SHOWN 80 /* bytes of a name that an error repeats */
#define API_PREFIX "/v1/"

struct http {
	struct event_base *base;
	struct evconnlistener *listener;
	struct http_connections *connections;
	size_t line_limit_bytes;
	int stopped;
	struct intake *intake;
	http_ready_fn *ready;
	void *context;
};

/* The parts of a request's target, in its text. */
struct target {
	const char *path;
	const char *query;
	int has_fragment;
};

/* Ends the part with a NUL; "" where there is none. */
static const char *part_end(char *text, const struct http_parser_url *url,
			    enum http_parser_url_fields part)
{
	if (!(url->field_set & 1u << part))
		return "";
	text += url->field_data[part].off;
	text[url->field_data[part].len] = '\0';
	return text;
}

/* 0, or -1: it is neither a path nor a URL. */
static int target_parse(struct http_text *text, struct target *target)
{
	struct http_parser_url url;

	target->has_fragment = memchr(text->bytes, '#', text->len) != NULL; /* an empty one, too */
	http_parser_url_init(&url);
	if (http_parser_parse_url(text->bytes, text->len, 0, &url))
		return -1;
	target->path = part_end(text->bytes, &url, UF_PATH);
	target->query = part_end(text->bytes, &url, UF_QUERY);
	return 0;
}

/*
 * The first % of the query that is not followed by two hexadecimal digits, or is followed by those
 * of NUL; NULL: there is none. libevent would leave such a % as it is, and it would end the value
 * at a NUL and read `1%00x` as 1.
 */
static const char *percent_fault(const char *query)
{
	while ((query = strchr(query, '%'))) {
		if (!isxdigit((unsigned char)query[1]) || !isxdigit((unsigned char)query[2]) ||
		    (query[1] == '0' && query[2] == '0'))
			return query;
		query += 3;
	}
	return NULL;
}

/* Refuses a query because of the byte at `fault`. NULL: because of its form. */
static void query_refuse(struct http *http, struct responder *responder, const char *query,
			 const char *fault)
{
	static const char allowed[] =
		"must be percent-encoded name=value pairs joined by &, without NUL";
	char why[256];
	const char *name = fault, *value;
	size_t byte = 1;

	while (name && name > query && name[-1] != '&')
		name--;
	value = name ? memchr(name, '=', (size_t)(fault - name)) : NULL;
	for (const char *p = value ? value + 1 : fault; p < fault; p += *p == '%' ? 3 : 1)
		byte++;
	if (value)
		snprintf(why, sizeof(why), "%.*s: byte %zu is not allowed: the query %s",
			 (int)(value - name < NAME_SHOWN ? value - name : NAME_SHOWN), name, byte,
			 allowed);
	else
		snprintf(why, sizeof(why), "the query: %s", allowed);
	intake_refuse(http->intake, responder, ANSWER_BAD_REQUEST, why);
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

	if (evhttp_parse_query_str(query, &params))
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

/* Behind a # that was not encoded there may be the rest of an id. */
static void api_get(struct http *http, struct http_connection *connection,
		    const struct target *target, enum request_op op)
{
	struct responder *responder = http_connection_responder(connection);
	const char *fault = percent_fault(target->query);
	char *text = target->has_fragment || fault ? NULL : query_object(target->query);

	if (text)
		intake_request(http->intake, text, strlen(text), op, responder);
	else
		query_refuse(http, responder, target->query, fault);
	free(text);
}

static void api_post(struct http *http, struct http_connection *connection,
		     const struct http_text *body, enum request_op op)
{
	struct responder *responder = http_connection_responder(connection);

	if (body->len > http->line_limit_bytes)
		intake_refuse(http->intake, responder, ANSWER_TOO_LARGE,
			      "the body is longer than COUPON_LINE_LIMIT_BYTES");
	else if (body->len > 0)
		intake_request(http->intake, body->bytes, body->len, op, responder);
	else
		intake_request(http->intake, "{}", 2, op, responder);
}

static void on_api(struct http *http, struct http_connection *connection,
		   const struct http_request *request, const struct target *target)
{
	static const char no_path[] =
		"{\"code\":40,\"status\":\"bad_request\",\"message\":\"no such path\"}";
	int is_api = strncmp(target->path, API_PREFIX, strlen(API_PREFIX)) == 0;
	enum request_op op = request_op_find(is_api ? target->path + strlen(API_PREFIX) : "");

	if (http->stopped)
		intake_refuse(http->intake, http_connection_responder(connection),
			      ANSWER_UNAVAILABLE, "the gateway is stopping");
	else if (op == OP_COUNT)
		http_connection_reply_json(connection, 404, no_path, sizeof(no_path) - 1);
	else if (request->parser.method == HTTP_POST)
		api_post(http, connection, &request->body, op);
	else if (request->parser.method == HTTP_GET && request_op_reads(op))
		api_get(http, connection, target, op);
	else
		http_connection_reply_methods(connection,
					      request_op_reads(op) ? "GET, POST" : "POST");
}

static void on_healthz(struct http *http, struct http_connection *connection)
{
	(void)http;
	http_connection_reply_json(connection, 200, "{\"status\":\"ok\"}", 15);
}

static void on_readyz(struct http *http, struct http_connection *connection)
{
	cJSON *body;
	int ready = http->ready(http->context, &body);
	char *text = cJSON_PrintUnformatted(body);

	check(text != NULL);
	http_connection_reply_json(connection, ready ? 200 : 503, text, strlen(text));
	cJSON_free(text);
	cJSON_Delete(body);
}

static void on_metrics(struct http *http, struct http_connection *connection)
{
	struct evbuffer *body = evbuffer_new();
	size_t len;

	(void)http;
	check(body != NULL);
	metrics_prometheus(body);
	len = evbuffer_get_length(body);
	http_connection_reply(connection, 200, EXPOSITION_TYPE,
			      (const char *)evbuffer_pullup(body, -1), len);
	evbuffer_free(body);
}

static void on_openapi(struct http *http, struct http_connection *connection)
{
	(void)http;
	http_connection_reply_tagged(connection, docs_openapi_tag, docs_openapi,
				     strlen(docs_openapi));
}

struct page {
	const char *path;
	void (*answer)(struct http *http, struct http_connection *connection);
	int is_monitoring;
};

static const struct page pages[] = {
#define PAGE(path, answer, is_monitoring) { path, answer, is_monitoring },
#include "gateway/listen/http_page_table.h"
#undef PAGE
};

/* NULL: the path belongs to the operations. */
static const struct page *page_find(const char *path)
{
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		if (strcmp(pages[i].path, path) == 0)
			return &pages[i];
	return NULL;
}

static void on_page(struct http *http, struct http_connection *connection,
		    const struct http_request *request, const struct page *page)
{
	if (request->parser.method == HTTP_POST)
		http_connection_reply_methods(connection, "GET, HEAD");
	else
		page->answer(http, connection);
}

static void route(struct http *http, struct http_connection *connection,
		  const struct http_request *request, const struct target *target)
{
	const struct page *page = page_find(target->path);

	if (http_connection_is_reserve(connection) && !(page && page->is_monitoring))
		http_connection_refuse_full(connection);
	else if (page)
		on_page(http, connection, request, page);
	else
		on_api(http, connection, request, target);
}

static void on_request(void *context, struct http_connection *connection,
		       struct http_request *request)
{
	static const char no_target[] =
		"{\"code\":40,\"status\":\"bad_request\",\"message\":\"not a path or a URL\"}";
	struct target target;

	if (target_parse(&request->target, &target))
		http_connection_reply_json(connection, 400, no_target, sizeof(no_target) - 1);
	else
		route(context, connection, request, &target);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
		      int len, void *data)
{
	struct http *http = data;

	(void)address;
	(void)len;
	listener_spare_descriptors(listener);
	if (http->stopped)
		close(fd);
	else
		http_connections_accept(http->connections, fd);
}

struct http *http_new(struct event_base *base, const struct config *config, struct intake *intake,
		      http_ready_fn *ready, void *context)
{
	struct http *http = calloc(1, sizeof(*http));

	check(http != NULL);
	http->base = base;
	http->intake = intake;
	http->ready = ready;
	http->context = context;
	http->line_limit_bytes = (size_t)config->line_limit_bytes;
	http->connections = http_connections_new(base, config, intake, on_request, http);
	return http;
}

void http_listen(struct http *http, int fd)
{
	http->listener = listener_new(http->base, fd, on_accept, http);
}

void http_stop(struct http *http)
{
	http->stopped = 1;
	http_connections_stop(http->connections);
	if (http->listener)
		evconnlistener_disable(http->listener);
}

size_t http_sending(const struct http *http)
{
	return http_connections_sending(http->connections);
}

void http_free(struct http *http)
{
	if (!http)
		return;
	if (http->listener)
		evconnlistener_free(http->listener);
	http_connections_free(http->connections);
	free(http);
}
