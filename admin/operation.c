#include "admin/operation.h"

#include "admin/metrics.h"
#include "admin/outcome.h"
#include "admin/route.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/api_keys.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "ctl/output.h"

#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define JOBS_MAX 100

static const struct child_limits command_limits = {
	.running_max = 8, .looking_max = 6, .waiting_max = 64, .waiting_of_one_max = 32
};

/* With those that wait in both lanes they are never more than JOBS_MAX. */
static const struct child_limits job_limits = {
	.running_max = 4, .looking_max = 3, .waiting_max = 48, .waiting_of_one_max = 24
};

struct operations {
	const struct config *config;
	struct auth *auth;
	struct json_arena *arena;
	struct children *commands, *job_commands;
	TAILQ_HEAD(job_list, job) jobs; /* the latest first */
	int64_t last_job;
	size_t jobs_n;
};

/* What a request comes to whose command waits for a second person: it is recorded. */
static const struct route approval_route = { .method = EVHTTP_REQ_POST,
					     .path = "/approvals",
					     .role = KEY_ROLE_CAMPAIGN,
					     .command = "approval ask",
					     .made = "approval" };

/* A request whose command runs or waits. */
struct operation {
	struct operations *operations;
	struct admin_request request;
	const struct route *route;
	char *path;
	struct auth_about about; /* its texts are the operation's */
	struct child *child;
};

struct job {
	TAILQ_ENTRY(job) next;
	struct operations *operations;
	int64_t id;
	const struct route *route;
	char *coupon;             /* NULL: it is about more than one */
	char *key, *command;      /* Idempotency-Key, "": it has none; and what couponctl gets */
	struct visitor visitor;   /* who has started it */
	int64_t begin_ms, end_ms; /* wall clock; 0: it has not */
	struct child *child;      /* NULL: it has ended */
	int status;               /* HTTP's, of what it has come to; 0: it was ended */
	char *result;
};

/* ---- commands */

static void operation_free(struct operation *operation)
{
	free(operation->path);
	free((void *)operation->about.coupon);
	free((void *)operation->about.budget);
	free(operation);
}

static void on_ended(void *context, const struct child_result *result)
{
	struct operation *operation = context;
	struct admin_request *request = &operation->request;
	const char *made = operation->route->made;
	int64_t version;
	int status;
	char *text = outcome_make(operation->route, result, &status, &version);
	int is_asked = operation->route == &approval_route && status == 201;
	char etag[REQUEST_VERSION_SIZE + 2], location[128];

	metrics_count_result(status);
	if (request->http)
		evhttp_connection_set_closecb(evhttp_request_get_connection(request->http), NULL,
					      NULL);
	if (request->http && status < 400 && version > 0) {
		snprintf(etag, sizeof(etag), "\"%lld\"", (long long)version);
		request_header_add(request, "ETag", etag);
	}
	if (request->http && status < 400 && made) {
		cJSON *root = cJSON_Parse(text);
		const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, made));

		if (id) {
			snprintf(location, sizeof(location), ROUTE_PREFIX "%s/%s",
				 operation->route->path, id);
			request_header_add(request, "Location", location);
		}
		cJSON_Delete(root);
	}
	request_reply(request, is_asked ? 202 : status, text);
	operation_free(operation);
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
	struct operation *operation = context;

	if (has_left(operation->request.http))
		return 0;
	return auth_check_again(operation->operations->auth, &operation->request.visitor,
				operation->route->role, &operation->about) == AUTH_OK;
}

/*
 * The connection is lost, and evhttp has left the request to us. What runs goes on: what it
 * changes, it changes. What waits has changed nothing, and nobody asks for it any more.
 */
static void on_closed(struct evhttp_connection *connection, void *context)
{
	struct operation *operation = context;

	(void)connection;
	evhttp_request_free(operation->request.http);
	operation->request.http = NULL;
	if (!child_is_waiting(operation->child))
		return;
	child_kill(operation->child);
	operation_free(operation);
}

