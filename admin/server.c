#include "admin/server.h"

#include "admin/access.h"
#include "admin/console.h"
#include "admin/job.h"
#include "admin/live.h"
#include "admin/openapi.h"
#include "admin/outcome.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "common/program/couponctl.h"
#include "common/program/transport.h"
#include "common/serve/web.h"
#include "ctl/output.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <unistd.h>

#define METHODS                                                                                   \
	(EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT | EVHTTP_REQ_PATCH | \
	 EVHTTP_REQ_DELETE)
#define HEAD_BYTES_MAX 16384
#define BODY_BYTES_MAX 65536
#define TIMEOUT_S 10 /* of an idle or slow connection */
#define PROBLEM "application/problem+json"
#define SESSION_PATH "/admin/session"
#define VERSION_SIZE 24

struct server {
	const struct config *config;
	struct web *web;
	struct access *access;
	struct children *children;
	struct jobs *jobs;
	struct live *live;
	struct json_arena *arena;
};

/* One request whose command runs. */
struct exchange {
	struct evhttp_request *request; /* NULL: its client has gone */
	const struct route *route;
	char *path;
	char by[KEY_ID_LEN + 1];
	int64_t begin_ms;
};

/* ---- replies */

static struct evkeyvalq *headers_out(struct evhttp_request *request)
{
	return evhttp_request_get_output_headers(request);
}

static const char *header(struct evhttp_request *request, const char *name)
{
	return evhttp_find_header(evhttp_request_get_input_headers(request), name);
}

static int is_change(struct evhttp_request *request)
{
	return !(evhttp_request_get_command(request) & (EVHTTP_REQ_GET | EVHTTP_REQ_HEAD));
}

/* What was to be changed, and what failed. */
static void request_log(int changes, const char *path, int status, const char *by, int64_t ms)
{
	if (changes || status >= 500)
		log_info("admin_request", LOG_S("path", path), LOG_S("key", by),
			 LOG_I("http", status), LOG_I("ms", ms));
}

/* Takes the text. */
static void reply(struct evhttp_request *request, int status, char *text)
{
	struct evbuffer *body = checked(evbuffer_new());
	struct evkeyvalq *headers = headers_out(request);

	evhttp_add_header(headers, "Cache-Control", "no-store");
	evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
	if (status == 401)
		evhttp_add_header(headers, "WWW-Authenticate", "Bearer realm=\"couponmq\"");
	if (status == 503)
		evhttp_add_header(headers, "Retry-After", "1");
	if (status == 204)
		evhttp_send_reply(request, status, NULL, NULL);
	else
		check(evbuffer_add_printf(body, "%s\n", text) > 0);
	free(text);
	if (status == 204)
		evbuffer_free(body);
	else
		web_reply(request, status, problem_title(status),
			  status >= 400 ? PROBLEM : "application/json", body);
}

static void refuse(struct evhttp_request *request, int status, const char *detail)
{
	reply(request, status, problem_make(status, detail));
}

/* Takes the object. */
static void reply_object(struct evhttp_request *request, int status, cJSON *object)
{
	char *text = checked(cJSON_PrintUnformatted(object));

	cJSON_Delete(object);
	reply(request, status, text);
}

static void refuse_access(struct evhttp_request *request, enum access_answer answer)
{
	switch (answer) {
	case ACCESS_OK:
		break;
	case ACCESS_NOBODY:
		refuse(request, 401, "this needs an API key with the role admin or monitor");
		break;
	case ACCESS_FORBIDDEN:
		refuse(request, 403, "this key may not do that");
		break;
	case ACCESS_UNPROVED:
		refuse(request, 403, "X-CSRF-Token is not that of this session");
		break;
	case ACCESS_UNAVAILABLE:
		refuse(request, 503,
		       "API keys cannot be judged: neither Redis nor PostgreSQL tells of them");
		break;
	}
}

/* ---- what a request has */

