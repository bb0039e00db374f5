/*
 * The receives that have a slot in Redis and no outcome: given up by name if they can no longer
 * arrive.
 */
#ifndef CTL_LOST_RECEIVES_H
#define CTL_LOST_RECEIVES_H

#include "ctl/lost/generations.h"

struct lost_receives {
	struct db *db;
	struct redis_client *redis;
	int64_t coupon;
	int64_t before_ms; /* only receives accepted before */
	struct lost_generations *generations;
	int64_t young; /* result: known receives that are too young to be given up */
	int64_t named; /* result: receives given up */
};

/* Adds the receives in the outbox to what the older generations owe. */
void lost_receives_owe(struct lost_receives *lost);

/* Each in a statement of some users, which may be repeated; prints each. */
void lost_receives_give_up(struct lost_receives *lost);

#endif
