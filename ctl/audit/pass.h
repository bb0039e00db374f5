/*
 * One pass over a coupon, in this order:
 *
 *	PostgreSQL ── a snapshot: its row, then its user coupons, in pages ──┐
 *	Redis ─────── the cut: its counts at one moment ─────────────────────┤ each user coupon must be a slot by now
 *	Redis ─────── the users, in steps ───────────────────────────────────┤ each slot must be a user coupon, or is open
 *	PostgreSQL ── what became of the open ones ──────────────────────────┤ issued or rejected meanwhile, or in flight
 *	Redis ─────── the coupon once more ──────────────────────────────────┘
 *
 * A user coupon of the snapshot was accepted before the cut. Of what became one later its time of
 * acceptance, which is Redis' clock, tells whether it was taken at the cut: so the counts of the
 * cut can be compared exactly, while all goes on.
 */
#ifndef CTL_AUDIT_PASS_H
#define CTL_AUDIT_PASS_H

#include "ctl/audit/audit.h"
#include "ctl/audit/postgres.h"
#include "ctl/audit/cut.h"
#include "ctl/slots.h"

/* How something that does not agree stood at the last look. */
enum suspect_state {
	SUSPECT_NEW,
	SUSPECT_FLIGHT,    /* young */
	SUSPECT_OUTBOX,    /* its message is still in the outbox */
	SUSPECT_OVERDUE,   /* no outcome, and it is old: a look at the queues tells more */
	SUSPECT_QUIET,     /* no outcome, though all numbers that were given out have theirs */
	SUSPECT_HELD,      /* rejected and released, and it still has its slot */
	SUSPECT_DIFFERENT, /* a user coupon that Redis does not have so */
	SUSPECT_GONE,      /* it agrees now */
};

struct suspect {
	struct slot slot;
	enum suspect_state state;
	enum slot_found how; /* of a user coupon: how Redis has it */
	int looks;           /* in a row that found it in this state */
	int64_t since_ms;    /* the first of them, by the monotonic clock */
};

struct suspects {
	struct suspect *list;
	size_t n, size;
};

/* An entry of the outbox that no script wrote. */
struct entry_bad {
	char batch[48];
	const char *error;
};

#define ENTRIES_MAX 1000 /* of the outbox, to be told or looked at again */

struct pass {
	struct audit *audit;
	int64_t coupon;

	/* of the snapshot */
	struct audit_row row;
	struct generations generations; /* and of the cut */
	int64_t rows_n;
	struct slots beyond;      /* user coupons beyond the limit */
	struct slot_set receives; /* of the user coupons, while they are read */
	int may_be_twice;         /* one of them seems to have several */
	PGresult *twice;          /* receives with two outcomes; NULL: there can be none */

	struct cut cut, after;
	int compared;           /* the slots were */
	int64_t slots_n;        /* seen in Redis */
	int64_t several_n;      /* users with more than one */
	int64_t counted;        /* receives that surely had a slot at the cut */
	int64_t doubtful;       /* that were accepted in its very millisecond */
	int64_t by_time;        /* of which the time of acceptance told */
	int64_t pending;        /* rejected, and not released yet */
	struct slot_set set;    /* slots that are user coupons */
	struct slots malformed; /* of each only the user; 0: the user itself is no id */

	struct suspects rows;      /* user coupons that Redis does not have so */
	struct suspects open;      /* slots that are no user coupons */
	struct suspects outbox;    /* old entries of which all is settled */
	struct entry_bad *entries; /* NULL: none */
	size_t entries_n;
	int64_t unnamed; /* numbers that were given out, without outcome and slot */
	int unnamed_overdue;
	int broker_asked, broker_ok;
	int64_t ready, dead; /* messages */
	int undecided;       /* something is overdue, and cannot be called lost */
};

void pass_run(struct pass *pass, struct audit *audit, int64_t coupon);
void pass_fini(struct pass *pass);

/*
 * How many user coupons or rejections PostgreSQL has counted and does not have. In older
 * generations it counts what an operator gave up as settled, so of a coupon that was rebuilt only
 * the count of user coupons tells.
 */
int64_t pass_gone(const struct pass *pass);

/*
 * What became of the open slots by now: those that have their outcome leave the list, and are
 * counted.
 */
void pass_open_resolve(struct pass *pass);

void suspects_add(struct suspects *suspects, const struct slot *slot, enum slot_found how);
void suspects_fini(struct suspects *suspects);

/*
 * Looks again and again at what does not agree, until it does, or is certainly wrong, or cannot be
 * told.
 */
void pass_watch(struct pass *pass);
/* Whether a suspect is wrong, after pass_watch(). */
int suspect_is_wrong(const struct pass *pass, const struct suspect *suspect);

/* Reads the outbox: fills pass->entries and pass->outbox. */
void pass_outbox_read(struct pass *pass);

enum sum_verdict {
	SUM_RIGHT,
	SUM_WRONG,   /* and nothing moved meanwhile: another pass would tell the same */
	SUM_SUSPECT, /* wrong, as far as can be seen while all goes on */
	SUM_UNSURE,  /* terms changed, or the like */
	SUM_AT_CUT,  /* pass_judge() tells it, from the cut alone */
};
/* Before pass_watch(): whether the counts of the cut agree with what was found. */
enum sum_verdict pass_sum(const struct pass *pass);
/*
 * With one slot for each user the number of users is that of slots, at the very moment of the cut.
 */
int pass_counts_users(const struct pass *pass);

/* Tells what is wrong, after pass_watch(). */
void pass_judge(struct pass *pass, enum sum_verdict sum);

#endif