/* The value of the session's cookie, or NULL. */
static const char *cookie_find(struct evhttp_request *request, char value[SESSION_TEXT_SIZE])
{
	const char *at = header(request, "Cookie");

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

static const char *bearer_find(struct evhttp_request *request)
{
	const char *value = header(request, "Authorization");

	if (!value || strncasecmp(value, "Bearer ", 7) != 0)
		return NULL;
	return value + 7 + strspn(value + 7, " ");
}

static enum access_answer access_of(struct server *server, struct evhttp_request *request,
				    unsigned role, const char *coupon, struct visitor *visitor)
{
	char cookie[SESSION_TEXT_SIZE];
	struct credentials credentials = { .key = bearer_find(request),
					   .session = cookie_find(request, cookie),
					   .token = header(request, "X-CSRF-Token") };

	return access_check(server->access, &credentials, role, coupon, is_change(request),
			    visitor);
}

/* Whether it is let in; else it is answered. */
static int admit(struct server *server, struct evhttp_request *request, unsigned role,
		 const char *coupon, struct visitor *visitor)
{
	enum access_answer answer = access_of(server, request, role, coupon, visitor);

	if (answer != ACCESS_OK)
		refuse_access(request, answer);
	return answer == ACCESS_OK;
}

/* The object that the body is; `*answered` if it is none. NULL: there is no body. */
static const cJSON *body_read(struct server *server, struct evhttp_request *request, int *answered)
{
	struct evbuffer *body = evhttp_request_get_input_buffer(request);
	size_t len = evbuffer_get_length(body);
	const char *type = header(request, "Content-Type"), *error;
	const cJSON *root;
	char detail[256];

	*answered = 0;
	if (len == 0)
		return NULL;
	*answered = 1;
	if (!type || strncasecmp(type, "application/json", 16) != 0 || !strchr("; ", type[16])) {
		refuse(request, 415, "Content-Type must be application/json");
		return NULL;
	}
	root = json_parse(server->arena, (const char *)evbuffer_pullup(body, -1), len, &error);
	if (!cJSON_IsObject(root)) {
		snprintf(detail, sizeof(detail), "the body is no JSON object: %s",
			 root ? "it is another value" : error);
		refuse(request, 400, detail);
		return NULL;
	}
	*answered = 0;
	return root;
}

/* The number in If-Match. 0, or -1: it is answered. */
static int version_find(struct evhttp_request *request, const struct route *route,
			char version[VERSION_SIZE])
{
	const char *value = header(request, "If-Match");
	size_t digits;

	*version = '\0';
	if (!value && route->flags & ROUTE_NEEDS_VERSION) {
		refuse(request, 428,
		       "If-Match must have the version that is to be changed, as ETag of the "
		       "campaign has it");
		return -1;
	}
	if (!value)
		return 0;
	digits = *value == '"' ? strspn(value + 1, "0123456789") : 0;
	if (digits < 1 || digits >= VERSION_SIZE || strcmp(value + 1 + digits, "\"") != 0) {
		refuse(request, 400,
		       "If-Match is wrong: allowed is one version in quotation marks");
		return -1;
	}
	snprintf(version, VERSION_SIZE, "%.*s", (int)digits, value + 1);
	return 0;
}

/* ---- commands */

static void exchange_free(struct exchange *exchange)
{
	free(exchange->path);
	free(exchange);
}

static void location_add(struct evhttp_request *request, const struct route *route,
			 const char *text)
{
	cJSON *root = cJSON_Parse(text);
	const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, route->made));
	char location[128];

	if (id) {
		snprintf(location, sizeof(location), ROUTE_PREFIX "%s/%s", route->path, id);
		evhttp_add_header(headers_out(request), "Location", location);
	}
	cJSON_Delete(root);
}

static void on_ended(void *context, const struct child_result *result)
{
	struct exchange *exchange = context;
	struct evhttp_request *request = exchange->request;
	char etag[VERSION_SIZE + 2], *text;
	int64_t version;
	int status;

	text = outcome_make(exchange->route, result, &status, &version);
	request_log(exchange->route->method != EVHTTP_REQ_GET, exchange->path, status, exchange->by,
		    clock_monotonic_ms() - exchange->begin_ms);
	if (!request) {
		free(text);
		exchange_free(exchange);
		return;
	}
	evhttp_connection_set_closecb(evhttp_request_get_connection(request), NULL, NULL);
	if (version > 0 && status < 400) {
		snprintf(etag, sizeof(etag), "\"%lld\"", (long long)version);
		evhttp_add_header(headers_out(request), "ETag", etag);
	}
	if (exchange->route->made && status < 400)
		location_add(request, exchange->route, text);
	reply(request, status, text);
	exchange_free(exchange);
}

/* The connection is lost. The command goes on: what it changes, it changes. */
static void on_closed(struct evhttp_connection *connection, void *context)
{
	struct exchange *exchange = context;

	(void)connection;
	exchange->request = NULL;
}

