/*
 * The operations of /admin/v1: each is a command of couponctl, which a request waits for, or a job.
 *
 *	request ──▶ auth ──▶ route ──▶ words ──▶ child ──▶ outcome ──▶ reply
 *	                                   └─▶ job: 202
 *
 * A job may take long: a request starts it, and others ask what has become of it. The last 100 are
 * kept in memory; with the program they end.
 *
 *	waits ──▶ runs ──▶ done, or failed
 *	  └────────┴─────▶ ended: DELETE
 *
 * The key that has asked for a command or a job is judged once more when that has waited: it may
 * have been revoked.
 *
 * The thread of the event base.
 */
#pragma once

#include "admin/admin_request.h"
#include "admin/child.h"

#include <event2/event.h>

struct operations;

/* Ends the process with a sentence unless COUPON_ADMIN_APPROVAL is a list of commands. */
void approval_check(const struct config *config);

struct operations *operations_new(struct event_base *base, const struct config *config,
				  struct auth *auth, struct json_arena *arena);
/* Commands that still run are killed. Before the requests are gone. */
void operations_free(struct operations *operations);

/* `path` is that of the request after ROUTE_PREFIX. */
void operation_answer(struct operations *operations, struct admin_request *request,
		      const char *path);
/* Answers a request for ROUTE_PREFIX/jobs; `id` is "" for all. */
void jobs_answer(struct operations *operations, struct admin_request *request, const char *id);

/* From now on nothing starts, and what only looks is ended. What changes something goes on. */
void operations_drain(struct operations *operations);
struct child_counts operations_count(const struct operations *operations); /* jobs, too */