static void command_run(struct operations *operations, struct admin_request *request,
			const struct route_match *match, const char *command,
			const struct auth_about *about)
{
	struct operation *operation = checked(calloc(1, sizeof(*operation)));

	operation->operations = operations;
	operation->request = *request;
	operation->request.path = operation->path = checked(strdup(request->path));
	operation->route = match->route;
	if (about->coupon)
		operation->about.coupon = checked(strdup(about->coupon));
	if (about->budget)
		operation->about.budget = checked(strdup(about->budget));
	operation->child = child_start(operations->commands,
				       &(struct child_task){
					       .request = command,
					       .timeout_ms = operations->config->admin_timeout_ms,
					       .changes = match->route->role > KEY_ROLE_MONITOR,
					       .by = request->visitor.by,
					       .may_start = may_start,
					       .ended = on_ended,
					       .context = operation });
	if (!operation->child) {
		operation_free(operation);
		metrics_count_result(503);
		request_refuse(request, 503, "too many commands run and wait: nothing was done");
		return;
	}
	evhttp_connection_set_closecb(evhttp_request_get_connection(request->http), on_closed,
				      operation);
}

/* ---- jobs */

static void job_free(struct job *job)
{
	TAILQ_REMOVE(&job->operations->jobs, job, next);
	job->operations->jobs_n--;
	free(job->coupon);
	free(job->key);
	free(job->command);
	free(job->result);
	free(job);
}

static const char *job_state(const struct job *job)
{
	if (job->child)
		return child_is_waiting(job->child) ? "waiting" : "running";
	return job->status == 0 ? "ended" : job->status < 400 ? "done" : "failed";
}

static void job_end_log(const struct job *job, const char *by)
{
	log_info("admin_job_ended", LOG_I("job", job->id), LOG_S("command", job->route->command),
		 LOG_S("coupon", job->coupon ? job->coupon : ""), LOG_S("key", by),
		 LOG_S("state", job_state(job)), LOG_I("ms", job->end_ms - job->begin_ms));
}

static void on_job_ended(void *context, const struct child_result *result)
{
	struct job *job = context;
	int64_t version;

	job->result = outcome_make(job->route, result, &job->status, &version);
	job->child = NULL;
	job->end_ms = clock_wall_ms();
	metrics_count_result(job->status);
	job_end_log(job, job->visitor.by);
}

static int job_may_start(void *context)
{
	struct job *job = context;

	return auth_check_again(job->operations->auth, &job->visitor, job->route->role,
				&(struct auth_about){ .coupon = job->coupon }) == AUTH_OK;
}

static void time_add(cJSON *object, const char *name, int64_t wall_ms)
{
	char text[CLOCK_RFC3339_SIZE];

	output_text(object, name, wall_ms ? clock_rfc3339(wall_ms, text) : NULL);
}

static cJSON *job_head_json(struct job *job)
{
	cJSON *object = output_object();

	output_id(object, "job", job->id);
	output_text(object, "command", job->route->command);
	output_text(object, "coupon", job->coupon);
	output_text(object, "by", job->visitor.by);
	output_text(object, "state", job_state(job));
	output_text(object, "progress", job->child ? child_last_line(job->child) : NULL);
	time_add(object, "begun_at", job->begin_ms);
	time_add(object, "ended_at", job->end_ms);
	return object;
}

static cJSON *job_json(struct job *job)
{
	cJSON *object = job_head_json(job);

	output_raw(object, job->status >= 400 ? "problem" : "result",
		   job->result ? job->result : "");
	return object;
}

/*
 * Starts a job, unless the visitor has started one with the same Idempotency-Key: then the request
 * is answered with that one, if it has the same words.
 */
static void job_run(struct operations *operations, struct admin_request *request,
		    const struct route_match *match, const char *command, const char *key)
{
	const char *coupon = route_part(match, "coupon"), *visitor = request->visitor.by;
	char location[64], number[NUMBER_SIZE];
	struct job *job, *oldest = NULL;

	TAILQ_FOREACH (job, &operations->jobs, next) {
		if (*key && strcmp(job->key, key) == 0 && strcmp(job->visitor.by, visitor) == 0)
			break;
	}
	if (job && strcmp(job->command, command) != 0) {
		metrics_count_result(422);
		request_refuse(request, 422,
			       "Idempotency-Key was used for another job, and nothing was done: "
			       "each job needs its own key");
		return;
	}
	if (job)
		goto reply;

	job = checked(calloc(1, sizeof(*job)));
	job->operations = operations;
	job->child = child_start(operations->job_commands,
				 &(struct child_task){ .request = command,
						       .changes = match->route->role >
								  KEY_ROLE_MONITOR,
						       .by = visitor,
						       .may_start = job_may_start,
						       .ended = on_job_ended,
						       .context = job });
	if (!job->child) {
		free(job);
		metrics_count_result(503);
		request_refuse(request, 503, "too many jobs run and wait: nothing was done");
		return;
	}
	job->command = checked(strdup(command));
	job->key = checked(strdup(key));
	job->id = ++operations->last_job;
	job->route = match->route;
	job->coupon = coupon ? checked(strdup(coupon)) : NULL;
	job->visitor = request->visitor;
	*job->visitor.token = '\0'; /* it goes on when its session has ended */
	job->begin_ms = clock_wall_ms();

	if (operations->jobs_n == JOBS_MAX) {
		TAILQ_FOREACH_REVERSE(oldest, &operations->jobs, job_list, next)
		{
			if (!oldest->child)
				break;
		}
		check(oldest); /* not all of them wait or run */
		job_free(oldest);
	}
	TAILQ_INSERT_HEAD(&operations->jobs, job, next);
	operations->jobs_n++;
reply:
	snprintf(location, sizeof(location), ROUTE_PREFIX "/jobs/%s", number_text(job->id, number));
	request_header_add(request, "Location", location);
	request_reply_object(request, 202, job_json(job));
}

