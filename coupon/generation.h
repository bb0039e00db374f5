/*
 * The generations of a coupon, one for each rebuild in Redis, with their highest receive numbers in
 * both stores. No I/O.
 */
#ifndef COUPON_GENERATION_H
#define COUPON_GENERATION_H

#include "common/postgres/argument.h"

#include <hiredis/hiredis.h>
#include <libpq-fe.h>

/* Number 0: the sums of those that PostgreSQL has folded. */
struct generation {
	int64_t number;
	int64_t high; /* the highest receive number that is known */
	int64_t settled;
	int64_t idle_ms; /* since its last outcome; INT64_MAX: none is recorded */
	int64_t owed;    /* the caller's: receives without an outcome that can still arrive */
};

/* All zero at first. */
struct generations {
	struct generation *list;
	size_t n, size;
};

void generations_fini(struct generations *generations);
/* The generation with this number, added if it is new. Valid until the next one is added. */
struct generation *generation_find(struct generations *generations, int64_t number);
/* Raises `high`. */
void generation_raise(struct generations *generations, int64_t number, int64_t high);
/*
 * Adds a row with the columns generation, seq_seen, settled_num from column `first` on, and then
 * idle_ms if the row has it.
 */
void generation_add_row(struct generations *generations, const PGresult *rows, int row, int first);

/*
 * Raises each to what Redis has: `hash` is the coupon's, with its own number and those before, and
 * `seen` what gateways have reported. Either may be NULL or an error. Skips what is malformed.
 */
void generations_raise(struct generations *generations, const redisReply *hash,
		       const redisReply *seen);

/* Receive numbers without an outcome, of all generations but `current`; 0: of all. */
int64_t generations_unsettled(const struct generations *generations, int64_t current);
/* Adds them all to arrays of int4 and int8. */
void generations_arrays(const struct generations *generations, struct postgres_array *numbers,
			struct postgres_array *highs);

#endif
