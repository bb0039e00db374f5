/* What the parts of an audit share, and what it reads in both stores. It changes nothing in any. */
#ifndef CTL_AUDIT_STORES_H
#define CTL_AUDIT_STORES_H

#include "coupon/generation.h"
#include "coupon/redis_coupon.h"
#include "ctl/audit/finding.h"
#include "ctl/postgres.h"
#include "ctl/rabbit.h"

struct audit {
	struct db *db;
	struct redis_client *redis;
	struct broker *broker;          /* queried only when a receive is overdue */
	char run_id[REDIS_RUN_ID_SIZE]; /* of the Redis process */
	int64_t grace_ms;               /* younger receives without an outcome are in flight */
	int64_t resend_after_ms;        /* of the keeper */
	int64_t stalled_ms;             /* longer in flight without progress: stalled */
	int64_t patience_ms;            /* left to wait for a keeper at work, over all coupons */
	int64_t resolve_ms;             /* the same to wait for outcomes */
	struct findings findings;
	int64_t stalled_n;   /* coupons with stalled receives */
	int64_t undecided_n; /* coupons without a verdict */
	int64_t behind;      /* transactions that PostgreSQL is behind Redis */
};

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

void row_read(struct db *db, int64_t coupon, struct audit_row *row);
/* Replaces the list, which is empty or was read before. `high` is that of PostgreSQL. */
void generations_read(struct db *db, int64_t coupon, const struct audit_row *row,
		      struct generations *generations);
/* A slot, as of slot_of_row(). */
void slot_read(const PGresult *rows, int row, int first, struct slot *slot);

/* The outcome of one receive. */
struct outcome {
	int64_t issued_ms;   /* when it was accepted, on Redis' clock; -1: it has no user coupon */
	int64_t rejected_ms; /* the same, if it is rejected; -1: it is not */
	int is_released;
	int is_late; /* of an older generation, and not counted in Redis yet */
	int is_held; /* its slot is a user coupon, of this or another receive, with this tail: */
	char tail[RECEIVE_TAIL_MAX + 1];
};

/* The outcomes of at most COUPON_SLOTS_MAX receives. */
void outcomes_read(struct db *db, int64_t coupon, const struct slot *slots, size_t n,
		   struct outcome *outcomes);

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
/* coupon_records() and coupon_has(), which end the process when they fail. */
redisReply *records_read(const struct audit *audit, int64_t coupon, const struct slot *slots,
			 size_t n);
void has_read(const struct audit *audit, int64_t coupon, enum coupon_key which,
	      const struct slot *slots, size_t n, char *has);

#endif
