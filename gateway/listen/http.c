#include "gateway/listen/http.h"

#include "common/check.h"
#include "common/message/json.h"
#include "common/message/trace_context.h"
#include "common/serve/http_origin.h"
#include "gateway/auth/auth.h"
#include "gateway/listen/http_value.h"
#include "gateway/metrics.h"

#include "embed.h"

#include <event2/buffer.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_SHOWN 80 /* bytes of a name that an error repeats */
#define EXTRA_SIZE 64 /* of one more header */
#define OF_GET "GET, HEAD, OPTIONS"
#define OF_POST "POST, OPTIONS"
#define OF_BOTH "GET, HEAD, POST, OPTIONS"

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

static void api_get(struct http_connection *connection, const struct http_target *target,
		    enum request_op op)
{
	static const char allowed[] =
		"must be percent-encoded name=value pairs joined by &, without NUL";
	struct intake *intake = connection->http->intake;
	struct responder *responder = &connection->base.responder;
	const char *query = target->query, *fault = http_query_fault(query), *name, *value;
	char user_why[USER_ID_WHY_SIZE], why[256], *text;
	const char *member = target->user ? "user" : target->code ? "code" : NULL, *of_path = NULL;
	char code[REQUEST_CODE_MAX + 2];
	struct user_id user;
	size_t byte = 1;

	if (target->user && http_target_user(target, &user, user_why)) {
		snprintf(why, sizeof(why), "user: %s", user_why);
		intake_refuse(intake, responder, ANSWER_BAD_REQUEST, why);
		return;
	}
	if (target->code &&
	    http_segment_decode(target->code, target->code_len, code, sizeof(code)) < 0) {
		intake_refuse(intake, responder, ANSWER_BAD_REQUEST,
			      "code: must be percent-encoded, 1 to 128 bytes without NUL");
		return;
	}
	of_path = target->user ? user.text : code;
	/* Behind a # that was not encoded there may be the rest of an id. */
	text = target->has_fragment || fault ? NULL : http_query_object(query, member, of_path);
	if (text) {
		intake_request(intake, text, strlen(text), op, responder);
		free(text);
		return;
	}

	/* Names the parameter and the byte, where one is at fault. */
	for (name = fault; name && name > query && name[-1] != '&';)
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
	intake_refuse(intake, responder, ANSWER_BAD_REQUEST, why);
}

static void api_post(struct http_connection *connection, enum request_op op)
{
	const struct http_request *request = &connection->request;
	struct http *http = connection->http;
	struct responder *responder = &connection->base.responder;
	const struct http_text *body = &request->texts[TEXT_BODY],
			       *key_text = &request->texts[TEXT_KEY];
	const char *parent = http_request_one(request, TEXT_TRACEPARENT);
	char key[RECEIVE_KEY_MAX + 1] = "", trace[TRACE_SIZE] = "", message[64];
	struct trace_context context;

	/* Operations that change nothing do not look at it: repeated they do what it promises. */
	if (request->seen & 1u << TEXT_KEY && !request_operations[op].reads &&
	    (!http_request_one(request, TEXT_KEY) ||
	     http_key_parse(key_text->bytes, key_text->len, key))) {
		header_refuse(connection, 400, "Idempotency-Key", key_text->bytes,
			      "must be one key of 1 to 255 printable ASCII bytes, either bare or "
			      "in quotes with a \\ before each \" and \\");
		return;
	}
	if (!http_request_is_plain(request)) {
		header_refuse(connection, 415, "Content-Encoding",
			      request->texts[TEXT_CONTENT_ENCODING].bytes,
			      "a body must be sent without Content-Encoding or with identity");
		return;
	}
	if (body->len > 0 && !http_request_is_json(request)) {
		header_refuse(connection, 415, "Content-Type",
			      request->texts[TEXT_CONTENT_TYPE].bytes,
			      "a body must have Content-Type application/json");
		return;
	}
	if (body->len > http->body_limit_bytes) {
		snprintf(message, sizeof(message), "the body is longer than %zu bytes",
			 http->body_limit_bytes);
		intake_refuse(http->intake, responder, ANSWER_TOO_LARGE, message);
		return;
	}

	/* The caller's tracing is handed on where it records this request. */
	if (parent &&
	    trace_context_parse(parent, request->texts[TEXT_TRACEPARENT].len, &context) == 0 &&
	    context.is_sampled)
		trace_context_format(&context, http_request_name(request), trace);
	responder->key = *key ? key : NULL;
	responder->trace = trace;
	responder->name = http_request_name(request);
	intake_request(http->intake, body->len > 0 ? body->bytes : "{}",
		       body->len > 0 ? body->len : 2, op, responder);
	responder->key = responder->trace = responder->name = NULL;
}

