/* The run of a distribution: sends the requests for all users that have not ended. */
#ifndef CTL_DISTRIBUTE_RUN_H
#define CTL_DISTRIBUTE_RUN_H

#include "client/client.h"
#include "ctl/distribute/list.h"

struct run_plan {
	const char *coupon; /* its id */
	const char *prefix; /* of the idempotency keys; the repeat of the user follows it */
	struct gateway_address address;
	uint32_t connections_n;
	int64_t rate;        /* users a second, at most; 0: no limit */
	int64_t target_us;   /* the delay of answers that is to be kept; see window.h */
	int64_t patience_us; /* how long nothing may end */
};

enum run_end {
	RUN_DONE,        /* all users have ended */
	RUN_INTERRUPTED, /* SIGINT or SIGTERM */
	RUN_IMPATIENT,   /* nothing has ended for too long */
	RUN_FAILED       /* an answer that no repetition would change */
};

struct run_report {
	enum run_end end;
	uint32_t answered_n; /* users that ended in this run */
	int64_t duration_us;
	char why[300]; /* RUN_IMPATIENT, RUN_FAILED: what was answered last */
};

/*
 * Sets the ends in the list. Returns when the run has ended and nothing is in flight, or what is in
 * flight is not answered.
 */
void run(struct list *list, const struct run_plan *plan, struct run_report *report);

#endif