static void command_run(struct server *server, struct evhttp_request *request,
			const struct route_match *match, const struct words *words, const char *by)
{
	struct exchange *exchange = checked(calloc(1, sizeof(*exchange)));

	exchange->request = request;
	exchange->route = match->route;
	exchange->path = checked(
		strdup(evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request))));
	snprintf(exchange->by, sizeof(exchange->by), "%s", by);
	exchange->begin_ms = clock_monotonic_ms();
	if (!child_start(server->children, (const char *const *)words->list,
			 server->config->admin_timeout_ms, on_ended, exchange)) {
		exchange_free(exchange);
		refuse(request, 503, "too many commands run and wait: nothing was done");
		return;
	}
	evhttp_connection_set_closecb(evhttp_request_get_connection(request), on_closed, exchange);
}

static void job_run(struct server *server, struct evhttp_request *request,
		    const struct route_match *match, const struct words *words, const char *by)
{
	int64_t id = job_start(server->jobs, match, words, by);
	char location[64], number[NUMBER_SIZE];
	cJSON *object;

	if (!id) {
		refuse(request, 503, "too many jobs run and wait: nothing was done");
		return;
	}
	snprintf(location, sizeof(location), ROUTE_PREFIX "/jobs/%s", number_text(id, number));
	evhttp_add_header(headers_out(request), "Location", location);
	object = job_json(job_find(server->jobs, number));
	request_log(is_change(request), match->route->path, 202, by, 0);
	reply_object(request, 202, object);
}

/* The members of the request. 0, or -1: it is answered. */
static int members_read(struct server *server, struct evhttp_request *request,
			const struct route_match *match, struct words *words)
{
	const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
	struct evkeyvalq pairs = { 0 };
	const cJSON *body;
	int answered, rc;

	if (query &&
	    (is_change(request) || strstr(query, "%00") || evhttp_parse_query_str(query, &pairs))) {
		refuse(request, 400,
		       is_change(request) ? "a query is allowed with GET alone"
					  : "the query cannot be read");
		return -1;
	}
	body = body_read(server, request, &answered);
	if (answered) {
		evhttp_clear_headers(&pairs);
		return -1;
	}
	if (!is_change(request) && body) {
		evhttp_clear_headers(&pairs);
		refuse(request, 400, "a body is not allowed with GET");
		return -1;
	}
	rc = is_change(request) ? words_of_body(words, match, body)
				: words_of_query(words, match, &pairs);
	evhttp_clear_headers(&pairs);
	if (rc)
		refuse(request, 400, words->why);
	return rc;
}

static void operate(struct server *server, struct evhttp_request *request,
		    const struct route_match *match)
{
	struct words words = { 0 };
	struct visitor visitor;
	char version[VERSION_SIZE];

	if (!admit(server, request, match->route->role, route_coupon(match), &visitor) ||
	    version_find(request, match->route, version))
		return;
	if (words_begin(&words, match, visitor.key, *version ? version : NULL))
		refuse(request, 400, words.why);
	else if (members_read(server, request, match, &words) == 0)
		(match->route->flags & ROUTE_JOB ? job_run : command_run)(server, request, match,
									  &words, visitor.key);
	words_fini(&words);
}

static void refuse_method(struct evhttp_request *request, unsigned methods)
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
	evhttp_add_header(headers_out(request), "Allow", allow);
	refuse(request, 405, "this path does not have that method");
}

/* ---- jobs and sessions */

static void on_jobs(struct server *server, struct evhttp_request *request, const char *id)
{
	enum evhttp_cmd_type method = evhttp_request_get_command(request);
	struct job *job = job_find(server->jobs, id);
	struct visitor visitor;

	if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD &&
	    (method != EVHTTP_REQ_DELETE || !*id)) {
		refuse_method(request, *id ? EVHTTP_REQ_GET | EVHTTP_REQ_DELETE : EVHTTP_REQ_GET);
		return;
	}
	if (!admit(server, request, method == EVHTTP_REQ_DELETE ? KEY_ROLE_ADMIN : KEY_ROLE_MONITOR,
		   job ? job_coupon(job) : NULL, &visitor))
		return;
	if (!*id) {
		reply_object(request, 200, jobs_json(server->jobs));
		return;
	}
	if (!job) {
		refuse(request, 404, "there is no such job");
		return;
	}
	if (method == EVHTTP_REQ_DELETE)
		job_end(job);
	reply_object(request, 200, job_json(job));
}

static cJSON *session_json(const struct visitor *visitor)
{
	cJSON *object = output_object();
	char text[CLOCK_RFC3339_SIZE];

	output_text(object, "key", visitor->key);
	output_text(object, "role", visitor->roles & KEY_ROLE_ADMIN ? "admin" : "monitor");
	output_text(object, "csrf_token", visitor->token);
	output_text(object, "ends_at",
		    visitor->ends_ms ? clock_rfc3339(visitor->ends_ms, text) : NULL);
	return object;
}

