/*
 * The generations of a coupon, as far as receives are given up in them: the numbers of the older
 * ones that have no outcome.
 */
#ifndef CTL_LOST_GENERATIONS_H
#define CTL_LOST_GENERATIONS_H

#include "common/redis/client.h"
#include "ctl/postgres.h"

#include <stddef.h>
#include <stdint.h>

struct older {
	int64_t number;
	int64_t left; /* numbers without an outcome */
	int64_t owed; /* of these, numbers of receives that can still arrive */
};

struct lost_generations {
	int64_t coupon;
	int64_t current;     /* of receives that are not known: the one in Redis */
	struct older *older; /* in the order of their numbers */
	size_t older_n;
};

/* Stores in PostgreSQL the highest numbers that only Redis has, then reads. */
void lost_generations_read(struct lost_generations *generations, struct db *db,
			   struct redis_client *redis, int64_t coupon);
void lost_generations_fini(struct lost_generations *generations);

struct older *lost_generations_find(struct lost_generations *generations,
				    int64_t number); /* or NULL */

/* The generation to count a known receive in that is given up. */
int64_t lost_generations_take(struct lost_generations *generations);

/* `n` receives of the latest generations are too young: their numbers stay in flight. */
void lost_generations_owe(struct lost_generations *generations, int64_t n);

/* Gives up the numbers that are left, except those that are owed. */
void lost_generations_give_up(const struct lost_generations *generations, struct db *db);

#endif