void jobs_answer(struct operations *operations, struct admin_request *request, const char *id)
{
	enum evhttp_cmd_type method = evhttp_request_get_command(request->http);
	struct job *job = NULL;
	int64_t number;

	if (id_parse(id, strlen(id), &number) == 0)
		TAILQ_FOREACH (job, &operations->jobs, next) {
			if (job->id == number)
				break;
		}
	if (request->changes && (method != EVHTTP_REQ_DELETE || !*id)) {
		request_refuse_method(request,
				      *id ? EVHTTP_REQ_GET | EVHTTP_REQ_DELETE : EVHTTP_REQ_GET);
		return;
	}
	if (!request_admit(request, operations->auth,
			   request->changes ? KEY_ROLE_ADMIN : KEY_ROLE_MONITOR,
			   &(struct auth_about){ .coupon = job ? job->coupon : NULL }))
		return;
	if (!*id) {
		cJSON *object = output_object(), *list = checked(cJSON_CreateArray());

		TAILQ_FOREACH (job, &operations->jobs, next) {
			cJSON_AddItemToArray(list, job_head_json(job));
		}
		output_add(object, "jobs", list);
		request_reply_object(request, 200, object);
		return;
	}
	if (!job) {
		request_refuse(request, 404, "there is no such job");
		return;
	}
	if (request->changes && job->child) {
		child_kill(job->child);
		job->child = NULL;
		job->end_ms = clock_wall_ms();
		job_end_log(job, request->visitor.by);
	}
	request_reply_object(request, 200, job_json(job));
}

/* ---- requests */

/* Makes the request of couponctl from that of the client. 0, or -1: the client is answered. */
static int command_read(struct operations *operations, struct admin_request *request,
			const struct route_match *match, struct command_request *command,
			char key[COMMAND_KEY_MAX + 1])
{
	struct evkeyvalq parameters;
	char version[REQUEST_VERSION_SIZE];
	int rc;

	if (request_version(request, match->route->flags & ROUTE_NEEDS_VERSION, version) ||
	    request_command_key(request, key))
		return -1;
	rc = command_request_begin(command, match, &request->visitor, *version ? version : NULL,
				   *key ? key : NULL);
	if (rc == 0 && request->changes) {
		const cJSON *body;
		int answered;

		if (evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request->http))) {
			request_refuse(request, 400, "a query is allowed only with GET");
			return -1;
		}
		body = request_body(request, operations->arena, &answered);
		if (answered)
			return -1;
		rc = command_request_body(command, match, body, *key ? key : NULL);
	} else if (rc == 0) {
		if (evbuffer_get_length(evhttp_request_get_input_buffer(request->http)) > 0) {
			request_refuse(request, 400, "a body is not allowed with GET");
			return -1;
		}
		if (request_parameters(request, &parameters))
			return -1;
		rc = command_request_query(command, match, &parameters);
		evhttp_clear_headers(&parameters);
	}
	if (rc)
		request_refuse(request, 400, command->why);
	return rc;
}

/* Whether a word of the list, between commas, is this command. */
static int approval_is_needed(const struct config *config, const char *command)
{
	const char *at = config->admin_approval;

	while (*at) {
		size_t len = strcspn(at, ",");

		if (len == strlen(command) && memcmp(at, command, len) == 0)
			return 1;
		at += len + (at[len] == ',');
	}
	return 0;
}

