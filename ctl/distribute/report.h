/* What a distribution prints at its end. */
#ifndef CTL_DISTRIBUTE_REPORT_H
#define CTL_DISTRIBUTE_REPORT_H

#include "ctl/distribute/run.h"

struct report {
	const struct state *state; /* at the end */
	const struct run_report *run;
	int64_t issued_before; /* of those issued, when this run began */
	const char *state_path, *refused_path;
};

void report_print(const struct report *report, int is_json);

/* The exit status. Tells on standard error why the run has not come to its end. */
int report_status(const struct report *report);

#endif