static void cookie_set(struct server *server, struct evhttp_request *request, const char *value,
		       int seconds)
{
	char text[192];

	snprintf(text, sizeof(text),
		 SESSION_COOKIE "=%s; Path=/admin; Max-Age=%d; HttpOnly; SameSite=Strict%s", value,
		 seconds, web_tls(server->web) ? "; Secure" : "");
	evhttp_add_header(headers_out(request), "Set-Cookie", text);
}

static void session_begin(struct server *server, struct evhttp_request *request)
{
	int answered;
	const cJSON *body = body_read(server, request, &answered);
	const cJSON *key = cJSON_GetObjectItemCaseSensitive(body, "key");
	char session[SESSION_TEXT_SIZE];
	enum access_answer answer;
	struct visitor visitor;

	if (answered)
		return;
	if (!cJSON_IsString(key) || cJSON_GetArraySize(body) != 1) {
		refuse(request, 400, "the body must be {\"key\":\"…\"}, with an API key");
		return;
	}
	answer = access_session_begin(server->access, key->valuestring, session, &visitor);
	json_arena_wipe(server->arena);
	if (answer != ACCESS_OK) {
		refuse_access(request, answer);
		return;
	}
	log_info("admin_session", LOG_S("key", visitor.key));
	cookie_set(server, request, session, SESSION_S);
	reply_object(request, 200, session_json(&visitor));
}

static void on_session(struct server *server, struct evhttp_request *request)
{
	char session[SESSION_TEXT_SIZE];
	struct visitor visitor;

	switch (evhttp_request_get_command(request)) {
	case EVHTTP_REQ_POST:
		session_begin(server, request);
		return;
	case EVHTTP_REQ_GET:
	case EVHTTP_REQ_HEAD:
		if (admit(server, request, 0, NULL, &visitor))
			reply_object(request, 200, session_json(&visitor));
		return;
	case EVHTTP_REQ_DELETE:
		if (!admit(server, request, 0, NULL, &visitor))
			return;
		if (cookie_find(request, session))
			access_session_end(server->access, session);
		cookie_set(server, request, "", 0);
		reply(request, 204, NULL);
		return;
	case EVHTTP_REQ_PUT:
	case EVHTTP_REQ_OPTIONS:
	case EVHTTP_REQ_TRACE:
	case EVHTTP_REQ_CONNECT:
	case EVHTTP_REQ_PATCH:
		break;
	}
	refuse_method(request, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_DELETE);
}

/* ---- what goes on, and the console */

static int may_look(void *context, struct evhttp_request *request)
{
	struct visitor visitor;

	return access_of(context, request, KEY_ROLE_MONITOR, NULL, &visitor) == ACCESS_OK;
}

/* The ids of campaigns that are asked for, "": none (malloc). NULL: it is answered. */
static char *coupons_read(struct evhttp_request *request)
{
	const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
	struct evkeyvalq pairs = { 0 };
	const struct evkeyval *pair;
	const char *coupons = "";
	char *copy = NULL, detail[128] = "";

	if (query && (strstr(query, "%00") || evhttp_parse_query_str(query, &pairs)))
		snprintf(detail, sizeof(detail), "the query cannot be read");
	TAILQ_FOREACH (pair, &pairs, next) {
		if (strcmp(pair->key, "coupons") != 0)
			snprintf(detail, sizeof(detail), "%.60s: there is no such parameter",
				 pair->key);
		coupons = pair->value;
	}
	if (*detail)
		refuse(request, 400, detail);
	else
		copy = checked(strdup(coupons));
	evhttp_clear_headers(&pairs);
	return copy;
}

/* /now has it once, /live again and again. */
static void on_live(struct server *server, struct evhttp_request *request, int once)
{
	struct visitor visitor;
	char *coupons;
	int status;

	if (evhttp_request_get_command(request) != EVHTTP_REQ_GET) {
		refuse_method(request, EVHTTP_REQ_GET);
		return;
	}
	if (!admit(server, request, KEY_ROLE_MONITOR, NULL, &visitor))
		return;
	coupons = coupons_read(request);
	if (!coupons)
		return;
	status = live_look(server->live, request, coupons, once);
	free(coupons);
	if (status == 400)
		refuse(request, 400,
		       "coupons is wrong: allowed are up to 100 ids, joined by commas");
	else if (status)
		refuse(request, status, "too many look already");
}

