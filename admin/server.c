#include "admin/server.h"

#include "admin/live.h"
#include "admin/metrics.h"
#include "admin/operation.h"
#include "admin/route.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/program/couponctl.h"
#include "common/program/weak_settings.h"
#include "common/serve/loop.h"
#include "common/serve/web.h"
#include "ctl/output.h"
#include "embed.h"

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
#define HEAD_BYTES_MAX 65536
#define TARGET_BYTES_MAX 16384
#define BODY_BYTES_MAX 65536
#define TIMEOUT_S 10 /* of an idle or slow connection */
#define STOP_TICK_MS 50
#define ASK_TICK_MS 5
#define ASK_MS 5000      /* both stores may hang */
#define ASK_KNOWN_MS 500 /* for a key that was good at the last look; then that counts */
#define STOP_TICKS 10    /* for the last replies to go out */
#define ACCEPTED_MS 500  /* for what a listener of systemd accepted before it was closed */

/* A request that is answered when the stores were asked for changes of keys. */
struct waiting {
	TAILQ_ENTRY(waiting) next;
	struct admin_server *server;
	struct evhttp_request *http;
	uint64_t question;
	int64_t until_ms;
};

struct admin_server {
	const struct config *config;
	struct event_base *base;
	struct web *web;
	struct auth *auth;
	struct operations *operations;
	struct live *live;
	struct json_arena *arena;

	TAILQ_HEAD(, waiting) waiting;
	struct ticker *asking; /* while there are some */

	struct ticker *stopping;
	int64_t stop_by_ms; /* 0: it goes on */
	int stop_ticks;
	int is_given;  /* its listener is systemd's, and outlives it */
	int is_closed; /* it accepts nothing more */
};

/* ---- what goes on */

static int may_look(void *context, struct evhttp_request *http)
{
	struct admin_server *server = context;
	struct admin_request request = { .http = http, .is_asked = 1 };

	return request_auth(&request, server->auth, KEY_ROLE_MONITOR, NULL) == AUTH_OK;
}

/*
 * Answers /admin/v1/now with one sample of what goes on (`once`), and /admin/v1/live with one a
 * second until the client leaves.
 */
static void on_live(struct admin_server *server, struct admin_request *request, int once)
{
	struct evkeyvalq parameters;
	const struct evkeyval *pair;
	const char *coupons = "", *why;
	char detail[128] = "";
	int status;

	if (evhttp_request_get_command(request->http) != EVHTTP_REQ_GET) {
		request_refuse_method(request, EVHTTP_REQ_GET);
		return;
	}
	if (!request_admit(request, server->auth, KEY_ROLE_MONITOR, NULL))
		return;
	if (request_parameters(request, &parameters))
		return;
	TAILQ_FOREACH (pair, &parameters, next) {
		if (strcmp(pair->key, "coupons") != 0)
			snprintf(detail, sizeof(detail), "%.60s: there is no such parameter",
				 pair->key);
		coupons = pair->value;
	}
	if (*detail) {
		request_refuse(request, 400, detail);
	} else {
		status = live_look(server->live, request->http, request->visitor.by, coupons, once,
				   &why);
		if (status)
			request_refuse(request, status, why);
	}
	evhttp_clear_headers(&parameters);
}

/* ---- the pages of the console */

/* Nothing comes from elsewhere, nothing is inline, and no other page shows it in a frame. */
#define POLICY                                                                                  \
	"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src " \
	"'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

static const char *type_of(const char *name)
{
	static const struct {
		const char *end, *type;
	} types[] = { { ".html", "text/html; charset=utf-8" },
		      { ".css", "text/css; charset=utf-8" },
		      { ".js", "text/javascript; charset=utf-8" },
		      { ".md", "text/markdown; charset=utf-8" },
		      { ".svg", "image/svg+xml" } };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(strrchr(name, '.'), types[i].end) == 0)
			return types[i].type;
	check(!"a type of file that has no name");
	return NULL;
}

