#include "admin/admin_request.h"

#include "admin/outcome.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/serve/web.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>

#define PROBLEM "application/problem+json"

/* ---- what it has */

const char *request_header(const struct admin_request *request, const char *name)
{
	return evhttp_find_header(evhttp_request_get_input_headers(request->http), name);
}

const char *request_cookie(const struct admin_request *request, char value[SESSION_TEXT_SIZE])
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

const cJSON *request_body(struct admin_request *request, struct json_arena *arena, int *answered)
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
			       "a body must be sent without Content-Encoding or with identity");
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
			 root ? "it is another JSON value" : error);
		request_refuse(request, 400, detail);
		return NULL;
	}
	*answered = 0;
	return root;
}

int request_parameters(struct admin_request *request, struct evkeyvalq *pairs)
{
	const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request->http));

	memset(pairs, 0, sizeof(*pairs));
	if (!query || (!strstr(query, "%00") && evhttp_parse_query_str(query, pairs) == 0))
		return 0;
	request_refuse(request, 400, "the query cannot be read");
	return -1;
}

int request_version(struct admin_request *request, int is_needed,
		    char version[REQUEST_VERSION_SIZE])
{
	const char *value = request_header(request, "If-Match"), *at = value;
	int is_form = 1, found = 0;

	*version = '\0';
	if (!value && is_needed) {
		request_refuse(request, 428,
			       "If-Match must have the version to be changed, as the campaign's "
			       "ETag has it");
		return -1;
	}
	if (!value || strcmp(value, "*") == 0)
		return 0;
	while (is_form && *at) {
		int is_weak = strncmp(at, "W/\"", 3) == 0;
		size_t len, digits;

		at += is_weak ? 2 : 0;
		is_form = *at == '"' && at[1 + strcspn(at + 1, "\"")] == '"';
		if (!is_form)
			break;
		len = strcspn(at + 1, "\"");
		digits = strspn(at + 1, "0123456789");
		if (!is_weak && digits > 0 && digits == len && digits < REQUEST_VERSION_SIZE) {
			snprintf(version, REQUEST_VERSION_SIZE, "%.*s", (int)digits, at + 1);
			found++;
		}
		at += len + 2;
		at += strspn(at, " \t");
		if (*at) { /* another one */
			is_form = *at == ',';
			at += is_form;
			at += strspn(at, " \t");
			is_form &= *at != '\0';
		}
	}
	if (!is_form || at == value || found > 1)
		request_refuse(
			request, 400,
			"If-Match is wrong: allowed is one version in quotation marks, or *");
	else if (found == 0)
		request_refuse(request, 412,
			       "If-Match has no version: allowed is one in quotation marks and "
			       "without W/, as the campaign's ETag has it");
	else
		return 0;
	return -1;
}

int request_command_key(struct admin_request *request, char key[COMMAND_KEY_MAX + 1])
{
	const char *text = evhttp_request_get_command(request->http) == EVHTTP_REQ_POST
				   ? request_header(request, "Idempotency-Key")
				   : NULL;
	int is_quoted = text && *text == '"', is_right = 1;
	size_t n = 0;

	*key = '\0';
	if (!text)
		return 0;
	for (text += is_quoted; *text && is_right && !(is_quoted && *text == '"'); text++) {
		if (is_quoted && *text == '\\' && (text[1] == '"' || text[1] == '\\'))
			text++;
		else if (is_quoted && *text == '\\')
			is_right = 0;
		is_right &= n < COMMAND_KEY_MAX && *text >= ' ' && *text <= '~';
		if (is_right)
			key[n++] = *text;
	}
	key[n] = '\0';
	if (n > 0 && is_right && strcmp(text, is_quoted ? "\"" : "") == 0)
		return 0;
	request_refuse(
		request, 400,
		"Idempotency-Key is wrong: allowed is one key of 1 to 255 bytes of printable "
		"ASCII, bare, or in quotes with a \\ before each \" and \\");
	return -1;
}

/* ---- who sent it */

int request_has_user(const struct admin_request *request, struct auth *auth)
{
	const char *name = auth_user_header(auth);

	return *name && request_header(request, name) != NULL;
}

enum auth_answer request_auth(struct admin_request *request, struct auth *auth, unsigned role,
			      const struct auth_about *about)
{
	const char *bearer = request_header(request, "Authorization"),
		   *user_header = auth_user_header(auth);
	struct evhttp_connection *connection = evhttp_request_get_connection(request->http);
	struct sockaddr_storage from = { .ss_family = AF_UNSPEC };
	socklen_t len = sizeof(from);
	const struct evkeyval *header;
	char cookie[SESSION_TEXT_SIZE];
	struct credentials credentials = { .session = request_cookie(request, cookie),
					   .token = request_header(request, "X-CSRF-Token"),
					   .is_asked = request->is_asked,
					   .from = (struct sockaddr *)&from };

	if (*user_header) {
		TAILQ_FOREACH (header, evhttp_request_get_input_headers(request->http), next) {
			if (strcasecmp(header->key, user_header) != 0)
				continue;
			credentials.user = credentials.user ? credentials.user : header->value;
			credentials.users_n++;
		}
		/* Without an address it is from elsewhere. */
		if (getpeername(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)),
				(struct sockaddr *)&from, &len))
			from.ss_family = AF_UNSPEC;
	}
	if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0)
		credentials.key = bearer + 7 + strspn(bearer + 7, " ");
	return auth_check(auth, &credentials, role, about, request->changes, &request->visitor);
}