/* A method beside those of this list, or OPTIONS, which asks for them. */
static void methods_reply(struct http_connection *connection, const char *allowed)
{
	char header[EXTRA_SIZE], message[EXTRA_SIZE];

	snprintf(header, sizeof(header), "Allow: %s", allowed);
	snprintf(message, sizeof(message), "this path takes %s", allowed);
	if (connection->request.parser.method == HTTP_OPTIONS)
		http_connection_reply(connection, 204, NULL, header, "", 0);
	else
		http_connection_refuse(connection, 405, header, message);
}

/*
 * Takes what is presented: `Authorization: Bearer KEY-OR-TOKEN`, RFC 6750. It is wiped, because the
 * room of the header stays. 0; -1: the request is refused; or 1: it is begun again later.
 */
static int identify(struct http_connection *connection)
{
	static const char scheme[] = "bearer ";
	const size_t at = sizeof(scheme) - 1;
	struct http_request *request = &connection->request;
	struct http_text *text = &request->texts[TEXT_AUTHORIZATION];
	struct intake *intake = connection->http->intake;
	int is_there = (request->seen & 1u << TEXT_AUTHORIZATION) != 0, rc;
	int is_bearer = http_request_one(request, TEXT_AUTHORIZATION) && text->len > at &&
			strncasecmp(text->bytes, scheme, at) == 0;

	request->is_identified = 1;
	if (is_there && !is_bearer) {
		intake_identify(intake, &connection->base, NULL, 0);
		http_connection_refuse(connection, 400, NULL,
				       "the request must have one header Authorization: Bearer, a "
				       "space, and a key or a token");
		rc = -1;
	} else {
		rc = intake_identify(intake, &connection->base, is_bearer ? text->bytes + at : NULL,
				     is_bearer ? text->len - at : 0);
	}
	if (is_there && rc <= 0 && !connection->base.is_closed)
		OPENSSL_cleanse(text->bytes, text->len);
	return rc;
}

static void on_healthz(struct http_connection *connection)
{
	http_connection_reply(connection, 200, NULL, NULL, "{\"status\":\"ok\"}", 15);
}

static void on_readyz(struct http_connection *connection)
{
	cJSON *body;
	int ready = connection->http->ready(connection->http->context, &body);
	char *text;

	if (identify(connection)) {
		cJSON_Delete(body);
		return;
	}
	/* Balancers need no identity. The reasons, which name hosts, are for operators. */
	if (intake_monitor(connection->http->intake, &connection->base) != ANSWER_OK) {
		cJSON *bare = checked(cJSON_CreateObject());

		cJSON_AddItemToObject(bare, "ready", cJSON_DetachItemFromObject(body, "ready"));
		cJSON_AddItemToObject(bare, "degraded",
				      cJSON_DetachItemFromObject(body, "degraded"));
		cJSON_Delete(body);
		body = bare;
	}
	text = checked(json_write(body));

	http_connection_reply(connection, ready ? 200 : 503, NULL,
			      ready ? NULL : HTTP_RETRY_UNAVAILABLE, text, strlen(text));
	cJSON_free(text);
	cJSON_Delete(body);
}

static void on_metrics(struct http_connection *connection)
{
	struct intake *intake = connection->http->intake;
	struct evbuffer *body;
	enum answer answer;
	size_t len;

	if (identify(connection))
		return;
	answer = intake_monitor(intake, &connection->base);
	if (answer != ANSWER_OK) {
		intake_refuse(intake, &connection->base.responder, answer, NULL);
		return;
	}
	body = checked(evbuffer_new());
	metrics_prometheus(body);
	key_uses_prometheus(body);
	len = evbuffer_get_length(body);
	http_connection_reply(connection, 200, EXPOSITION_TYPE, NULL,
			      (const char *)evbuffer_pullup(body, -1), len);
	evbuffer_free(body);
}

/* The client may keep it by its tag. */
static void on_openapi(struct http_connection *connection)
{
	int is_known = http_request_has_tag(&connection->request, docs_reference_openapi_tag);
	char header[EXTRA_SIZE];

	snprintf(header, sizeof(header), "ETag: \"%s\"", docs_reference_openapi_tag);
	http_connection_reply(connection, is_known ? 304 : 200, HTTP_JSON, header,
			      docs_reference_openapi, strlen(docs_reference_openapi));
}

/* A path beside those of the operations. It takes GET and HEAD. */
struct http_page {
	const char *path;
	void (*answer)(struct http_connection *connection);
	int is_monitoring; /* a few connections beyond COUPON_CONNECTIONS_MAX get it, too */
	int cost;          /* in the event loop, in about microseconds (intake.h) */
};

static const struct http_page pages[] = {
	{ "/healthz", on_healthz, 1, 2 },
	{ "/readyz", on_readyz, 1, 16 },
	{ "/metrics", on_metrics, 1, 150 },
	{ "/openapi.json", on_openapi, 0, 20 },
};

/* NULL: the path belongs to the operations. */
static const struct http_page *page_find(const char *path)
{
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		if (strcmp(pages[i].path, path) == 0)
			return &pages[i];
	return NULL;
}