/* Answers a path that has no other meaning: with a file of the console (console/), or with 404. */
static void on_page(struct admin_request *request)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request->http);
	const char *prefix = "/console/", *known = request_header(request, "If-None-Match"),
		   *name = "";
	const struct console_file *file = console_files;
	struct evbuffer *body;
	char tag[32];

	if (request->changes) {
		request->path = REQUEST_PATH_UNKNOWN;
		request_refuse_method(request, EVHTTP_REQ_GET);
		return;
	}
	if (strcmp(request->path, "/") == 0)
		name = "index.html";
	else if (strncmp(request->path, prefix, strlen(prefix)) == 0)
		name = request->path + strlen(prefix);
	while (file->name && strcmp(file->name, name) != 0)
		file++;
	if (!file->name) {
		request_refuse(request, 404,
			       "there is no such path: see " ROUTE_PREFIX "/openapi.json");
		return;
	}

	snprintf(tag, sizeof(tag), "\"%s\"", file->tag);
	evhttp_add_header(headers, "ETag", tag);
	evhttp_add_header(headers, "Cache-Control", "no-cache");
	evhttp_add_header(headers, "Content-Security-Policy", POLICY);
	evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
	evhttp_add_header(headers, "Referrer-Policy", "no-referrer");
	evhttp_add_header(headers, "Cross-Origin-Opener-Policy", "same-origin");
	if (known && strcmp(known, tag) == 0) {
		evhttp_send_reply(request->http, HTTP_NOTMODIFIED, NULL, NULL);
		return;
	}
	body = checked(evbuffer_new());
	check(evbuffer_add_reference(body, file->text, strlen(file->text), NULL, NULL) == 0);
	web_reply(request->http, 200, NULL, type_of(file->name), body);
}

/* ---- sessions of browsers */

static cJSON *session_json(const struct visitor *visitor)
{
	cJSON *object = output_object();
	char text[CLOCK_RFC3339_SIZE];

	output_text(object, "key", visitor->grant.key ? visitor->by : NULL);
	output_text(object, "user", visitor->grant.key ? NULL : visitor->by);
	output_text(object, "role", auth_role_name(visitor->roles));
	output_text(object, "csrf_token", visitor->token);
	output_text(object, "ends_at",
		    visitor->ends_ms ? clock_rfc3339(visitor->ends_ms, text) : NULL);
	return object;
}

/* `ends_ms` by the wall clock; 0: the browser forgets it at once. */
static void cookie_set(struct admin_request *request, const char *value, int64_t ends_ms,
		       int is_secure)
{
	int64_t seconds = ends_ms ? (ends_ms - clock_wall_ms()) / 1000 : 0;
	char text[192];

	snprintf(text, sizeof(text),
		 SESSION_COOKIE "=%s; Path=/admin; Max-Age=%lld; HttpOnly; SameSite=Strict%s",
		 value, (long long)seconds, is_secure ? "; Secure" : "");
	request_header_add(request, "Set-Cookie", text);
}

/* A browser signs in with a key, is told who it is, and signs out. */
static void on_session(struct admin_server *server, struct admin_request *request)
{
	int is_secure = web_tls(server->web) != NULL, answered;
	enum evhttp_cmd_type method = evhttp_request_get_command(request->http);
	char session[SESSION_TEXT_SIZE];
	const cJSON *body, *key;
	enum auth_answer answer;

	/* A key would not count beside the name that the proxy gives. */
	if (method == EVHTTP_REQ_POST && request_has_user(request, server->auth)) {
		request_refuse(request, 403,
			       "a proxy names the user of this request: there is no other session");
	} else if (method == EVHTTP_REQ_POST) {
		body = request_body(request, server->arena, &answered);
		if (answered)
			return;
		key = cJSON_GetObjectItemCaseSensitive(body, "key");
		if (!cJSON_IsString(key) || cJSON_GetArraySize(body) != 1) {
			request_refuse(request, 400,
				       "the body must be {\"key\":\"…\"}, with an API key");
			return;
		}
		answer = auth_session_begin(server->auth, key->valuestring, request->is_asked,
					    session, &request->visitor);
		json_arena_wipe(server->arena);
		if (answer != AUTH_OK) {
			request_refuse_auth(request, answer);
			return;
		}
		cookie_set(request, session, request->visitor.ends_ms, is_secure);
		request_reply_object(request, 200, session_json(&request->visitor));
	} else if (!request->changes) {
		if (request_admit(request, server->auth, 0, NULL))
			request_reply_object(request, 200, session_json(&request->visitor));
	} else if (method == EVHTTP_REQ_DELETE) {
		if (!request_admit(request, server->auth, 0, NULL))
			return;
		if (request_cookie(request, session))
			auth_session_end(server->auth, session);
		cookie_set(request, "", 0, is_secure);
		request_reply(request, 204, NULL);
	} else {
		request_refuse_method(request,
				      EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_DELETE);
	}
}

