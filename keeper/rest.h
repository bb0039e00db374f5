/*
 * Whether everything is at rest: all coupons were looked at, nothing had to be done for any of
 * them, and since then nothing was written to Redis but the renewals of the keeper's lock.
 * Receives, outcomes, releases, reports of gateways, new terms and lost keys are all writes. The
 * rest ends at the end of the next campaign. One thread.
 */
#ifndef KEEPER_REST_H
#define KEEPER_REST_H

#include "keeper/judge.h"
#include "keeper/lock.h"

struct keeper_rest {
	int64_t writes; /* of others, when last read */
	int is_quiet;   /* none since the sweep began */
	int is_rest;    /* none since the last complete sweep, which found nothing to do */
	int64_t end_ms; /* the first end of a campaign in this sweep, by Redis' clock */
	int64_t due_ms; /* in the last complete one */
};

/*
 * In every round, before its sweep goes on, at Redis' time `now_ms`. 0, or -1: the connection to
 * Redis is lost.
 */
int keeper_rest_look(struct keeper_rest *rest, const struct keeper_lock *lock, int64_t now_ms);
void keeper_rest_begin(struct keeper_rest *rest);                             /* of a sweep */
void keeper_rest_add(struct keeper_rest *rest, const struct coupon_row *row); /* to the sweep */
/* The end of a sweep, which found something to do or not. */
void keeper_rest_end(struct keeper_rest *rest, int has_work);

#endif