static void on_api(struct http_connection *connection, struct http_target *target,
		   enum http_accept accept)
{
	struct intake *intake = connection->http->intake;
	unsigned method = connection->request.parser.method;
	enum request_op op = http_target_op(target);
	struct http_target without = { 0 };
	int is_post, is_get, reads;
	char *shorter, why[NAME_SHOWN + 64] = "no such path";
	size_t len;

	if (intake_is_stopped(intake)) {
		intake_refuse(intake, &connection->base.responder, ANSWER_UNAVAILABLE,
			      "the gateway is stopping");
		return;
	}
	if (op != OP_COUNT && op != OP_AUTH) {
		reads = request_operations[op].reads;
		is_post = method == HTTP_POST && !target->user && !target->code;
		is_get = (method == HTTP_GET || method == HTTP_HEAD) && reads;
		connection->request.reply.of = request_operations[op].name;
		if (!is_post && !is_get)
			methods_reply(connection, target->user || target->code ? OF_GET
						  : reads                      ? OF_BOTH
									       : OF_POST);
		else if (accept == ACCEPT_NEITHER)
			header_refuse(connection, 406, "Accept",
				      connection->request.texts[TEXT_ACCEPT].bytes,
				      "replies are " HTTP_JSON ", or " HTTP_PROBLEM);
		else if (identify(connection))
			return;
		else if (is_post)
			api_post(connection, op);
		else
			api_get(connection, target, op);
		return;
	}
	if (method == HTTP_OPTIONS && strcmp(target->path, "*") == 0) {
		methods_reply(connection, OF_BOTH);
		return;
	}

	/*
	 * A path with a / at its end is not the path without it: what a balancer refuses by its
	 * path would be had by another one.
	 */
	shorter = checked(strdup(target->path));
	len = strlen(shorter);
	while (len > 1 && shorter[len - 1] == '/')
		shorter[--len] = '\0';
	without.path = shorter;
	op = http_target_op(&without);
	if (strcmp(shorter, target->path) != 0 &&
	    (page_find(shorter) || (op != OP_COUNT && op != OP_AUTH)))
		snprintf(why, sizeof(why),
			 "no such path: did you mean %.*s, without the / at its end?", NAME_SHOWN,
			 shorter);
	http_connection_refuse(connection, 404, NULL, why);
	free(shorter);
}

void http_handle(struct http_connection *connection)
{
	struct http_request *request = &connection->request;
	struct http_manner *reply = &request->reply;
	const struct config *config = connection->http->config;
	const struct http_text *origin = &request->texts[TEXT_ORIGIN],
			       *accepts = &request->texts[TEXT_ACCEPT];
	const char *host, *names = config->http_hosts;
	unsigned method = request->parser.method;
	enum http_accept accept = ACCEPT_JSON;
	const struct http_page *page;
	struct http_target target;
	int is_monitoring, has_host;

	if (accepts->len > 0)
		accept = http_accept_parse(accepts->bytes, accepts->len);
	reply->is_problem = accept == ACCEPT_PROBLEM;
	if (http_target_parse(request, &target)) {
		http_connection_refuse(connection, 400, NULL,
				       "the target is neither a path nor a URL");
		return;
	}
	page = page_find(target.path);
	is_monitoring = page && page->is_monitoring;
	connection->is_refused = connection->base.arrival.room == ROOM_FULL && !is_monitoring;
	if (connection->is_refused) {
		http_connection_refuse(connection, 429, NULL, arrival_refused(ROOM_FULL));
		return;
	}

	/* Cross-origin requests, by Host and Origin. Pages of listed origins may read the reply. */
	host = request->texts[TEXT_HOST].bytes; /* or that of the URL */
	has_host = request->hosts_n > 0;        /* HTTP/1.0 may have none */
	if (has_host && !is_monitoring && !http_hosts_has(names, host)) {
		header_refuse(connection, 421, "Host", host,
			      *names ? "allowed are addresses, localhost and the names of "
				       "COUPON_HTTP_HOSTS"
				     : "allowed are addresses and localhost; COUPON_HTTP_HOSTS, "
				       "which would allow names, is empty");
		return;
	}
	if (origin->len > 0) {
		reply->origin = http_origins_find(config->http_origins, origin->bytes, origin->len);
		reply->origin_len = origin->len;
		if (!reply->origin &&
		    !http_hosts_has_origin(names, origin->bytes, has_host ? host : "")) {
			header_refuse(connection, 403, "Origin", origin->bytes,
				      "allowed are the host itself, the names of "
				      "COUPON_HTTP_HOSTS, and COUPON_HTTP_ORIGINS");
			return;
		}
	}

	if (!page) {
		on_api(connection, &target, accept);
		return;
	}
	turns_spend(connection->base.turn.turns, page->cost);
	reply->of = page->path;
	if (method == HTTP_GET || method == HTTP_HEAD)
		page->answer(connection);
	else
		methods_reply(connection, OF_GET);
}