/* ---- what watches the program */

#define NO_PROGRAM "cannot be started"

int server_is_ready(const struct admin_server *server, const char **why)
{
	*why = auth_trouble(server->auth);
	if (*why)
		return 0;
	if (access(couponctl_path(), X_OK))
		*why = "couponctl " NO_PROGRAM;
	else if (server->stop_by_ms)
		*why = "stopping";
	else
		return 1;
	return 0;
}

/* Tells everybody whether the program is ready, and why not only those with a key. */
static void on_readyz(struct admin_server *server, struct admin_request *request)
{
	const char *trouble = auth_trouble(server->auth), *why;
	int program = access(couponctl_path(), X_OK) == 0, ready = server_is_ready(server, &why);
	const struct tls *tls = web_tls(server->web);
	enum auth_answer answer = request_auth(request, server->auth, KEY_ROLE_MONITOR, NULL);
	cJSON *object, *warnings;
	char *text;

	if (answer == AUTH_NEW || answer == AUTH_KNOWN) {
		request_refuse_auth(request, answer);
		return;
	}
	object = output_object();
	output_bool(object, "ready", ready);
	if (answer == AUTH_OK) {
		output_text(object, "keys", trouble ? trouble : "ok");
		output_text(object, "couponctl", program ? "ok" : NO_PROGRAM);
		warnings = checked(cJSON_AddArrayToObject(object, "warnings"));
		transport_warnings(warnings);
		if (tls && tls_trouble(tls))
			cJSON_AddItemToArray(warnings, cJSON_CreateString(tls_trouble(tls)));
	}
	text = checked(json_write(object));
	web_reply_json(request->http, ready ? 200 : 503, text);
	cJSON_free(text);
	cJSON_Delete(object);
}

static void on_tick(void *context, const struct tls *tls)
{
	(void)context;
	metrics_set(METRIC_TLS_EXPIRES, tls_expires_s(tls));
	metrics_set(METRIC_TLS_TROUBLE, tls_trouble(tls) != NULL);
}

static void on_metrics(struct admin_server *server, struct admin_request *request)
{
	struct child_counts counts = operations_count(server->operations);
	struct evbuffer *body;

	if (!request_admit(request, server->auth, KEY_ROLE_MONITOR, NULL))
		return;
	metrics_set(METRIC_RUNNING, (int64_t)counts.running);
	metrics_set(METRIC_WAITING, (int64_t)counts.waiting);
	metrics_set(METRIC_SESSIONS, (int64_t)auth_sessions_n(server->auth));
	body = checked(evbuffer_new());
	metrics_prometheus(body);
	web_reply(request->http, 200, NULL, EXPOSITION_TYPE, body);
}

/* ---- requests */

/* The rest of a path that begins with these segments, or NULL. */
static const char *path_rest(const char *path, const char *begin)
{
	size_t len = strlen(begin);

	return strncmp(path, begin, len) == 0 && (!path[len] || path[len] == '/') ? path + len
										  : NULL;
}