static void on_page(struct evhttp_request *request, const char *path)
{
	if (is_change(request))
		refuse_method(request, EVHTTP_REQ_GET);
	else if (!console_answer(request, path))
		refuse(request, 404, "there is no such path: see " ROUTE_PREFIX "/openapi.json");
}

/* ---- requests */

static void on_readyz(struct server *server, struct evhttp_request *request)
{
	int keys = access_is_ready(server->access), program = access(couponctl_path(), X_OK) == 0;
	cJSON *object = output_object();
	char *text;

	output_text(object, "keys", keys ? "ok" : "no store tells of API keys");
	output_text(object, "couponctl", program ? "ok" : "cannot be started");
	output_bool(object, "ready", keys && program);
	transport_warnings(cJSON_AddArrayToObject(object, "warnings"));
	text = checked(cJSON_PrintUnformatted(object));
	web_reply_json(request, keys && program ? 200 : 503, text);
	cJSON_free(text);
	cJSON_Delete(object);
}

/* What evhttp lets pass, and others may understand otherwise. Returns whether it is answered. */
static int is_ambiguous(struct evhttp_request *request)
{
	const struct evkeyval *one;
	int lengths_n = 0;

	TAILQ_FOREACH (one, evhttp_request_get_input_headers(request), next) {
		lengths_n += strcasecmp(one->key, "Content-Length") == 0;
	}
	if (lengths_n <= 1 && !header(request, "Transfer-Encoding"))
		return 0;
	evhttp_add_header(headers_out(request), "Connection", "close");
	refuse(request, 411, "a body needs one Content-Length, and no Transfer-Encoding");
	return 1;
}

static void on_operation(struct server *server, struct evhttp_request *request, const char *path)
{
	struct route_match match;

	route_match(&match, evhttp_request_get_command(request), path);
	if (match.route)
		operate(server, request, &match);
	else if (match.methods)
		refuse_method(request, match.methods);
	else
		refuse(request, 404, "there is no such path: see " ROUTE_PREFIX "/openapi.json");
	route_match_fini(&match);
}

static void on_request(struct evhttp_request *request, void *context)
{
	static const char prefix[] = ROUTE_PREFIX, jobs[] = ROUTE_PREFIX "/jobs";
	struct server *server = context;
	const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
	size_t jobs_len = sizeof(jobs) - 1;

	if (!path)
		path = "";
	if (is_ambiguous(request))
		return;
	if (strcmp(path, "/healthz") == 0)
		reply(request, 200, checked(strdup("{\"status\":\"ok\"}")));
	else if (strcmp(path, "/readyz") == 0)
		on_readyz(server, request);
	else if (strcmp(path, SESSION_PATH) == 0)
		on_session(server, request);
	else if (strcmp(path, ROUTE_PREFIX "/now") == 0)
		on_live(server, request, 1);
	else if (strcmp(path, ROUTE_PREFIX "/live") == 0)
		on_live(server, request, 0);
	else if (strcmp(path, ROUTE_PREFIX "/openapi.json") == 0)
		reply_object(request, 200, openapi_json());
	else if (strncmp(path, jobs, jobs_len) == 0 && (!path[jobs_len] || path[jobs_len] == '/'))
		on_jobs(server, request, path + jobs_len + (path[jobs_len] == '/'));
	else if (strncmp(path, prefix, sizeof(prefix) - 1) == 0)
		on_operation(server, request, path + sizeof(prefix) - 1);
	else
		on_page(request, path);
}

struct server *server_new(struct event_base *base, int fd, const struct config *config)
{
	struct server *server = checked(calloc(1, sizeof(*server)));

	server->config = config;
	server->arena = json_arena_new();
	json_decimals_allow(server->arena);
	server->children = children_new(base, COMMANDS_RUNNING_MAX, COMMANDS_WAITING_MAX);
	server->jobs = jobs_new(base);
	server->access = access_start(config);
	server->live = live_start(base, config, may_look, server);
	server->web = web_new(base, fd, config,
			      &(struct web_options){ .methods = METHODS,
						     .head_bytes_max = HEAD_BYTES_MAX,
						     .body_bytes_max = BODY_BYTES_MAX,
						     .timeout_s = TIMEOUT_S,
						     .request = on_request,
						     .context = server });
	return server;
}

void server_free(struct server *server)
{
	live_stop(server->live);
	children_free(server->children);
	jobs_free(server->jobs);
	web_free(server->web);
	access_stop(server->access);
	json_arena_free(server->arena);
	free(server);
}
