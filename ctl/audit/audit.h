/*
 * One pass over a coupon, in this order:
 *
 *	PostgreSQL ── a snapshot: the row, then the user coupons ─┐
 *	Redis ─────── the cut: its counts at one moment ──────────┤ each user coupon has a slot
 *	Redis ─────── the users, in steps ────────────────────────┤ a slot without one is open
 *	PostgreSQL ── the outcomes of the open slots ─────────────┤ issued, rejected, or in flight
 *	Redis ─────── the coupon once more ───────────────────────┘
 *
 * A user coupon of the snapshot was accepted before the cut. For one that was issued later, its
 * time of acceptance, which is on Redis' clock, says whether it was taken at the cut. So the counts
 * of the cut can be compared exactly while the system runs.
 */
#pragma once

#include "coupon/redis_coupon.h"
#include "ctl/output.h"
#include "ctl/database.h"
#include "ctl/rabbit.h"
#include "ctl/store.h"

enum finding {
#define FINDING(name, word, promise) FINDING_##name,
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

struct audit {
	struct db *db;
	struct redis_client *redis;
	struct broker broker;           /* queried only when a receive is overdue */
	char run_id[REDIS_RUN_ID_SIZE]; /* of the Redis process */
	int64_t grace_ms;               /* younger receives without an outcome are in flight */
	int64_t resend_after_ms;        /* of the keeper */
	int64_t stalled_ms;             /* longer in flight without progress: stalled */
	int64_t patience_ms;            /* left to wait for a keeper at work, over all coupons */
	int64_t resolve_ms;             /* left to wait for outcomes, over all coupons */
	struct findings findings;
	int64_t stalled_n;   /* coupons with stalled receives */
	int64_t undecided_n; /* coupons without a verdict */
	int64_t behind;      /* by so many transactions PostgreSQL is behind Redis */
	int64_t keys_behind; /* by so many changes of API keys PostgreSQL is behind Redis */
};

/* What PostgreSQL has of one coupon. */
struct audit_row {
	char status[16];
	int64_t version, total, issued, limit, begin_ms, end_ms;
	int64_t generation, seq_seen, settled;
	/* over all generations; includes receives that an operator gave up */
	int64_t settled_sum;
	int64_t rejected, unfreed;
	int64_t idle_ms;    /* since the last outcome; INT64_MAX: none is recorded */
	int64_t tombstones; /* the rejected receives, and those from before the coupon existed */
};

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

/* What the last look found. */
enum suspect_state {
	SUSPECT_FLIGHT,    /* no outcome, and younger than the grace, or in the outbox */
	SUSPECT_OVERDUE,   /* no outcome, and older than the grace: the queues are looked at */
	SUSPECT_QUIET,     /* no outcome, though every receive number has one */
	SUSPECT_HELD,      /* rejected and freed, but it still has its slot */
	SUSPECT_DIFFERENT, /* a user coupon that Redis does not have, or has with another key */
	SUSPECT_GONE,      /* the stores agree now */
};

enum look_result {
	LOOK_RIGHT,
	LOOK_LATER, /* another look may decide */
	LOOK_WRONG,
	LOOK_NONE, /* cannot be decided */
};

struct suspect {
	struct slot slot;
	enum suspect_state state;
	enum slot_found how; /* of a user coupon: how Redis has it */
	int looks;           /* consecutive ones that found this state */
	enum look_result result;
	int64_t since_ms; /* the first of these looks, on the monotonic clock */
};

struct suspects {
	struct suspect *list;
	size_t n, size;
};

/* Whether the counts of the cut agree with the slots that were found. */
enum sum_state {
	SUM_RIGHT,
	SUM_WRONG,   /* and nothing changed: another pass would find the same */
	SUM_SUSPECT, /* wrong, as far as can be seen while receives are accepted */
	SUM_UNSURE,  /* terms changed, or the like */
	SUM_AT_CUT,  /* to be judged from the cut alone: pass_counts_users() */
};

/*
 * What looks have found. Two reads of a running system are never of one moment, so a
 * state counts when LOOKS consecutive looks found it. A receive that is only overdue must stay so
 * for as long as a hanging worker may hold its message, which AMQP does not show: RabbitMQ takes
 * the message back when there was no heartbeat for twice RABBIT_HEARTBEAT_S.
 */
struct look {
	int64_t begin_ms; /* on the monotonic clock */
	int64_t now_ms;   /* of this look */
	int64_t redis_ms; /* on Redis' clock */
	int done;         /* no other look is needed */
	int quiet;        /* every receive number has an outcome */
	int keeper;       /* one is elected */
	/* PostgreSQL's own counts lack an outcome: young slots are looked into, too. */
	int ignore_age;
	int busy_n;  /* consecutive looks that found messages in the receive queue */
	int empty_n; /* looks that found both queues empty */
	struct locks locks;
	int idle; /* both queues are empty, and nothing consumes */
	int unnamed_looks;
	int64_t unnamed_since_ms;
};

/* Receives in flight without progress, and what they wait for. */
struct stall {
	int64_t n;          /* stalled receives; 0: none, and the rest is unset */
	int64_t unnamed;    /* of these, without a slot */
	struct slot oldest; /* of the others */
	int64_t age_ms;     /* of the oldest */
	int64_t idle_ms;    /* since the last outcome of the coupon; INT64_MAX: none is recorded */

