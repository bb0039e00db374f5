/*
 * A suspect is a slot, a user coupon or an outbox entry in which two stores do not agree. Two reads
 * of a running system are never of one moment, so each suspect is looked at repeatedly.
 */
#ifndef CTL_AUDIT_SUSPECT_H
#define CTL_AUDIT_SUSPECT_H

#include "ctl/slots.h"

/* What the last look found. */
enum suspect_state {
	SUSPECT_NEW,
	SUSPECT_FLIGHT,    /* no outcome, and younger than the grace */
	SUSPECT_OUTBOX,    /* no outcome, and its message is in the outbox */
	SUSPECT_OVERDUE,   /* no outcome, and older than the grace: the queues are looked at */
	SUSPECT_QUIET,     /* no outcome, though every receive number has one */
	SUSPECT_HELD,      /* rejected and released, but it still has its slot */
	SUSPECT_DIFFERENT, /* a user coupon that Redis does not have, or has with another key */
	SUSPECT_GONE,      /* the stores agree now */
};

struct suspect {
	struct slot slot;
	enum suspect_state state;
	enum slot_found how; /* of a user coupon: how Redis has it */
	int looks;           /* consecutive ones that found this state */
	int64_t since_ms;    /* the first of them, on the monotonic clock */
};

struct suspects {
	struct suspect *list;
	size_t n, size;
};

void suspects_add(struct suspects *suspects, const struct slot *slot, enum slot_found how);
void suspects_fini(struct suspects *suspects);

/* Looks at them do not count any more. */
void suspects_restart(struct suspects *suspects);

/* Removes those that are SUSPECT_GONE. */
void suspects_drop_gone(struct suspects *suspects);

/* Copies the slots of at most `most` of them, from the one at `at`. Returns how many. */
size_t suspects_slots(const struct suspects *suspects, size_t at, size_t most, struct slot *slots);

int64_t suspects_count(const struct suspects *suspects, enum suspect_state state);

/* Whether one of them has this user and slot number. */
int suspects_have(const struct suspects *suspects, const struct slot *slot);

#endif
