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
#ifndef CTL_AUDIT_PASS_H
#define CTL_AUDIT_PASS_H

#include "ctl/audit/context.h"
#include "ctl/audit/postgres.h"
#include "ctl/audit/redis.h"
#include "coupon/slot.h"

/* What the last look found. */
enum suspect_state {
	SUSPECT_NEW,
	SUSPECT_FLIGHT,    /* no outcome, and younger than the grace */
	SUSPECT_OUTBOX,    /* no outcome, and its message is in the outbox */
	SUSPECT_OVERDUE,   /* no outcome, and older than the grace: the queues are looked at */
	SUSPECT_QUIET,     /* no outcome, though every receive number has one */
	SUSPECT_HELD,      /* rejected and released, but it still has its slot */
	SUSPECT_DIFFERENT, /* a user coupon that Redis does not have, or has with another key */
	SUSPECT_GONE,      /* the stores agree now */
};

struct suspect {
	struct slot slot;
	enum suspect_state state;
	enum slot_found how; /* of a user coupon: how Redis has it */
	int looks;           /* consecutive ones that found this state */
	int64_t since_ms;    /* the first of them, on the monotonic clock */
};

struct suspects {
	struct suspect *list;
	size_t n, size;
};

/* An entry that no script wrote. */
struct outbox_bad {
	char batch[48];
	const char *error;
};

struct outbox {
	struct outbox_bad *bad; /* NULL: none */
	size_t bad_n;
	/* Entries whose receives all have an outcome, each named by its first receive. */
	struct suspects settled;
};

/* Receives in flight without progress, and what they wait for: stall.h fills it. */
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

struct pass {
	struct audit *audit;
	int64_t coupon;

	/* From the snapshot. */
	struct audit_row row;
	struct generations generations; /* also from the cut */
	int64_t rows_n;
	struct slots beyond;      /* user coupons beyond the limit */
	struct slot_set receives; /* of the user coupons, while they are read */
	int may_be_twice;         /* a receive may have several user coupons */
	PGresult *twice;          /* receives with two outcomes; NULL: there can be none */

	struct cut cut, after;
	int compared;           /* the slots were compared */
	int64_t several_n;      /* users with more than one slot */
	int64_t counted;        /* receives that had a slot at the cut */
	int64_t doubtful;       /* accepted in the very millisecond of the cut */
	int64_t by_time;        /* receives that were counted by their time of acceptance */
	int64_t pending;        /* rejected, and not released yet */
	struct slot_set set;    /* slots that are user coupons */
	struct slots malformed; /* of each only the user; 0: the user is no valid id */

	struct suspects rows; /* user coupons that Redis does not have, or has with another key */
	struct suspects open; /* slots that are no user coupons */
	struct outbox outbox;

	/* Of the last look. */
	int64_t unnamed; /* receive numbers without an outcome and without a slot */
	int unnamed_overdue;
	int broker_asked, broker_ok;
	int64_t ready, dead; /* messages */
	int64_t locked_ms;   /* another session has held a lock for so long; 0: none */
	int undecided;       /* something is overdue, and cannot be called lost */
	struct stall stall;
};

void pass_init(struct pass *pass, struct audit *audit, int64_t coupon);
void pass_fini(struct pass *pass);

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
/* Receives without an outcome, over all generations. */
int64_t pass_in_flight(const struct pass *pass);
/* Whether the counts of the cut agree with the slots that were found. */
enum sum_verdict {
	SUM_RIGHT,
	SUM_WRONG,   /* and nothing changed: another pass would find the same */
	SUM_SUSPECT, /* wrong, as far as can be seen while receives are accepted */
	SUM_UNSURE,  /* terms changed, or the like */
	SUM_AT_CUT,  /* to be judged from the cut alone: pass_counts_users() */
};

enum sum_verdict pass_sum(const struct pass *pass);
void suspects_add(struct suspects *suspects, const struct slot *slot, enum slot_found how);
/* Looks at them do not count any more. */
void suspects_restart(struct suspects *suspects);
/* Removes those that are SUSPECT_GONE. */
void suspects_drop_gone(struct suspects *suspects);
/* Copies the slots of at most `most` of them, from the one at `at`. Returns how many. */
size_t suspects_slots(const struct suspects *suspects, size_t at, size_t most, struct slot *slots);
int64_t suspects_count(const struct suspects *suspects, enum suspect_state state);
/* Whether one of them has this user and slot number. */
int suspects_have(const struct suspects *suspects, const struct slot *slot);

/*
 * Fills a zeroed `outbox`. Of settled entries only those that are older than `before_ms`. `open`
 * are slots without an outcome, sorted by batch.
 */
void outbox_read(struct outbox *outbox, struct audit *audit, int64_t coupon,
		 const struct suspects *open, int64_t before_ms);
/* Whether the batch of each slot is in the outbox. Slots of one batch should stand together. */
void outbox_has(struct redis_client *redis, int64_t coupon, const struct slot *slots, size_t n,
		int *has);
/* The same for the batches that are marked as dead-lettered. */
void outbox_dead(struct redis_client *redis, int64_t coupon, const struct slot *slots, size_t n,
		 int *dead);

#endif
