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

/* What is written to the file; the caller frees it. */
char *state_text(const struct state *state);
/* 0, or -1: it is no state file's. */
int state_parse(struct state *state, const char *text, size_t len);

/* The file is locked from here on, or from the first state_write() on if it does not exist yet. */
struct state_file {
	const char *path; /* lent */
	int fd;           /* of the file that has this name; -1: none */
};

/* What fails in these ends the process: another run has the file, for instance. */
void state_open(struct state_file *file, const char *path);
int state_read(const struct state_file *file, struct state *state); /* 0: there is none */
void state_write(struct state_file *file, const struct state *state);
void state_close(struct state_file *file);

#endif
