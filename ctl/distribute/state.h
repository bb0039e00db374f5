/*
 * The state file of a distribution: how far it is, so that a run goes on where the one before
 * ended. It is replaced as a whole, about once a second. Losing it costs time and not correctness:
 * the idempotency keys keep a user from getting a second coupon.
 */
#ifndef CTL_DISTRIBUTE_STATE_H
#define CTL_DISTRIBUTE_STATE_H

#include "ctl/distribute/end.h"

#define STATE_NAME_MAX 40 /* bytes of the name of a distribution */

struct state {
	int64_t coupon;
	char name[STATE_NAME_MAX + 1];
	uint64_t print; /* of the list */
	int64_t users;  /* in the list */
	int with_repeats;
	int64_t settled;        /* of these, from the first on: all have ended */
	int64_t counts[ENDS_N]; /* how these have ended */
	int64_t refused_bytes;  /* what the file of refused users has about these */
};

/* 1: read, 0: there is no such file. One that cannot be read ends the process. */
int state_read(struct state *state, const char *path);

/* Ends the process when it cannot be written. */
void state_write(const struct state *state, const char *path);

#endif
