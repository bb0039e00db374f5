/* What an audit reads in Redis: the counts of a coupon, and its users' records. */
#ifndef CTL_AUDIT_REDIS_H
#define CTL_AUDIT_REDIS_H

#include "ctl/audit/context.h"
#include "ctl/audit/postgres.h"
#include "coupon/redis_coupon.h"
#include "coupon/slot.h"

/* The counts of a coupon at one moment (MULTI). */
struct cut {
	int64_t at_ms; /* by Redis' clock: the counts include what was accepted before then, */
	int exact;     /* and what was accepted in that very millisecond too */
	int present;
	int verified; /* on the running Redis process */
	int held;     /* a keeper is at work on the coupon: counts may be missing */
	int keeper;   /* a keeper is elected */
	/* A key of another type, or a field that no script wrote: nothing can be compared. */
	int bad;
	struct redis_coupon coupon;
	int64_t known;         /* receives of older generations that have a slot and no outcome */
	int64_t users, outbox; /* numbers of fields */
};

/*
 * Reads the coupon. With `generations` it raises the `high` of each to what Redis has. With
 * `report` malformed keys and fields become findings. cut_read_exact() reports, and waits at most a
 * tenth of a second for a moment between two calls of the script.
 */
void cut_read(struct audit *audit, int64_t coupon, struct cut *cut, struct generations *generations,
	      int report);
void cut_read_exact(struct audit *audit, int64_t coupon, struct cut *cut,
		    struct generations *generations);
/* Taken slots, by the counts. */
int64_t cut_taken(const struct cut *cut);

/*
 * How many users are read in one command. Users with many slots have long records, so a higher
 * limit makes this smaller: each command holds Redis for a millisecond or two at most.
 */
size_t records_step(int64_t limit);

/*
 * The records of the users of at most records_step() slots, in their order: an array of strings,
 * nil where a user has none. The caller frees it.
 */
redisReply *records_read(struct redis_client *redis, int64_t coupon, const struct slot *slots,
			 size_t n);
#endif
