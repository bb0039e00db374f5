/*
 * Looks at what does not agree until it does, or is certainly wrong, or cannot be decided. Two
 * reads of a running system are never of one moment, so a state counts when LOOKS consecutive looks
 * found it. A receive that is only overdue must stay so for as long as a hanging worker may hold
 * its message, which AMQP does not show: RabbitMQ takes the message back when there was no
 * heartbeat for twice RABBIT_HEARTBEAT_S.
 */
#ifndef CTL_AUDIT_WATCH_H
#define CTL_AUDIT_WATCH_H

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

/* Several passes are watched together: a pause is for all of them. */
struct watch {
	struct look look;
	int64_t begin_ms;
	int done; /* no other look is needed */
};

/* The first look at the pass, which must stay where it is. Earlier looks at it do not count. */
void watch_start(struct watch *watch, struct pass *pass);
void watch_look(struct watch *watch); /* the next one, unless it is done */
void watch_pause(void);               /* between two looks */
/* Whether a suspect is wrong, after the watch. */
int watch_found_wrong(const struct pass *pass, const struct suspect *suspect);

/*
 * Whether a slot's batch claims to be made in the future of Redis' clock, so that its age means
 * nothing.
 */
int look_is_future(int64_t redis_ms, const struct slot *slot);

#endif