static void request_answer(struct admin_server *server, struct admin_request *request)
{
	const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request->http)), *rest;
	size_t len = path ? strlen(path) : 0;
	const struct evkeyval *header;
	int lengths_n = 0;

	/* evhttp lets these pass, but a proxy in front of it may find another end of the body. */
	TAILQ_FOREACH (header, evhttp_request_get_input_headers(request->http), next) {
		lengths_n += strcasecmp(header->key, "Content-Length") == 0;
	}
	if (lengths_n > 1 || request_header(request, "Transfer-Encoding")) {
		request_header_add(request, "Connection", "close");
		request_refuse(request, 411,
			       "a body needs one Content-Length, and no Transfer-Encoding");
		return;
	}
	if (strlen(evhttp_request_get_uri(request->http)) > TARGET_BYTES_MAX) {
		request_refuse(request, 414, "the path and the query have more than 16384 bytes");
		return;
	}
	if (len > 1 && path[len - 1] == '/') {
		request_refuse(request, 404,
			       "there is no such path: paths do not end with /, see " ROUTE_PREFIX
			       "/openapi.json");
		return;
	}

	request->path = path = path ? path : "";
	if (strcmp(path, "/healthz") == 0)
		request_reply(request, 200, checked(strdup("{\"status\":\"ok\"}")));
	else if (strcmp(path, "/readyz") == 0)
		on_readyz(server, request);
	else if (strcmp(path, "/metrics") == 0)
		on_metrics(server, request);
	else if (server->stop_by_ms)
		request_refuse(request, 503, "coupon-admin is stopping: nothing was done");
	else if (strcmp(path, "/admin/session") == 0)
		on_session(server, request);
	else if (strcmp(path, ROUTE_PREFIX "/now") == 0)
		on_live(server, request, 1);
	else if (strcmp(path, ROUTE_PREFIX "/live") == 0)
		on_live(server, request, 0);
	else if (strcmp(path, ROUTE_PREFIX "/openapi.json") == 0)
		request_reply_object(request, 200, openapi_json());
	else if ((rest = path_rest(path, ROUTE_PREFIX "/jobs")))
		jobs_answer(server->operations, request, rest + (*rest == '/'));
	else if ((rest = path_rest(path, ROUTE_PREFIX)))
		operation_answer(server->operations, request, rest);
	else
		on_page(request);
}

static void waiting_free(struct waiting *waiting)
{
	TAILQ_REMOVE(&waiting->server->waiting, waiting, next);
	free(waiting);
}

/* The client has gone while it waited, and evhttp has left the request to us. */
static void on_closed(struct evhttp_connection *connection, void *context)
{
	struct waiting *waiting = context;

	(void)connection;
	evhttp_request_free(waiting->http);
	waiting_free(waiting);
}

/*
 * Answers a request, or lets it wait until the stores have told of keys: then it is begun again.
 * `is_asked`, of struct credentials, is 0 when the request has arrived.
 */
static void request_begin(struct admin_server *server, struct evhttp_request *http, int is_asked)
{
	struct admin_request request = { .http = http,
					 .path = REQUEST_PATH_UNKNOWN,
					 .changes = !(evhttp_request_get_command(http) &
						      (EVHTTP_REQ_GET | EVHTTP_REQ_HEAD)),
					 .begin_ms = clock_monotonic_ms(),
					 .is_asked = is_asked };
	struct waiting *waiting;

	request_answer(server, &request);
	if (!request.asks)
		return;
	waiting = checked(calloc(1, sizeof(*waiting)));
	waiting->server = server;
	waiting->http = http;
	waiting->question = auth_ask(server->auth, request.asks);
	waiting->until_ms = request.begin_ms + (request.asks == AUTH_KNOWN ? ASK_KNOWN_MS : ASK_MS);
	TAILQ_INSERT_TAIL(&server->waiting, waiting, next);
	evhttp_connection_set_closecb(evhttp_request_get_connection(http), on_closed, waiting);
	ticker_start(server->asking);
}

