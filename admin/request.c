#include "admin/request.h"

#include "admin/outcome.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/serve/web.h"

#include <event2/buffer.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#define PROBLEM "application/problem+json"

/* ---- what it has */

const char *request_header(const struct request *request, const char *name)
{
	return evhttp_find_header(evhttp_request_get_input_headers(request->http), name);
}

const char *request_query(const struct request *request)
{
	return evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request->http));
}

const char *request_cookie(const struct request *request, char value[SESSION_TEXT_SIZE])
{
	const char *at = request_header(request, "Cookie");

	while (at && *at) {
		size_t len;

		at += strspn(at, " ;");
		len = strcspn(at, ";");
		if (strncmp(at, SESSION_COOKIE "=", sizeof(SESSION_COOKIE)) == 0) {
			at += sizeof(SESSION_COOKIE);
			snprintf(value, SESSION_TEXT_SIZE, "%.*s",
				 (int)(len - sizeof(SESSION_COOKIE)), at);
			return value;
		}
		at += len;
	}
	return NULL;
}

static const char *bearer_find(const struct request *request)
{
	const char *value = request_header(request, "Authorization");

	if (!value || strncasecmp(value, "Bearer ", 7) != 0)
		return NULL;
	return value + 7 + strspn(value + 7, " ");
}

const cJSON *request_body(struct request *request, struct json_arena *arena, int *answered)
{
	struct evbuffer *body = evhttp_request_get_input_buffer(request->http);
	size_t len = evbuffer_get_length(body);
	const char *type = request_header(request, "Content-Type"), *error, *text;
	const struct evkeyval *one;
	const cJSON *root;
	char detail[256];

	*answered = 1;
	TAILQ_FOREACH (one, evhttp_request_get_input_headers(request->http), next) {
		if (strcasecmp(one->key, "Content-Encoding") != 0 || !*one->value ||
		    strcasecmp(one->value, "identity") == 0)
			continue;
		request_refuse(request, 415,
			       "a body must be sent without Content-Encoding, or as identity");
		return NULL;
	}
	*answered = 0;
	if (len == 0)
		return NULL;
	*answered = 1;
	if (!type || strncasecmp(type, "application/json", 16) != 0 || !strchr("; ", type[16])) {
		request_refuse(request, 415, "Content-Type must be application/json");
		return NULL;
	}
	text = (const char *)evbuffer_pullup(body, -1);
	json_mark_skip(&text, &len);
	root = json_parse(arena, text, len, &error);
	if (!cJSON_IsObject(root)) {
		snprintf(detail, sizeof(detail), "the body is not a JSON object: %s",
			 root ? "it is another value" : error);
		request_refuse(request, 400, detail);
		return NULL;
	}
	*answered = 0;
	return root;
}

/* ---- who sent it */

enum access_answer request_access(struct request *request, struct access *access, unsigned role,
				  const struct access_about *about)
{
	char cookie[SESSION_TEXT_SIZE];
	struct credentials credentials = { .key = bearer_find(request),
					   .session = request_cookie(request, cookie),
					   .token = request_header(request, "X-CSRF-Token"),
					   .is_asked = request->is_asked };

	return access_check(access, &credentials, role, about, request->changes, &request->visitor);
}

int request_admit(struct request *request, struct access *access, unsigned role,
		  const struct access_about *about)
{
	enum access_answer answer = request_access(request, access, role, about);

	if (answer != ACCESS_OK)
		request_refuse_access(request, answer);
	return answer == ACCESS_OK;
}

/* ---- replies */

void request_header_add(struct request *request, const char *name, const char *value)
{
	evhttp_add_header(evhttp_request_get_output_headers(request->http), name, value);
}

/* Lent. */
static const char *address_of(const struct request *request)
{
	struct evhttp_connection *connection =
		request->http ? evhttp_request_get_connection(request->http) : NULL;
	char *address = "";
	ev_uint16_t port;

	if (connection)
		evhttp_connection_get_peer(connection, &address, &port);
	return address ? address : "";
}

