/*
 * Commands of couponctl, each in a process of its own: one that hangs is killed, and one that
 * crashes takes nothing with it. Of a group so many run at once; further ones wait, up to a number.
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
#define CHILD_ERR_BYTES_MAX 65536     /* of standard error; further ones are dropped */

struct child;
struct children;

enum child_end {
	CHILD_EXITED,
	CHILD_LATE,    /* it was killed when its time was over */
	CHILD_WORDY,   /* it was killed because it wrote too much */
	CHILD_CRASHED, /* by a signal */
	CHILD_NOT_STARTED
};

struct child_result {
	enum child_end end;
	int status;            /* the exit status; of CHILD_CRASHED the signal, else errno */
	const char *out, *err; /* what it wrote, ended by a NUL; lent */
	size_t out_len;
};

typedef void child_ended_fn(void *context, const struct child_result *result);

struct children *children_new(struct event_base *base, size_t running_max, size_t waiting_max);
/* Kills all that run or wait, and tells their callers: CHILD_LATE. */
void children_free(struct children *children);

/*
 * The words, ended by NULL, are copied; the first is the name of the program. `timeout_ms` begins
 * when it runs; 0: it may take as long as it likes. `ended` may be called from within only later,
 * from the loop. NULL: too many wait.
 */
struct child *child_start(struct children *children, const char *const *words, int64_t timeout_ms,
			  child_ended_fn *ended, void *context);
void child_kill(struct child *child);

int child_is_waiting(const struct child *child);
/* The last whole line that it has written to standard error; "": none. Until the next call. */
const char *child_last_line(struct child *child);