static int on_ask_tick(void *context)
{
	struct admin_server *server = context;
	struct waiting *waiting = TAILQ_FIRST(&server->waiting), *next;

	for (; waiting; waiting = next) {
		struct evhttp_request *http = waiting->http;
		int told = auth_told(server->auth, waiting->question);

		next = TAILQ_NEXT(waiting, next);
		if (told == 0 && clock_monotonic_ms() < waiting->until_ms)
			continue;
		evhttp_connection_set_closecb(evhttp_request_get_connection(http), NULL, NULL);
		waiting_free(waiting);
		request_begin(server, http, told == 1 ? 1 : -1);
	}
	return !TAILQ_EMPTY(&server->waiting);
}

static void on_request(struct evhttp_request *http, void *context)
{
	request_begin(context, http, 0);
}

/* Refuses what this connection may not ask for, and what a page of another site has sent. */
static void on_refused(struct evhttp_request *http, int status, const char *detail, void *context)
{
	struct admin_request request = { .http = http, .path = REQUEST_PATH_UNKNOWN };

	(void)context;
	request_refuse(&request, status, detail);
}

/* ---- the end */

/* Ends the loop when all changes have ended and their replies have gone out, or when it is late. */
static int on_stop_tick(void *context)
{
	struct admin_server *server = context;
	size_t running = operations_count(server->operations).running;

	if (running == 0 && ++server->stop_ticks < STOP_TICKS)
		return 1;
	if (running > 0 && clock_monotonic_ms() < server->stop_by_ms)
		return 1;
	event_base_loopbreak(server->base);
	return 0;
}

static void on_accepted_served(evutil_socket_t fd, short what, void *data)
{
	struct admin_server *server = data;

	(void)fd;
	(void)what;
	if (!server->stop_by_ms)
		server_stop(server);
}

void server_stop(struct admin_server *server)
{
	static const struct timeval accepted_time = { .tv_usec = ACCEPTED_MS * 1000 };
	struct child_counts counts = operations_count(server->operations);

	if (server->is_given && !server->is_closed) {
		server->is_closed = 1;
		web_close(server->web);
		check(event_base_once(server->base, -1, EV_TIMEOUT, on_accepted_served, server,
				      &accepted_time) == 0);
		return;
	}
	if (server->stop_by_ms || counts.running + counts.waiting == 0) {
		event_base_loopbreak(server->base);
		return;
	}
	server->stop_by_ms = clock_monotonic_ms() + server->config->admin_timeout_ms;
	operations_drain(server->operations);
	ticker_start(server->stopping);
}

struct admin_server *server_new(struct event_base *base, int fd, int is_given,
				const struct config *config)
{
	struct admin_server *server = checked(calloc(1, sizeof(*server)));

	server->config = config;
	server->is_given = is_given;
	server->base = base;
	server->arena = json_arena_new();
	json_decimals_allow(server->arena);
	server->auth = auth_start(config);
	server->operations = operations_new(base, config, server->auth, server->arena);
	server->live = live_start(base, config, may_look, server);
	TAILQ_INIT(&server->waiting);
	server->asking = ticker_new(base, ASK_TICK_MS, on_ask_tick, server);
	server->stopping = ticker_new(base, STOP_TICK_MS, on_stop_tick, server);
	server->web = web_new(base, fd, config,
			      &(struct web_options){ .methods = METHODS,
						     .head_bytes_max = HEAD_BYTES_MAX,
						     .body_bytes_max = BODY_BYTES_MAX,
						     .timeout_s = TIMEOUT_S,
						     .hosts = config->http_hosts,
						     .request = on_request,
						     .refuse = on_refused,
						     .tick = on_tick,
						     .context = server });
	return server;
}

void server_reload(struct admin_server *server)
{
	web_reload(server->web);
}

void server_free(struct admin_server *server)
{
	struct waiting *waiting;

	while ((waiting = TAILQ_FIRST(&server->waiting))) { /* evhttp ends the request */
		evhttp_connection_set_closecb(evhttp_request_get_connection(waiting->http), NULL,
					      NULL);
		waiting_free(waiting);
	}
	live_stop(server->live);
	operations_free(server->operations);
	ticker_free(server->asking);
	ticker_free(server->stopping);
	web_free(server->web);
	auth_stop(server->auth);
	json_arena_free(server->arena);
	free(server);
}
