/*
 * Commands that may take long: a request starts one, and others ask what has become of it. The last
 * JOBS_MAX are kept in memory; with the program they end.
 *
 *	waits ──▶ runs ──▶ done, or failed
 *	  └────────┴─────▶ ended: job_end()
 *
 * The thread of the event base.
 */
#pragma once

#include "admin/child.h"
#include "admin/route.h"

#define JOBS_MAX 100
#define JOBS_RUNNING_MAX 4

struct job;
struct jobs;

struct jobs *jobs_new(struct event_base *base);
void jobs_free(struct jobs *jobs);

/* The texts are copied. Its number, or 0: JOBS_MAX of them wait or run. */
int64_t job_start(struct jobs *jobs, const struct route_match *match, const struct words *words,
		  const char *by);
struct job *job_find(struct jobs *jobs, const char *id); /* NULL: it is not known (any more) */
const char *job_coupon(const struct job *job);           /* NULL: it is about more than one */
/* Kills it. Nothing, if it has ended. */
void job_end(struct job *job);

cJSON *job_json(struct job *job);
cJSON *jobs_json(struct jobs *jobs); /* the latest first, without their results */
