/* What an audit reads in Redis, in steps that hold it for a millisecond or two at most. */
#ifndef CTL_AUDIT_CUT_H
#define CTL_AUDIT_CUT_H

#include "ctl/audit/audit.h"
#include "ctl/audit/postgres.h"
#include "ctl/slots.h"

/* The coupon at one moment. */
struct cut {
	int64_t at_ms; /* by Redis' clock: what was accepted until then is in these counts; */
	int exact;     /* and what was accepted in that very millisecond too */
	int present;
	int verified; /* on the running Redis process */
	int held;     /* a keeper is at work on it: some of its counts may be missing */
	int keeper;   /* one is elected */
	/*
	 * a key of another type, or a field that no script wrote: it was told, and nothing can be
	 * compared
	 */
	int bad;
	struct cache_coupon coupon;
	/*
	 * receives of older generations whose slots are among the users' though they have no
	 * outcome
	 */
	int64_t known;
	int64_t users, outbox; /* how many */
};

/*
 * Reads the coupon. With `generations` it raises each one's `high` to what Redis knows. With
 * `tell`, what is malformed is told. cut_read_exact() waits, a tenth of a second at most, for a
 * moment between two calls of the script.
 */
void cut_read(struct audit *audit, int64_t coupon, struct cut *cut, struct generations *generations,
	      int tell);
void cut_read_exact(struct audit *audit, int64_t coupon, struct cut *cut,
		    struct generations *generations);

/* taken slots, by the counts */
int64_t cut_taken(const struct cut *cut);

/*
 * The records of the users of these slots, in their order: a string, or nil where a user has none.
 * The caller frees it.
 */
redisReply *users_read(struct audit *audit, int64_t coupon, const struct slot *slots, size_t n);
/* How one of these answers has a slot. */
enum slot_found records_look_up(const redisReply *records, const struct slot *slot, const char *key,
				struct slot *found);
/*
 * So many users are asked for at a time, so that Redis is not held for long by those with many
 * slots.
 */
size_t users_step(int64_t limit);

/* Whether each batch of these slots is in the outbox. */
void outbox_has(struct audit *audit, int64_t coupon, const struct slot *slots, size_t n, int *has);

#endif
