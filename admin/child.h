/*
 * Requests of couponctl --api, each in a process of its own: one that hangs is killed, and one that
 * crashes takes nothing with it. Of a group so many run at once; further ones wait, up to a number.
 * Those that change something go first, and those that only look never take the last places: who
 * looks cannot keep a change from starting.
 *
 *	child_start() ──▶ waits ──▶ runs ──▶ has ended, or was killed: the caller is told, once
 *	                    └─────────┴── child_kill(): the caller is not told
 *
 * The thread of the event base.
 */
#pragma once

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>

#define CHILD_OUT_BYTES_MAX (4 << 20) /* of standard output; a child that writes more is killed */
#define CHILD_ERR_BYTES_MAX 65536     /* of standard error; earlier ones are dropped */

struct child;
struct children;

enum child_end {
	CHILD_EXITED,
	CHILD_LATE,    /* it was killed when its time was over */
	CHILD_WORDY,   /* it was killed because it wrote too much */
	CHILD_CRASHED, /* by a signal */
	CHILD_NOT_STARTED,
	CHILD_REFUSED, /* when its turn had come, it was not to run any more */
	CHILD_STOPPED  /* children_drain(): it had not run, or only looked */
};

struct child_result {
	enum child_end end;
	int status;      /* the exit status; of CHILD_CRASHED the signal, else errno */
	const char *out; /* what it wrote to standard output, ended by a NUL; lent */
	size_t out_len;
};

typedef void child_ended_fn(void *context, const struct child_result *result);

/*
 * The limits of a group of children. Waiting children are counted apart: those that change
 * something, and those that are read-only.
 */
struct child_limits {
	size_t running_max, looking_max; /* the latter of those that only look */
	size_t waiting_max;
	size_t waiting_of_one_max; /* with the same `by` */
};

struct children *children_new(struct event_base *base, const struct child_limits *limits);
/* Kills all that run or wait, and tells their callers: CHILD_LATE. */
void children_free(struct children *children);

/*
 * From now on nothing starts. Ends what waits and what only looks, CHILD_STOPPED; what changes
 * something goes on.
 */
void children_drain(struct children *children);

struct child_counts {
	size_t running, waiting;
};
struct child_counts children_count(const struct children *children);

struct child_task {
	const char *request; /* as JSON */
	int64_t timeout_ms;  /* from when it runs; 0: it may take as long as it likes */
	int changes;         /* it may change something */
	const char *by;      /* whose it is */
	/* Asked when its turn has come after it has waited; 0: it is not run, CHILD_REFUSED. */
	int (*may_start)(void *context);
	child_ended_fn *ended; /* called from the loop only, never from within child_start() */
	void *context;
};

/* The texts are copied. NULL: too many wait, or nothing starts any more. */
struct child *child_start(struct children *children, const struct child_task *task);
void child_kill(struct child *child);

int child_is_waiting(const struct child *child);
/* The last whole line that it has written to standard error; "": none. Until the next call. */
const char *child_last_line(struct child *child);
