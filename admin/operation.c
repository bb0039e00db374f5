#include "admin/operation.h"

#include "admin/job.h"
#include "admin/metrics.h"
#include "admin/outcome.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/api_keys.h"
#include "common/message/number.h"
#include "ctl/ctl.h"

#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_SIZE 24

static const struct child_limits limits = {
	.running_max = 8, .looking_max = 6, .waiting_max = 64, .waiting_of_one_max = 32
};

struct operations {
	const struct config *config;
	struct access *access;
	struct json_arena *arena;
	struct children *children;
	struct jobs *jobs;
};

/* One request whose command runs or waits. */
struct exchange {
	struct operations *operations;
	struct request request;
	const struct route *route;
	char *path;
	struct access_about about; /* its texts are the exchange's */
	struct child *child;
};

/* ---- commands */

static void exchange_free(struct exchange *exchange)
{
	free(exchange->path);
	free((void *)exchange->about.coupon);
	free((void *)exchange->about.budget);
	free(exchange);
}

static void location_add(struct request *request, const struct route *route, const char *text)
{
	cJSON *root = cJSON_Parse(text);
	const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, route->made));
	char location[128];

	if (id) {
		snprintf(location, sizeof(location), ROUTE_PREFIX "%s/%s", route->path, id);
		request_header_add(request, "Location", location);
	}
	cJSON_Delete(root);
}

static void headers_add(struct exchange *exchange, int64_t version, const char *text)
{
	char etag[VERSION_SIZE + 2];

	if (version > 0) {
		snprintf(etag, sizeof(etag), "\"%lld\"", (long long)version);
		request_header_add(&exchange->request, "ETag", etag);
	}
	if (exchange->route->made)
		location_add(&exchange->request, exchange->route, text);
}

static void on_ended(void *context, const struct child_result *result)
{
	struct exchange *exchange = context;
	struct evhttp_request *http = exchange->request.http;
	int64_t version;
	int status;
	char *text = outcome_make(exchange->route, result, &status, &version);

	metrics_count_result(status);
	if (http)
		evhttp_connection_set_closecb(evhttp_request_get_connection(http), NULL, NULL);
	if (http && status < 400)
		headers_add(exchange, version, text);
	request_reply(&exchange->request, status, text);
	exchange_free(exchange);
}

/* evhttp reads nothing until the reply, so nobody tells that the client has closed. */
static int has_left(struct evhttp_request *http)
{
	struct evhttp_connection *connection = evhttp_request_get_connection(http);
	struct pollfd peer = { .fd = bufferevent_getfd(
				       evhttp_connection_get_bufferevent(connection)),
			       .events = POLLRDHUP };

	return poll(&peer, 1, 0) > 0;
}

/* What has waited has changed nothing, and is not done for a client that has given it up. */
static int may_start(void *context)
{
	struct exchange *exchange = context;

	if (has_left(exchange->request.http))
		return 0;
	return access_check_again(exchange->operations->access, &exchange->request.visitor,
				  exchange->route->role, &exchange->about) == ACCESS_OK;
}

/*
 * The connection is lost, and evhttp has left the request to us. What runs goes on: what it
 * changes, it changes. What waits has changed nothing, and nobody asks for it any more.
 */
static void on_closed(struct evhttp_connection *connection, void *context)
{
	struct exchange *exchange = context;

	(void)connection;
	evhttp_request_free(exchange->request.http);
	exchange->request.http = NULL;
	if (!child_is_waiting(exchange->child))
		return;
	child_kill(exchange->child);
	exchange_free(exchange);
}

static void command_run(struct operations *operations, struct request *request,
			const struct route_match *match, const struct words *words,
			const struct access_about *about)
{
	struct exchange *exchange = checked(calloc(1, sizeof(*exchange)));

	exchange->operations = operations;
	exchange->request = *request;
	exchange->request.path = exchange->path = checked(strdup(request->path));
	exchange->route = match->route;
	if (about->coupon)
		exchange->about.coupon = checked(strdup(about->coupon));
	if (about->budget)
		exchange->about.budget = checked(strdup(about->budget));
	exchange->child = child_start(operations->children,
				      &(struct child_task){
					      .words = (const char *const *)words->list,
					      .input = words->input,
					      .timeout_ms = operations->config->admin_timeout_ms,
					      .changes = match->route->role == KEY_ROLE_ADMIN,
					      .by = request->visitor.key,
					      .may_start = may_start,
					      .ended = on_ended,
					      .context = exchange });
	if (!exchange->child) {
		exchange_free(exchange);
		metrics_count_result(503);
		request_refuse(request, 503, "too many commands run and wait: nothing was done");
		return;
	}
	evhttp_connection_set_closecb(evhttp_request_get_connection(request->http), on_closed,
				      exchange);
}