void approval_check(const struct config *config)
{
	char *copy = checked(strdup(config->admin_approval)), *rest = copy, *word;

	while (*config->admin_approval && (word = strsep(&rest, ",")) != NULL)
		if (!ctl_is_approvable(word))
			log_fatal("COUPON_ADMIN_APPROVAL is \"%s\": allowed are close and void, "
				  "separated by a comma",
				  config->admin_approval);
	free(copy);
}

/* The request becomes one that asks for an approval of it. Who has sent it stays outside. */
static void approval_ask_make(struct command_request *command)
{
	static const char *const outer[] = { "by", "key" };
	cJSON *asked = command->json, *json = output_object();

	output_text(json, "command", approval_route.command);
	for (size_t i = 0; i < sizeof(outer) / sizeof(outer[0]); i++) {
		cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(asked, outer[i]);

		if (item)
			output_add(json, outer[i], item);
	}
	output_add(json, "request", asked);
	command->json = json;
}

/* A whole key, say, in the place of its id. */
static int is_no_key_id(const struct route_match *match)
{
	return strstr(match->route->path, "{api_key}") &&
	       !key_id_valid(match->parts[0], strlen(match->parts[0]));
}

void operation_answer(struct operations *operations, struct admin_request *request,
		      const char *path)
{
	char key[COMMAND_KEY_MAX + 1];
	struct command_request command = { 0 };
	struct route_match match;
	struct auth_about about;
	const cJSON *budget;
	char *text;

	route_match(&match, evhttp_request_get_command(request->http), path);
	if (!match.route)
		request->path = REQUEST_PATH_UNKNOWN;
	if (!match.route && match.methods) {
		request_refuse_method(request, match.methods);
		goto out;
	}
	if (!match.route) {
		request_refuse(request, 404,
			       "there is no such path: see " ROUTE_PREFIX "/openapi.json");
		goto out;
	}

	/* Log no exchange code and no key: a reader of the log could use it. */
	if (strstr(match.route->path, "{code}") || is_no_key_id(&match))
		request->path = match.route->path;
	about = (struct auth_about){ .coupon = route_part(&match, "coupon"),
				     .budget = route_part(&match, "budget") };
	if (!request_admit(request, operations->auth, match.route->role, &about))
		goto out;
	if (is_no_key_id(&match)) {
		request_refuse(request, 400,
			       "the path has no key id: allowed are the 10 characters between "
			       "the underscores of " KEY_PREFIX "ID_SECRET");
		goto out;
	}
	if (command_read(operations, request, &match, &command, key))
		goto out;

	/* A member may name a budget beside the campaign of the path, and spend it. */
	budget = cJSON_GetObjectItemCaseSensitive(command.json, "budget");
	if (budget) { /* null takes the campaign from any budget */
		about.budget = cJSON_IsString(budget) ? budget->valuestring : "none";
		if (!request_admit(request, operations->auth, match.route->role, &about))
			goto out;
	}
	if (approval_is_needed(operations->config, match.route->command)) {
		approval_ask_make(&command);
		match.route = &approval_route;
	}
	text = checked(json_write(command.json));
	if (match.route->flags & ROUTE_JOB)
		job_run(operations, request, &match, text, key);
	else
		command_run(operations, request, &match, text, &about);
	cJSON_free(text);
out:
	command_request_fini(&command);
	route_match_fini(&match);
}

struct operations *operations_new(struct event_base *base, const struct config *config,
				  struct auth *auth, struct json_arena *arena)
{
	struct operations *operations = checked(calloc(1, sizeof(*operations)));

	operations->config = config;
	operations->auth = auth;
	operations->arena = arena;
	operations->commands = children_new(base, &command_limits);
	operations->job_commands = children_new(base, &job_limits);
	TAILQ_INIT(&operations->jobs);
	return operations;
}

void operations_free(struct operations *operations)
{
	struct job *job;

	children_free(operations->commands);
	children_free(operations->job_commands);
	while ((job = TAILQ_FIRST(&operations->jobs)))
		job_free(job);
	free(operations);
}

void operations_drain(struct operations *operations)
{
	children_drain(operations->commands);
	children_drain(operations->job_commands);
}

struct child_counts operations_count(const struct operations *operations)
{
	struct child_counts commands = children_count(operations->commands),
			    jobs = children_count(operations->job_commands);

	return (struct child_counts){ .running = commands.running + jobs.running,
				      .waiting = commands.waiting + jobs.waiting };
}
