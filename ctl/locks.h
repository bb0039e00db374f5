/*
 * Transactions that hold locks on the tables that settling writes. While one stays open, workers
 * may hold receives unacked for as long: then no receive can be called lost.
 */
#ifndef CTL_LOCKS_H
#define CTL_LOCKS_H

#include "ctl/postgres.h"

#include <stddef.h>
#include <stdint.h>

#define LOCKS_MAX 64
#define LOCKS_OPEN_MS 1000 /* longer than a worker's transaction takes */

/* All zero at first. */
struct locks {
	struct {
		char transaction[32]; /* its virtual id */
		int64_t since_ms;     /* the first look that found it */
	} held[LOCKS_MAX];
	size_t n;
};

/* Looks again. For how long the oldest one has been seen; 0: none for LOCKS_OPEN_MS. */
int64_t locks_look(struct locks *locks, struct db *db, int64_t now_ms);

/*
 * Whether a worker is in a long transaction, or holds receives of a coupon that it has put off:
 * also when no lock is the reason, and until it has retried them after one.
 */
int locks_workers_hold(struct db *db);

#endif