static void job_run(struct operations *operations, struct request *request,
		    const struct route_match *match, const struct words *words, const char *key)
{
	char location[64], number[NUMBER_SIZE];
	int64_t id = job_start(operations->jobs, match, words, &request->visitor, key);

	if (id < 0) {
		metrics_count_result(422);
		request_refuse(request, 422,
			       "Idempotency-Key was used for another job, and nothing was done: "
			       "each job needs its own key");
		return;
	}
	if (!id) {
		metrics_count_result(503);
		request_refuse(request, 503, "too many jobs run and wait: nothing was done");
		return;
	}
	snprintf(location, sizeof(location), ROUTE_PREFIX "/jobs/%s", number_text(id, number));
	request_header_add(request, "Location", location);
	request_reply_object(request, 202, job_json(job_find(operations->jobs, number)));
}

/* ---- what a request for a command has */

/*
 * The number in If-Match, "" for `*`, which every version matches. Tags are compared as RFC 9110
 * wants it here: a weak one is no version, and neither is one that no campaign has. 0, or -1: it is
 * answered.
 */
static int version_find(struct request *request, const struct route *route,
			char version[VERSION_SIZE])
{
	const char *value = request_header(request, "If-Match"), *at = value;
	int is_form = 1, found = 0;

	*version = '\0';
	if (!value && route->flags & ROUTE_NEEDS_VERSION) {
		request_refuse(request, 428,
			       "If-Match must have the version to be changed, as in the ETag of "
			       "the campaign");
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
		if (!is_weak && digits > 0 && digits == len && digits < VERSION_SIZE) {
			snprintf(version, VERSION_SIZE, "%.*s", (int)digits, at + 1);
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
		request_refuse(
			request, 412,
			"If-Match has no version: allowed is one in quotation marks, without "
			"W/, as in the ETag of the campaign");
	else
		return 0;
	return -1;
}

/*
 * Idempotency-Key of a POST (draft-ietf-httpapi-idempotency-key-header): a string of RFC 9651, in
 * quotes and without parameters, or bare, as most clients send it. "": there is none. 0, or -1: it
 * is answered.
 */
static int key_find(struct request *request, const struct route *route,
		    char key[COMMAND_KEY_MAX + 1])
{
	const char *text = route->method == EVHTTP_REQ_POST
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

/* Reads the parameters of a GET from its query. 0, or -1: the request is answered. */
static int parameters_read(struct request *request, const struct route_match *match,
			   struct words *words)
{
	const char *query = request_query(request);
	struct evkeyvalq pairs = { 0 };
	int rc;

	if (query && (strstr(query, "%00") || evhttp_parse_query_str(query, &pairs))) {
		request_refuse(request, 400, "the query cannot be read");
		return -1;
	}
	rc = words_of_query(words, match, &pairs);
	evhttp_clear_headers(&pairs);
	if (rc)
		request_refuse(request, 400, words->why);
	return rc;
}

/* Reads the members of a change from its body. 0, or -1: the request is answered. */
static int members_read(struct operations *operations, struct request *request,
			const struct route_match *match, struct words *words, const char *key)
{
	const cJSON *body;
	int answered;

	if (request_query(request)) {
		request_refuse(request, 400, "a query is allowed only with GET");
		return -1;
	}
	body = request_body(request, operations->arena, &answered);
	if (answered)
		return -1;
	if (words_of_body(words, match, body, key)) {
		request_refuse(request, 400, words->why);
		return -1;
	}
	return 0;
}

static int words_read(struct operations *operations, struct request *request,
		      const struct route_match *match, struct words *words,
		      char key[COMMAND_KEY_MAX + 1])
{
	char version[VERSION_SIZE];

	if (version_find(request, match->route, version) || key_find(request, match->route, key))
		return -1;
	if (words_begin(words, match, &request->visitor, *version ? version : NULL,
			*key ? key : NULL)) {
		request_refuse(request, 400, words->why);
		return -1;
	}
	if (request->changes)
		return members_read(operations, request, match, words, *key ? key : NULL);
	if (evbuffer_get_length(evhttp_request_get_input_buffer(request->http)) > 0) {
		request_refuse(request, 400, "a body is not allowed with GET");
		return -1;
	}
	return parameters_read(request, match, words);
}

/* A whole key, say, in the place of its id. */
static int is_no_key_id(const struct route_match *match)
{
	return strstr(match->route->path, "{api_key}") &&
	       !key_id_valid(match->parts[0], strlen(match->parts[0]));
}

static void operate(struct operations *operations, struct request *request,
		    const struct route_match *match)
{
	char key[COMMAND_KEY_MAX + 1];
	struct words words = { 0 };
	struct access_about about = { .coupon = route_part(match, "coupon"),
				      .budget = route_part(match, "budget") };
	const char *budget;

	/* Log no exchange code and no key: a reader of the log could use it. */
	if (strstr(match->route->path, "{code}") || is_no_key_id(match))
		request->path = match->route->path;
	if (!request_admit(request, operations->access, match->route->role, &about))
		return;
	if (is_no_key_id(match)) {
		request_refuse(request, 400,
			       "the path has no key id: allowed are the 10 characters between "
			       "the underscores of " KEY_PREFIX "ID_SECRET");
		return;
	}
	if (words_read(operations, request, match, &words, key))
		goto out;
	/* A member may name a budget beside the campaign of the path, and spend it. */
	budget = words_option(&words, "budget");
	if (budget) {
		about.budget = budget;
		if (!request_admit(request, operations->access, match->route->role, &about))
			goto out;
	}
	if (match->route->flags & ROUTE_JOB)
		job_run(operations, request, match, &words, key);
	else
		command_run(operations, request, match, &words, &about);
out:
	words_fini(&words);
}

void operation_answer(struct operations *operations, struct request *request, const char *path)
{
	struct route_match match;

	route_match(&match, evhttp_request_get_command(request->http), path);
	if (!match.route)
		request->path = REQUEST_PATH_UNKNOWN;
	if (match.route)
		operate(operations, request, &match);
	else if (match.methods)
		request_refuse_method(request, match.methods);
	else
		request_refuse(request, 404,
			       "there is no such path: see " ROUTE_PREFIX "/openapi.json");
	route_match_fini(&match);
}

/* ---- jobs */

void jobs_answer(struct operations *operations, struct request *request, const char *id)
{
	enum evhttp_cmd_type method = evhttp_request_get_command(request->http);
	struct job *job = job_find(operations->jobs, id);

	if (request->changes && (method != EVHTTP_REQ_DELETE || !*id)) {
		request_refuse_method(request,
				      *id ? EVHTTP_REQ_GET | EVHTTP_REQ_DELETE : EVHTTP_REQ_GET);
		return;
	}
	if (!request_admit(request, operations->access,
			   request->changes ? KEY_ROLE_ADMIN : KEY_ROLE_MONITOR,
			   &(struct access_about){ .coupon = job ? job_coupon(job) : NULL }))
		return;
	if (!*id) {
		request_reply_object(request, 200, jobs_json(operations->jobs));
		return;
	}
	if (!job) {
		request_refuse(request, 404, "there is no such job");
		return;
	}
	if (request->changes)
		job_end(job, request->visitor.key);
	request_reply_object(request, 200, job_json(job));
}

/* ---- all of them */

struct operations *operations_new(struct event_base *base, const struct config *config,
				  struct access *access, struct json_arena *arena)
{
	struct operations *operations = checked(calloc(1, sizeof(*operations)));

	operations->config = config;
	operations->access = access;
	operations->arena = arena;
	operations->children = children_new(base, &limits);
	operations->jobs = jobs_new(base, access);
	return operations;
}

void operations_free(struct operations *operations)
{
	children_free(operations->children);
	jobs_free(operations->jobs);
	free(operations);
}

void operations_drain(struct operations *operations)
{
	children_drain(operations->children);
	children_drain(jobs_children(operations->jobs));
}

struct child_counts operations_count(const struct operations *operations)
{
	struct child_counts commands = children_count(operations->children),
			    jobs = children_count(jobs_children(operations->jobs));

	return (struct child_counts){ .running = commands.running + jobs.running,
				      .waiting = commands.waiting + jobs.waiting };
}
