/* What an audit reads in PostgreSQL. */
#ifndef CTL_AUDIT_POSTGRES_H
#define CTL_AUDIT_POSTGRES_H

#include "coupon/generation.h"
#include "coupon/slot.h"
#include "ctl/postgres.h"

#include <stddef.h>

#define AUDIT_ASK_MAX 1000 /* receives in one query */

/* The state of one coupon in PostgreSQL. */
struct audit_row {
	int known;
	char status[16];
	int64_t version, total, issued, limit, begin_ms, end_ms;
	int64_t generation, seq_seen, settled;
	/* over all generations; includes receives that an operator gave up */
	int64_t settled_sum;
	int64_t rejected, unreleased;
	int64_t idle_ms;    /* since the last outcome; INT64_MAX: none is recorded */
	int64_t tombstones; /* the rejected receives, and those from before the coupon existed */
};

/* The outcome of one receive. */
struct outcome {
	int64_t issued_ms;   /* when it was accepted, on Redis' clock; -1: it has no user coupon */
	int64_t rejected_ms; /* the same, if it is rejected; -1: it is not */
	int is_released;
	int is_late; /* of an older generation, and not counted in Redis yet */
	int is_held; /* its slot is a user coupon, of this or another receive: */
	struct slot holder;
	char holder_key[RECEIVE_TAIL_MAX + 1];
};

/* Makes the session read-only and sets its limits. */
void audit_session_set(struct db *db);

void audit_row_read(struct db *db, int64_t coupon, struct audit_row *row);
/* Replaces the list, which is empty or was read before. `high` is that of PostgreSQL. */
void audit_generations_read(struct db *db, int64_t coupon, const struct audit_row *row,
			    struct generations *generations);
/*
 * When the latest receive that has an outcome was made, of those that were accepted after
 * `after_ms`; 0: there is none.
 */
int64_t audit_newest_read(struct db *db, int64_t coupon, int64_t after_ms);

/* The outcomes of at most AUDIT_ASK_MAX receives. */
void audit_outcomes_read(struct db *db, int64_t coupon, const struct slot *slots, size_t n,
			 struct outcome *outcomes);

/* Reads slots from a result with the columns user_id, slot, batch and idx. */
struct columns {
	int user, slot, batch, idx;
};
void columns_find(const PGresult *result, struct columns *columns);
void slot_read(const PGresult *result, int row, const struct columns *columns, struct slot *slot);

#endif