/* What was changed; what was refused or has failed, and why. Strangers do not use up the lines. */
static void reply_log(const struct request *request, int status, const char *text)
{
	cJSON *problem = status >= 400 ? cJSON_Parse(text) : NULL;
	const char *why = cJSON_GetStringValue(cJSON_GetObjectItem(problem, "detail"));
	int64_t ms = clock_monotonic_ms() - request->begin_ms;

	if (!*request->visitor.key)
		log_info("admin_unauthorized", LOG_S("path", request->path),
			 LOG_S("address", address_of(request)), LOG_I("http", status));
	else if (why)
		log_info("admin_refused", LOG_S("path", request->path),
			 LOG_S("key", request->visitor.key), LOG_I("http", status),
			 LOG_S("error", why), LOG_I("ms", ms));
	else
		log_info("admin_request", LOG_S("path", request->path),
			 LOG_S("key", request->visitor.key), LOG_I("http", status),
			 LOG_I("ms", ms));
	cJSON_Delete(problem);
}

static void reply_send(struct request *request, int status, const char *text)
{
	struct evbuffer *body;

	request_header_add(request, "Cache-Control", "no-store");
	request_header_add(request, "X-Content-Type-Options", "nosniff");
	if (status == 401)
		request_header_add(request, "WWW-Authenticate", "Bearer realm=\"couponmq\"");
	if (status == 503)
		request_header_add(request, "Retry-After", "1");
	if (status == 204) {
		evhttp_send_reply(request->http, status, NULL, NULL);
		return;
	}
	body = checked(evbuffer_new());
	check(evbuffer_add_printf(body, "%s\n", text) > 0);
	web_reply(request->http, status, problem_title(status),
		  status >= 400 ? PROBLEM : "application/json", body);
}

void request_reply(struct request *request, int status, char *text)
{
	if (request->changes || status == 401 || status == 403 || status >= 500)
		reply_log(request, status, text);
	if (request->http)
		reply_send(request, status, text);
	free(text);
}

void request_reply_object(struct request *request, int status, cJSON *object)
{
	char *text = checked(json_write(object));

	cJSON_Delete(object);
	request_reply(request, status, text);
}

void request_refuse(struct request *request, int status, const char *detail)
{
	request_reply(request, status, problem_make(status, detail));
}

void request_refuse_access(struct request *request, enum access_answer answer)
{
	switch (answer) {
	case ACCESS_OK:
		break;
	case ACCESS_NOBODY:
		request_refuse(request, 401,
			       "this needs an API key with the role admin or monitor");
		break;
	case ACCESS_NEW:
	case ACCESS_KNOWN:
		request->asks = answer;
		break;
	case ACCESS_FORBIDDEN:
		request_refuse(request, 403, "this key does not allow that");
		break;
	case ACCESS_UNPROVED:
		request_refuse(request, 403, "X-CSRF-Token is not that of this session");
		break;
	case ACCESS_UNAVAILABLE:
		request_refuse(request, 503,
			       "API keys cannot be checked: neither Redis nor PostgreSQL has "
			       "answered about them");
		break;
	}
}

void request_refuse_method(struct request *request, unsigned methods)
{
	static const struct {
		unsigned method;
		const char *name;
	} names[] = { { EVHTTP_REQ_GET, "GET, HEAD" },
		      { EVHTTP_REQ_POST, "POST" },
		      { EVHTTP_REQ_PUT, "PUT" },
		      { EVHTTP_REQ_PATCH, "PATCH" },
		      { EVHTTP_REQ_DELETE, "DELETE" } };
	char allow[64] = "";

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (methods & names[i].method)
			snprintf(allow + strlen(allow), sizeof(allow) - strlen(allow), "%s%s",
				 *allow ? ", " : "", names[i].name);
	request_header_add(request, "Allow", allow);
	request_refuse(request, 405, "this path does not allow that method");
}
