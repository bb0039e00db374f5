#include "admin/job.h"

#include "admin/metrics.h"
#include "admin/outcome.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/number.h"
#include "ctl/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* With those that wait in both lanes they are never more than JOBS_MAX. */
static const struct child_limits limits = {
	.running_max = 4, .looking_max = 3, .waiting_max = 48, .waiting_of_one_max = 24
};

struct job {
	TAILQ_ENTRY(job) next;
	struct jobs *jobs;
	int64_t id;
	const struct route *route;
	char *coupon;             /* NULL: it is about more than one */
	char *key, *words;        /* Idempotency-Key, "": it has none; and what it is for */
	struct visitor visitor;   /* who has started it */
	int64_t begin_ms, end_ms; /* wall clock; 0: it has not */
	struct child *child;      /* NULL: it has ended */
	int status;               /* HTTP's, of what it has come to; 0: it was ended */
	char *result;
};

struct jobs {
	struct access *access;
	struct children *children;
	TAILQ_HEAD(job_list, job) list; /* the latest first */
	int64_t last_id;
	size_t n;
};

struct jobs *jobs_new(struct event_base *base, struct access *access)
{
	struct jobs *jobs = checked(calloc(1, sizeof(*jobs)));

	TAILQ_INIT(&jobs->list);
	jobs->access = access;
	jobs->children = children_new(base, &limits);
	return jobs;
}

struct children *jobs_children(struct jobs *jobs)
{
	return jobs->children;
}

static void job_free(struct job *job)
{
	struct jobs *jobs = job->jobs;

	TAILQ_REMOVE(&jobs->list, job, next);
	jobs->n--;
	free(job->coupon);
	free(job->key);
	free(job->words);
	free(job->result);
	free(job);
}

void jobs_free(struct jobs *jobs)
{
	struct job *job;

	children_free(jobs->children);
	while ((job = TAILQ_FIRST(&jobs->list)))
		job_free(job);
	free(jobs);
}

static const char *state_of(const struct job *job)
{
	if (job->child)
		return child_is_waiting(job->child) ? "waiting" : "running";
	return job->status == 0 ? "ended" : job->status < 400 ? "done" : "failed";
}

static void end_log(const struct job *job, const char *by)
{
	log_info("admin_job_ended", LOG_I("job", job->id), LOG_S("command", job->route->command),
		 LOG_S("coupon", job->coupon ? job->coupon : ""), LOG_S("key", by),
		 LOG_S("state", state_of(job)), LOG_I("ms", job->end_ms - job->begin_ms));
}

static void on_ended(void *context, const struct child_result *result)
{
	struct job *job = context;
	int64_t version;

	job->result = outcome_make(job->route, result, &job->status, &version);
	job->child = NULL;
	job->end_ms = clock_wall_ms();
	metrics_count_result(job->status);
	end_log(job, job->visitor.key);
}

static int may_start(void *context)
{
	struct job *job = context;

	return access_check_again(job->jobs->access, &job->visitor, job->route->role,
				  &(struct access_about){ .coupon = job->coupon }) == ACCESS_OK;
}

/* Forgets the oldest that has ended. */
static void room_make(struct jobs *jobs)
{
	struct job *job;

	TAILQ_FOREACH_REVERSE(job, &jobs->list, job_list, next)
	{
		if (job->child)
			continue;
		job_free(job);
		return;
	}
	check(!"all jobs wait or run");
}

/* One a line, which no word contains (malloc). */
static char *words_text(const struct words *words)
{
	char *text = checked(strdup("")), *longer;

	for (size_t i = 0; i < words->n; i++) {
		check(asprintf(&longer, "%s%s\n", text, words->list[i]) >= 0);
		free(text);
		text = longer;
	}
	return text;
}

/* The job that this key of the visitor has started; NULL: none is known. */
static const struct job *keyed_find(const struct jobs *jobs, const char *key, const char *visitor)
{
	const struct job *job;

	if (!*key)
		return NULL;
	TAILQ_FOREACH (job, &jobs->list, next) {
		if (strcmp(job->key, key) == 0 && strcmp(job->visitor.key, visitor) == 0)
			return job;
	}
	return NULL;
}

int64_t job_start(struct jobs *jobs, const struct route_match *match, const struct words *words,
		  const struct visitor *visitor, const char *key)
{
	const struct job *before = keyed_find(jobs, key, visitor->key);
	const char *coupon = route_part(match, "coupon");
	char *text = words_text(words);
	struct job *job;

	if (before) {
		int is_same = strcmp(before->words, text) == 0;

		free(text);
		return is_same ? before->id : -1;
	}
	job = checked(calloc(1, sizeof(*job)));
	job->jobs = jobs;
	job->child = child_start(jobs->children,
				 &(struct child_task){ .words = (const char *const *)words->list,
						       .changes = match->route->role ==
								  KEY_ROLE_ADMIN,
						       .by = visitor->key,
						       .may_start = may_start,
						       .ended = on_ended,
						       .context = job });
	if (!job->child) {
		free(text);
		free(job);
		return 0;
	}
	job->words = text;
	job->key = checked(strdup(key));
	job->id = ++jobs->last_id;
	job->route = match->route;
	job->coupon = coupon ? checked(strdup(coupon)) : NULL;
	job->visitor = *visitor;
	*job->visitor.token = '\0'; /* it goes on when its session has ended */
	job->begin_ms = clock_wall_ms();
	if (jobs->n == JOBS_MAX)
		room_make(jobs);
	TAILQ_INSERT_HEAD(&jobs->list, job, next);
	jobs->n++;
	return job->id;
}

struct job *job_find(struct jobs *jobs, const char *id)
{
	struct job *job;
	int64_t number;

	if (id_parse(id, strlen(id), &number))
		return NULL;
	TAILQ_FOREACH (job, &jobs->list, next) {
		if (job->id == number)
			return job;
	}
	return NULL;
}

const char *job_coupon(const struct job *job)
{
	return job->coupon;
}

void job_end(struct job *job, const char *by)
{
	if (!job->child)
		return;
	child_kill(job->child);
	job->child = NULL;
	job->end_ms = clock_wall_ms();
	end_log(job, by);
}

static void time_add(cJSON *object, const char *name, int64_t wall_ms)
{
	char text[CLOCK_RFC3339_SIZE];

	output_text(object, name, wall_ms ? clock_rfc3339(wall_ms, text) : NULL);
}

static cJSON *head_json(struct job *job)
{
	cJSON *object = output_object();
	const char *line = job->child ? child_last_line(job->child) : "";
	char *progress = words_translate(line, strlen(line));

	output_id(object, "job", job->id);
	output_text(object, "command", job->route->command);
	output_text(object, "coupon", job->coupon);
	output_text(object, "by", job->visitor.key);
	output_text(object, "state", state_of(job));
	output_text(object, "progress", progress);
	time_add(object, "begun_at", job->begin_ms);
	time_add(object, "ended_at", job->end_ms);
	free(progress);
	return object;
}

cJSON *job_json(struct job *job)
{
	cJSON *object = head_json(job);

	output_raw(object, job->status >= 400 ? "problem" : "result",
		   job->result ? job->result : "");
	return object;
}

cJSON *jobs_json(struct jobs *jobs)
{
	cJSON *object = output_object(), *list = checked(cJSON_CreateArray());
	struct job *job;

	TAILQ_FOREACH (job, &jobs->list, next) {
		cJSON_AddItemToArray(list, head_json(job));
	}
	output_add(object, "jobs", list);
	return object;
}
