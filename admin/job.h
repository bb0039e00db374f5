/*
 * Commands that may take long: a request starts one, and others ask what has become of it. The last
 * JOBS_MAX are kept in memory; with the program they end.
 *
 *	waits ──▶ runs ──▶ done, or failed
 *	  └────────┴─────▶ ended: job_end()
 *
 * The key that has started one is judged once more when it has waited.
 *
 * The thread of the event base.
 */
#pragma once

#include "admin/access.h"
#include "admin/child.h"
#include "admin/route.h"

#define JOBS_MAX 100

struct job;
struct jobs;

struct jobs *jobs_new(struct event_base *base, struct access *access);
void jobs_free(struct jobs *jobs);
struct children *jobs_children(struct jobs *jobs);

/*
 * All is copied. Its number, or 0: too many wait. Of a `key`, not "", that has started a job with
 * these words it is the number of that job; -1: with other words.
 */
int64_t job_start(struct jobs *jobs, const struct route_match *match, const struct words *words,
		  const struct visitor *visitor, const char *key);
struct job *job_find(struct jobs *jobs, const char *id); /* NULL: it is not known (any more) */
const char *job_coupon(const struct job *job);           /* NULL: it is about more than one */
/* Kills it, as the key `by` has asked. Nothing, if it has ended. */
void job_end(struct job *job, const char *by);

cJSON *job_json(struct job *job);
cJSON *jobs_json(struct jobs *jobs); /* the latest first, without their results */
