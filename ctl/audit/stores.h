/*
 * What the parts of an audit share: its findings, and what it reads in both stores. It changes
 * nothing in any.
 */
#ifndef CTL_AUDIT_STORES_H
#define CTL_AUDIT_STORES_H

#include "coupon/generation.h"
#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/postgres.h"
#include "ctl/rabbit.h"

enum finding {
#define FINDING(name, word, promise, meaning) FINDING_##name,
#include "ctl/audit/finding_table.h"
#undef FINDING
};

/*
 * Findings are printed as they are found: as lines for people, or as elements of the JSON object
 * that the verdict ends.
 */
struct findings {
	int silent; /* they are only counted */
	int json;
	int begun; /* the start of the JSON object was printed */
	int64_t n;
};

/* With JSON: ends the list of findings, adds the members of `rest` to the object and frees it. */
void findings_end(struct findings *findings, cJSON *rest);

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

/* One over a coupon: see pass.h. Here only its audit and its coupon are used. */
struct pass;

/* `slot` NULL: it is about the coupon; without a number: about its user, if it has one. */
void finding_add(const struct pass *pass, enum finding finding, const struct slot *slot,
		 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The state of one coupon in PostgreSQL. */
struct audit_row {
	char status[16];
	int64_t version, total, issued, limit, begin_ms, end_ms;
	int64_t generation, seq_seen, settled;
	/* over all generations; includes receives that an operator gave up */
	int64_t settled_sum;
	int64_t rejected, unreleased;
	int64_t idle_ms;    /* since the last outcome; INT64_MAX: none is recorded */
	int64_t tombstones; /* the rejected receives, and those from before the coupon existed */
};

/*
 * `generations`, unless it is NULL, is empty or was read before: the list is replaced. `high` is
 * that of PostgreSQL.
 */
void row_read(const struct pass *pass, struct audit_row *row, struct generations *generations);
/* A slot, as of slot_of_row(). */
void slot_read(const PGresult *rows, int row, int first, struct slot *slot);

/* The outcomes of receives, a row for each: see audit_outcomes. To be cleared with PQclear(). */
PGresult *outcomes_read(const struct pass *pass, const struct slot *slots, size_t n);

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
void cut_read(const struct pass *pass, struct cut *cut, struct generations *generations,
	      int report);
void cut_read_exact(const struct pass *pass, struct cut *cut, struct generations *generations);
/* Taken slots, by the counts. */
int64_t cut_taken(const struct cut *cut);

/*
 * How many users are read in one command. Users with many slots have long records, so a higher
 * limit makes this smaller: each command holds Redis for a millisecond or two at most.
 */
size_t records_step(int64_t limit);
/* coupon_records(), which ends the process when it fails. */
redisReply *records_read(const struct pass *pass, const struct slot *slots, size_t n);

#endif
