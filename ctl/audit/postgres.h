/* What an audit reads in PostgreSQL. */
#ifndef CTL_AUDIT_POSTGRES_H
#define CTL_AUDIT_POSTGRES_H

#include "ctl/postgres.h"
#include "ctl/slots.h"

#include <stddef.h>

/* of one coupon; the oldest of more are not looked at one by one */
#define AUDIT_GENERATIONS_MAX 256
#define AUDIT_ASK_MAX 1000 /* receives in one question */

/* A filling of the coupon into Redis. */
struct generation {
	int64_t number;
	int64_t high; /* the highest receive number that anybody knows */
	int64_t settled;
};

struct generations {
	struct generation list[AUDIT_GENERATIONS_MAX];
	size_t n;
};

/* One coupon as it stands in PostgreSQL. */
struct audit_row {
	int known;
	char status[16];
	int64_t version, total, issued, limit, begin_ms, end_ms;
	int64_t generation, seq_seen, settled;
	/* over all generations; of older ones it has what an operator gave up, too */
	int64_t settled_sum;
	int64_t rejected, unreleased;
	int64_t tombstones; /* the rejected ones, and those of before the coupon existed */
};

/* What became of one receive. */
struct outcome {
	int64_t issued_ms;   /* when it was accepted, by Redis' clock; -1: it has no user coupon */
	int64_t rejected_ms; /* the same of a rejection; -1: none */
	int is_released;
	int is_late; /* Redis has still to count it, for it is of an older generation */
	int is_held; /* its slot is a user coupon of this or another receive: */
	struct slot holder;
	char holder_key[72];
};

void audit_session_set(struct db *db);

void audit_row_read(struct db *db, int64_t coupon, struct audit_row *row);
/* `high` as far as PostgreSQL knows it. */
void audit_generations_read(struct db *db, int64_t coupon, const struct audit_row *row,
			    struct generations *generations);
/* The generation of this number, added if it is new; NULL: there is no room. */
struct generation *generation_find(struct generations *generations, int64_t number);
/* Numbers without an outcome, of generations before `current` or (`current` 0) of all. */
int64_t generations_unsettled(const struct generations *generations, int64_t current);

/* What became of at most AUDIT_ASK_MAX receives. */
void audit_outcomes_read(struct db *db, int64_t coupon, const struct slot *slots, size_t n,
			 struct outcome *outcomes);

/* A slot of the row of a result with user_id, slot, batch and idx in these columns. */
struct columns {
	int user, slot, batch, idx;
};
void columns_find(const PGresult *result, struct columns *columns);
void slot_read(const PGresult *result, int row, const struct columns *columns, struct slot *slot);

int audit_workers_slow(struct db *db);

#endif
