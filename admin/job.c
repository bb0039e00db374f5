#include "admin/job.h"

#include "admin/outcome.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/api_key.h"
#include "common/message/number.h"
#include "ctl/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct job {
	TAILQ_ENTRY(job) next;
	int64_t id;
	const struct route *route;
	char *coupon; /* NULL: it is about more than one */
	char by[KEY_ID_LEN + 1];
	int64_t begin_ms, end_ms; /* wall clock; 0: it has not */
	struct child *child;      /* NULL: it has ended */
	int status;               /* HTTP's, of what it has come to; 0: it was ended */
	char *result;
};

struct jobs {
	struct children *children;
	TAILQ_HEAD(job_list, job) list; /* the latest first */
	int64_t last_id;
	size_t n;
};

struct jobs *jobs_new(struct event_base *base)
{
	struct jobs *jobs = checked(calloc(1, sizeof(*jobs)));

	TAILQ_INIT(&jobs->list);
	jobs->children = children_new(base, JOBS_RUNNING_MAX, JOBS_MAX);
	return jobs;
}

static void job_free(struct jobs *jobs, struct job *job)
{
	TAILQ_REMOVE(&jobs->list, job, next);
	jobs->n--;
	free(job->coupon);
	free(job->result);
	free(job);
}

void jobs_free(struct jobs *jobs)
{
	struct job *job;

	children_free(jobs->children);
	while ((job = TAILQ_FIRST(&jobs->list)))
		job_free(jobs, job);
	free(jobs);
}

static const char *state_of(const struct job *job)
{
	if (job->child)
		return child_is_waiting(job->child) ? "waiting" : "running";
	return job->status == 0 ? "ended" : job->status < 400 ? "done" : "failed";
}

static void on_ended(void *context, const struct child_result *result)
{
	struct job *job = context;
	int64_t version;

	job->result = outcome_make(job->route, result, &job->status, &version);
	job->child = NULL;
	job->end_ms = clock_wall_ms();
	log_info("admin_job_ended", LOG_I("job", job->id), LOG_S("state", state_of(job)));
}

/* Forgets the oldest that has ended. 0, or -1: there is none. */
static int room_make(struct jobs *jobs)
{
	struct job *job;

	TAILQ_FOREACH_REVERSE(job, &jobs->list, job_list, next)
	{
		if (job->child)
			continue;
		job_free(jobs, job);
		return 0;
	}
	return -1;
}

int64_t job_start(struct jobs *jobs, const struct route_match *match, const struct words *words,
		  const char *by)
{
	const char *coupon = route_coupon(match);
	struct job *job;

	if (jobs->n == JOBS_MAX && room_make(jobs))
		return 0;
	job = checked(calloc(1, sizeof(*job)));
	job->id = ++jobs->last_id;
	job->route = match->route;
	job->coupon = coupon ? checked(strdup(coupon)) : NULL;
	snprintf(job->by, sizeof(job->by), "%s", by);
	job->begin_ms = clock_wall_ms();
	job->child = child_start(jobs->children, (const char *const *)words->list, 0, on_ended,
				 job);
	check(job->child != NULL);
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

void job_end(struct job *job)
{
	if (!job->child)
		return;
	child_kill(job->child);
	job->child = NULL;
	job->end_ms = clock_wall_ms();
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
	output_text(object, "by", job->by);
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