int request_admit(struct admin_request *request, struct auth *auth, unsigned role,
		  const struct auth_about *about)
{
	enum auth_answer answer = request_auth(request, auth, role, about);

	if (answer != AUTH_OK)
		request_refuse_auth(request, answer);
	return answer == AUTH_OK;
}

/* ---- replies */

void request_header_add(struct admin_request *request, const char *name, const char *value)
{
	evhttp_add_header(evhttp_request_get_output_headers(request->http), name, value);
}

void request_reply(struct admin_request *request, int status, char *text)
{
	struct evbuffer *body;

	if (request->changes || status == 401 || status == 403 || status >= 500) {
		struct evhttp_connection *connection =
			request->http ? evhttp_request_get_connection(request->http) : NULL;
		cJSON *problem = status >= 400 ? cJSON_Parse(text) : NULL;
		const char *why = cJSON_GetStringValue(cJSON_GetObjectItem(problem, "detail"));
		int64_t ms = clock_monotonic_ms() - request->begin_ms;
		char *address = NULL;
		ev_uint16_t port;

		/* Log what was changed, and what was refused or has failed, and why. */
		if (connection)
			evhttp_connection_get_peer(connection, &address, &port);
		if (!*request->visitor.by) /* strangers do not use up the lines of others */
			log_info("admin_unauthorized", LOG_S("path", request->path),
				 LOG_S("address", address ? address : ""), LOG_I("http", status));
		else if (why)
			log_info("admin_refused", LOG_S("path", request->path),
				 LOG_S("key", request->visitor.by), LOG_I("http", status),
				 LOG_S("error", why), LOG_I("ms", ms));
		else
			log_info("admin_request", LOG_S("path", request->path),
				 LOG_S("key", request->visitor.by), LOG_I("http", status),
				 LOG_I("ms", ms));
		cJSON_Delete(problem);
	}
	if (!request->http)
		goto out;
	request_header_add(request, "Cache-Control", "no-store");
	request_header_add(request, "X-Content-Type-Options", "nosniff");
	if (status == 401)
		request_header_add(request, "WWW-Authenticate", "Bearer realm=\"couponmq\"");
	if (status == 503)
		request_header_add(request, "Retry-After", "1");
	if (status == 204) {
		evhttp_send_reply(request->http, status, NULL, NULL);
		goto out;
	}
	body = checked(evbuffer_new());
	check(evbuffer_add_printf(body, "%s\n", text) > 0);
	web_reply(request->http, status, problem_title(status),
		  status >= 400 ? PROBLEM : "application/json", body);
out:
	free(text);
}

void request_reply_object(struct admin_request *request, int status, cJSON *object)
{
	char *text = checked(json_write(object));

	cJSON_Delete(object);
	request_reply(request, status, text);
}

void request_refuse(struct admin_request *request, int status, const char *detail)
{
	request_reply(request, status, problem_make(status, detail));
}

void request_refuse_auth(struct admin_request *request, enum auth_answer answer)
{
	switch (answer) {
	case AUTH_OK:
		break;
	case AUTH_NOBODY:
		request_refuse(request, 401,
			       "this needs an API key with the role monitor, campaign or admin");
		break;
	case AUTH_NEW:
	case AUTH_KNOWN:
		request->asks = answer;
		break;
	case AUTH_FORBIDDEN:
		request_refuse(request, 403,
			       *request->visitor.by && !request->visitor.grant.key
				       ? "the role of this user in COUPON_ADMIN_USERS does not "
					 "allow that"
				       : "this key does not allow that");
		break;
	case AUTH_UNPROVED:
		request_refuse(request, 403, "X-CSRF-Token is not that of this session");
		break;
	case AUTH_NOT_PROXY:
		request_refuse(request, 403,
			       "the header of COUPON_ADMIN_USER_HEADER is believed only from "
			       "COUPON_ADMIN_PROXY_NETWORKS");
		break;
	case AUTH_NO_NAME:
		request_refuse(
			request, 401,
			"the header of COUPON_ADMIN_USER_HEADER names nobody: allowed is one "
			"header with 1 to 64 bytes of printable ASCII without spaces and "
			"commas");
		break;
	case AUTH_UNAVAILABLE:
		request_refuse(
			request, 503,
			"API keys cannot be checked: neither Redis nor PostgreSQL has answered");
		break;
	}
}

void request_refuse_method(struct admin_request *request, unsigned methods)
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