	/* What they wait for. */
	int64_t dead;              /* receives whose message is marked as dead-lettered */
	int64_t outbox;            /* others whose message is in the outbox */
	int keeper;                /* one is elected */
	struct broker_look broker; /* messages of any coupon */
	int64_t locked_ms;         /* another session has held a lock for so long; 0: none */
	int held;                  /* a worker is in a long transaction, or has put off coupons */
};

/*
 * A set of at most `max` slots, kept as hashes of 64 bits. It may report a slot that was not added,
 * with a probability of 10^-12 in a set of a million, and it lacks slots that were added when it
 * was full. All zero but `max` at first.
 */
struct slot_set {
	uint64_t *cells; /* 0: free */
	size_t n, size, max;
};

int slot_set_add(struct slot_set *set, const struct slot *slot); /* 1, or 0 when it is full */
int slot_set_has(const struct slot_set *set, const struct slot *slot);
void slot_set_fini(struct slot_set *set);

struct pass {
	struct audit *audit;
	int64_t coupon;
	int passes_n;       /* of this coupon, with this one */
	int suspected_n;    /* of these, that found SUM_SUSPECT */
	enum sum_state sum; /* set by the caller */

	/* From the snapshot. */
	struct audit_row row;
	struct generations generations; /* also from the cut */
	int64_t rows_n;
	struct slots beyond; /* user coupons beyond the limit */
	int may_be_twice;    /* a receive may have several user coupons */
	PGresult *twice;     /* receives with two outcomes; NULL: there can be none */

	struct cut cut, after;
	int compared;           /* the slots were compared */
	int64_t several_n;      /* users with more than one slot */
	int64_t counted;        /* receives that had a slot at the cut */
	int64_t doubtful;       /* accepted in the very millisecond of the cut */
	int64_t by_time;        /* receives that were counted by their time of acceptance */
	int64_t pending;        /* rejected, and not freed yet */
	struct slot_set set;    /* slots that are user coupons */
	struct slots malformed; /* only the user of each is set; empty: it is no valid id */

	struct suspects rows; /* user coupons that Redis does not have, or has with another key */
	struct suspects open; /* slots that are no user coupons */
	/* Outbox entries whose receives all have an outcome, each named by its first receive. */
	struct suspects settled;
	cJSON *bad; /* outbox entries that no script wrote: batches and errors; NULL: none */

	struct look look;
	/* Set by the last look. */
	int64_t unnamed; /* receive numbers without an outcome and without a slot */
	int unnamed_overdue;
	int broker_asked;
	struct broker_look broker;
	char gateways[STORE_GATEWAYS_SIZE]; /* that may have receives alone; "": none */
	int64_t locked_ms; /* another session has held a lock for so long; 0: none */
	int undecided;     /* something is overdue, and cannot be called lost */
	struct stall stall;

