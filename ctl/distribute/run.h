/* The run of a distribution: sends the requests, and saves how far it is. */
#ifndef CTL_DISTRIBUTE_RUN_H
#define CTL_DISTRIBUTE_RUN_H

#include "ctl/distribute/book.h"
#include "ctl/distribute/refused.h"
#include "ctl/distribute/state.h"
#include "client/gateway.h"

struct run_plan {
	const char *coupon; /* its id */
	const char *name;   /* of the distribution */
	const struct gateway_address *address;
	uint32_t connections_n;
	int64_t rate;        /* users a second, at most; 0: no limit */
	int64_t target_us;   /* the delay of answers that is to be kept; see window.h */
	int64_t patience_us; /* how long nothing may end */
};

/* What the run saves as it goes. */
struct run_files {
	struct state *state;
	struct state_file *state_file;
	struct refused *refused;
};

enum run_end {
	RUN_DONE,        /* all users have ended */
	RUN_INTERRUPTED, /* SIGINT or SIGTERM */
	RUN_IMPATIENT,   /* nothing has ended for too long */
	RUN_FAILED       /* an answer that no repetition would change */
};

struct run_report {
	enum run_end end;
	int64_t sent_ended; /* users that ended in this run by an answer */
	int64_t duration_us;
	char why[400]; /* RUN_IMPATIENT, RUN_FAILED: what was answered last */
};

/*
 * Returns when the run has ended and nothing is in flight, or what is in flight is not answered.
 * Files that cannot be written end the process.
 */
void run(struct book *book, const struct run_plan *plan, const struct run_files *files,
	 struct run_report *report);

#endif
