#include "gateway/listen/http.h"

#include "common/check.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <ctype.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SHOWN 80 /* bytes of a name that an error repeats */
#define API_PREFIX "/v1/"
#define EXTRA_SIZE 64 /* of one more header */

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

/* The host of a URL, with its port, replaces that of the header: RFC 9112, 3.2.2. */
static void host_set(struct http_request *request, const struct http_parser_url *url)
{
	size_t at = url->field_data[UF_HOST].off, end = at + url->field_data[UF_HOST].len;
	const char *text = request->texts[TEXT_TARGET].bytes;
	struct http_text *host = &request->texts[TEXT_HOST];

	if (text[at - 1] == '[') {
		at--;
		end++;
	}
	if (url->field_set & 1u << UF_PORT)
		end = (size_t)url->field_data[UF_PORT].off + url->field_data[UF_PORT].len;
	free(host->bytes);
	*host = (struct http_text){ .bytes = checked(strndup(text + at, end - at)),
				    .len = end - at,
				    .room = end - at + 1 };
	request->hosts_n = 1;
}

/* 0, or -1: it is neither a path nor a URL. */
static int target_parse(struct http_request *request, struct target *target)
{
	const struct http_text *text = &request->texts[TEXT_TARGET];
	struct http_parser_url url;

	target->has_fragment = memchr(text->bytes, '#', text->len) != NULL; /* an empty one, too */
	http_parser_url_init(&url);
	if (http_parser_parse_url(text->bytes, text->len, 0, &url))
		return -1;
	if (url.field_set & 1u << UF_HOST)
		host_set(request, &url);
	target->path = part_end(text->bytes, &url, UF_PATH);
	target->query = part_end(text->bytes, &url, UF_QUERY);
	return 0;
}

/* Refuses a request because of a header, whose value may be NULL. */
static void header_refuse(struct http_connection *connection, int status, const char *name,
			  const char *value, const char *allowed)
{
	char shown[NAME_SHOWN + 1], why[256];
	size_t len = 0;

	for (; value && value[len] && len < NAME_SHOWN; len++)
		shown[len] = (char)(value[len] < ' ' || value[len] > '~' ? '?' : value[len]);
	shown[len] = '\0';
	snprintf(why, sizeof(why), "%s is \"%s\": %s", name, shown, allowed);
	http_connection_refuse(connection, status, NULL, why);
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
static void query_refuse(struct http_connection *connection, const char *query, const char *fault)
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
	intake_refuse(connection->http->intake, &connection->client.responder, ANSWER_BAD_REQUEST,
		      why);
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
	object = checked(cJSON_CreateObject());
	TAILQ_FOREACH (param, &params, next)
		cJSON_AddStringToObject(object, param->key, param->value);
	text = checked(cJSON_PrintUnformatted(object));
	cJSON_Delete(object);
	evhttp_clear_headers(&params);
	return text;
}

/* Behind a # that was not encoded there may be the rest of an id. */
static void api_get(struct http_connection *connection, const struct target *target,
		    enum request_op op)
{
	const char *fault = percent_fault(target->query);
	char *text = target->has_fragment || fault ? NULL : query_object(target->query);

	if (text)
		intake_request(connection->http->intake, text, strlen(text), op,
			       &connection->client.responder);
	else
		query_refuse(connection, target->query, fault);
	free(text);
}

static void api_post(struct http_connection *connection, enum request_op op)
{
	const struct http_request *request = &connection->request;
	struct http *http = connection->http;
	struct responder *responder = &connection->client.responder;
	const struct http_text *body = &request->texts[TEXT_BODY];

	if (body->len > 0 && !http_request_is_json(request))
		header_refuse(connection, 415, "Content-Type",
			      request->texts[TEXT_CONTENT_TYPE].bytes,
			      "a body must be application/json");
	else if (body->len > (size_t)http->config->line_limit_bytes)
		intake_refuse(http->intake, responder, ANSWER_TOO_LARGE,
			      "the body is longer than COUPON_LINE_LIMIT_BYTES");
	else if (body->len > 0)
		intake_request(http->intake, body->bytes, body->len, op, responder);
	else
		intake_request(http->intake, "{}", 2, op, responder);
}

/* 405: the path takes only the methods of this list. */
static void methods_refuse(struct http_connection *connection, const char *allowed)
{
	char header[EXTRA_SIZE], message[EXTRA_SIZE];

	snprintf(header, sizeof(header), "Allow: %s", allowed);
	snprintf(message, sizeof(message), "this path takes %s", allowed);
	http_connection_refuse(connection, 405, header, message);
}