	/* By how much the findings about single receives change the counts. */
	int64_t both_n; /* receives that are issued and rejected */
	int64_t rows_extra, rows_missing;
	int64_t slots_extra, slots_missing; /* in Redis */
};

/* In audit_pass.c. Only the audit and the coupon of a pass are used. */

/*
 * `generations`, unless it is NULL, is empty or was read before: the list is replaced. `high` is
 * that of PostgreSQL.
 */
void row_read(const struct pass *pass, struct audit_row *row, struct generations *generations);
/* slot_of_row(); ends the process when the row is malformed. */
void slot_read(const PGresult *rows, int row, int first, struct slot *slot);

/* The outcomes of receives, a row for each: see audit_outcomes. To be cleared with PQclear(). */
PGresult *outcomes_read(const struct pass *pass, const struct slot *slots, size_t n);

/*
 * Reads the coupon. With `generations` it raises the `high` of each to what Redis has. With
 * `report` malformed keys and fields become findings.
 */
void cut_read(const struct pass *pass, struct cut *cut, struct generations *generations,
	      int report);

/*
 * How many users are read in one command. Users with many slots have long records, so a higher
 * limit makes this smaller: each command holds Redis for a millisecond or two at most.
 */
size_t records_step(int64_t limit);
/* coupon_records(), which ends the process when it fails. */
redisReply *records_read(const struct pass *pass, const struct slot *slots, size_t n);

/*
 * Reads the coupon in PostgreSQL and in Redis, and compares slot by slot. Only the audit and the
 * coupon are set before the first pass; another one replaces what was read. pass_fini() follows.
 */
void pass_run(struct pass *pass);
void pass_fini(struct pass *pass);
/* Reads the outcomes of the open slots. A slot with an outcome is counted and leaves the list. */
void pass_resolve(struct pass *pass);

/*
 * How many user coupons or rejections PostgreSQL has counted and does not have. The counts of older
 * generations include receives that an operator gave up, so after a rebuild only the count of user
 * coupons is used.
 */
int64_t pass_gone(const struct pass *pass);
/*
 * Whether the number of users is the number of slots: every user has one. Then the sum is known at
 * the very moment of the cut.
 */
int pass_counts_users(const struct pass *pass);
/* User coupons and rejections beyond those that were counted as settled; negative: fewer. */
int64_t pass_outcomes_over(const struct pass *pass);
enum sum_state pass_sum(const struct pass *pass);

/* Calls `fn` with `step` suspects at a time, and their slots. Gone suspects leave the list. */
typedef void suspects_fn(struct pass *pass, struct suspect *suspects, const struct slot *slots,
			 size_t n);
void suspects_each(struct pass *pass, struct suspects *suspects, size_t step, suspects_fn *fn);
int64_t suspects_count(const struct suspects *suspects, enum suspect_state state);

/* In audit_look.c. */

/* The first look at the pass. Earlier looks at it do not count. */
void look_start(struct pass *pass);
void look_again(struct pass *pass); /* unless it is done */
/* Whether a suspect is wrong, after the looks. */
int look_found_wrong(const struct pass *pass, const struct suspect *suspect);

/*
 * After the looks: searches for receives that are in flight without progress. A receive is stalled
 * when it is older than the limit, and either no receive of its coupon got an outcome for as long,
 * or one that was accepted later by more than the limit has an outcome already. A receive of an
 * older generation that Redis has only as a number is stalled when no receive of that generation
 * got an outcome for as long. Returns whether something is stalled.
 *
 * `locks` NULL: the first search. The next one is a second later, what was just on its way has an
 * outcome then. It finds what they wait for; `locks` has a look from before: a lock is seen to
 * stay.
 */
int stall_search(struct pass *pass, struct locks *locks);

/* In audit_judge.c, after the looks. Reports what is wrong. */
void pass_judge(struct pass *pass);
/* In audit_codes.c. Reports what is wrong with the exchange codes. */
void codes_judge(const struct pass *pass);
/*
 * In audit_judge.c, too. Each reports what is wrong: with what orders did with the coupon's
 * receives, and with its budget; 0: with any budget.
 */
void uses_judge(const struct pass *pass);
void budgets_judge(struct audit *audit, int64_t coupon);

/* In audit_report.c. */

/* `slot` NULL: it is about the coupon; without a number: about its user, if it has one. */
void finding_add(const struct pass *pass, enum finding finding, const struct slot *slot,
		 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* With JSON: ends the list of findings, adds the members of `rest` to the object and frees it. */
void findings_end(struct findings *findings, cJSON *rest);

/* Prints what the pass has found, or makes an object of it. */
void figures_print(const struct pass *pass);
cJSON *figures_json(const struct pass *pass);
