/* Looks at everything in a pass that does not agree, once or repeatedly. */
#ifndef CTL_AUDIT_LOOK_H
#define CTL_AUDIT_LOOK_H

#include "ctl/audit/pass.h"
#include "ctl/postgres.h"

/* What successive looks have found. */
struct look {
	struct pass *pass;
	int64_t now_ms;   /* of this look, on the monotonic clock */
	int64_t redis_ms; /* on Redis' clock */
	int quiet;        /* every receive number has an outcome */
	int keeper;       /* one is elected */
	/* PostgreSQL's own counts lack an outcome: young slots are looked into, too. */
	int ignore_age;
	int busy_n;  /* consecutive looks that found messages in the receive queue */
	int empty_n; /* looks that found both queues empty */
	struct locks locks;
	int idle; /* both queues are empty, and nothing consumes */
	int unnamed_looks;
	int64_t unnamed_since_ms;
};

/* Updates the state of every suspect, and the counts of the pass that looks find. */
void look_once(struct look *look);

/*
 * Whether a slot's batch claims to be made in the future of Redis' clock, so that its age means
 * nothing.
 */
int look_is_future(int64_t redis_ms, const struct slot *slot);

#endif