static void on_api(struct http_connection *connection, const struct target *target)
{
	struct intake *intake = connection->http->intake;
	int is_api = strncmp(target->path, API_PREFIX, strlen(API_PREFIX)) == 0;
	enum request_op op = request_op_find(is_api ? target->path + strlen(API_PREFIX) : "");

	if (intake_is_stopped(intake))
		intake_refuse(intake, &connection->client.responder, ANSWER_UNAVAILABLE,
			      "the gateway is stopping");
	else if (op == OP_COUNT)
		http_connection_refuse(connection, 404, NULL, "no such path");
	else if (connection->request.parser.method == HTTP_POST)
		api_post(connection, op);
	else if (connection->request.parser.method == HTTP_GET && request_operations[op].reads)
		api_get(connection, target, op);
	else
		methods_refuse(connection, request_operations[op].reads ? "GET, POST" : "POST");
}

static void on_healthz(struct http_connection *connection)
{
	http_connection_reply(connection, 200, NULL, NULL, "{\"status\":\"ok\"}", 15);
}

static void on_readyz(struct http_connection *connection)
{
	cJSON *body;
	int ready = connection->http->ready(connection->http->context, &body);
	char *text = checked(cJSON_PrintUnformatted(body));

	http_connection_reply(connection, ready ? 200 : 503, NULL, NULL, text, strlen(text));
	cJSON_free(text);
	cJSON_Delete(body);
}

static void on_metrics(struct http_connection *connection)
{
	struct evbuffer *body = checked(evbuffer_new());
	size_t len;

	metrics_prometheus(body);
	len = evbuffer_get_length(body);
	http_connection_reply(connection, 200, EXPOSITION_TYPE, NULL,
			      (const char *)evbuffer_pullup(body, -1), len);
	evbuffer_free(body);
}

/* The client may keep it by its tag. */
static void on_openapi(struct http_connection *connection)
{
	int is_known = http_request_has_tag(&connection->request, docs_openapi_tag);
	char header[EXTRA_SIZE];

	snprintf(header, sizeof(header), "ETag: \"%s\"", docs_openapi_tag);
	http_connection_reply(connection, is_known ? 304 : 200, HTTP_JSON, header, docs_openapi,
			      strlen(docs_openapi));
}

/* A path beside those of the operations. It takes GET and HEAD. */
struct page {
	const char *path;
	void (*answer)(struct http_connection *connection);
	int is_monitoring; /* a few connections beyond COUPON_CONNECTIONS_MAX get it, too */
	int cost;          /* in the event loop, in about microseconds (intake.h) */
};

static const struct page pages[] = {
	{ "/healthz", on_healthz, 1, 2 },
	{ "/readyz", on_readyz, 1, 16 },
	{ "/metrics", on_metrics, 1, 150 },
	{ "/openapi.json", on_openapi, 0, 20 },
};

/* NULL: the path belongs to the operations. */
static const struct page *page_find(const char *path)
{
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		if (strcmp(pages[i].path, path) == 0)
			return &pages[i];
	return NULL;
}

static void on_page(struct http_connection *connection, const struct page *page)
{
	unsigned method = connection->request.parser.method;

	turns_spend(connection->client.turn.turns, page->cost);
	if (method == HTTP_GET || method == HTTP_HEAD)
		page->answer(connection);
	else
		methods_refuse(connection, "GET, HEAD");
}

/* Whether a web page may have sent the request that must not: then it is refused. */
static int is_foreign(struct http_connection *connection, int is_monitoring)
{
	const struct http_request *request = &connection->request;
	const char *names = connection->http->config->http_hosts;
	const char *host = request->texts[TEXT_HOST].bytes;
	const struct http_text *origin = &request->texts[TEXT_ORIGIN];
	int has_host = request->hosts_n > 0; /* HTTP/1.0 may have none */

	if (has_host && !is_monitoring && !http_hosts_has(names, host))
		header_refuse(
			connection, 421, "Host", host,
			"allowed are addresses, localhost and the names of COUPON_HTTP_HOSTS");
	else if (origin->len > 0 &&
		 !http_hosts_has_origin(names, origin->bytes, has_host ? host : ""))
		header_refuse(connection, 403, "Origin", origin->bytes,
			      "allowed are the host itself and the names of COUPON_HTTP_HOSTS");
	else
		return 0;
	return 1;
}

void http_handle(struct http_connection *connection)
{
	const struct page *page;
	struct target target;
	int is_monitoring;

	if (target_parse(&connection->request, &target)) {
		http_connection_refuse(connection, 400, NULL, "not a path or a URL");
		return;
	}
	page = page_find(target.path);
	is_monitoring = page && page->is_monitoring;
	connection->is_refused = connection->client.arrival.room == ROOM_FULL && !is_monitoring;
	if (connection->is_refused)
		http_connection_refuse(connection, 429, NULL, arrival_refused(ROOM_FULL));
	else if (is_foreign(connection, is_monitoring))
		return;
	else if (page)
		on_page(connection, page);
	else
		on_api(connection, &target);
}
