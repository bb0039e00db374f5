/*
 * Settles the deliveries that the worker holds: one transaction at a time, with everything that has
 * arrived meanwhile. Connects the books (settlement.h) with PostgreSQL, over a session of its own.
 *
 * After a small transaction the next one begins SETTLE_LINGER_MS after its end at the earliest,
 * unless a client waits for an outcome: where nobody waits, larger transactions cost PostgreSQL
 * less. What arrives later than that, in an idle system, does not wait.
 *
 * Nothing is settled in a new session of PostgreSQL before its numbers were compared with their
 * copy in Redis: it may have been put back to an earlier moment (common/changes.h). While it is
 * behind, the comparison is repeated; couponctl recover ends that. So it is while Redis does not
 * belong to this PostgreSQL, or follows another server; then the worker does not consume, either.
 * A standby is left: a session that outlives its promotion was compared before it.
 */
#pragma once

#include "common/backoff.h"
#include "common/changes.h"
#include "common/postgres/session.h"
#include "common/program/durability.h"
#include "common/rabbit/publisher.h"
#include "keeper/keeper.h"
#include "worker/metrics.h"
#include "worker/outboxes.h"
#include "worker/consume/settlement.h"

/*
 * How long a statement waits for a lock. Longer than a settlement that another worker waits for;
 * short enough that a lock of another session delays the other coupons by less than a second,
 * including the steps that find its coupon.
 */
#define SETTLE_LOCK_MS 600
#define SETTLE_LOCK_AGAIN_MS 150  /* while a coupon is put off: others may be locked, too */
#define SETTLE_LOCK_SUSPECT_MS 30 /* of coupons that may be locked, while others wait */
#define SETTLE_LOCK_IDLE_MS 100   /* and while none does */

#define SETTLE_LINGER_MS 2
#define SETTLE_LINGER_RECEIVES 512 /* a transaction with fewer is small */

/* Opens once the numbers were compared. */
struct gate {
	struct changes copy;
	char installation[INSTALLATION_SIZE]; /* of PostgreSQL */
	struct postgres_server server;        /* of the session, which keeps its server */
	int64_t connected_ms;                 /* of the session that is compared, or was */
	int64_t asked_ms;                     /* for the copy; 0: not yet */
	struct postgres_server asked;         /* that Redis was last asked to follow */
	int installations_n;                  /* of the keeper, at that time */
	int is_open;
	int is_own; /* Redis belongs to this PostgreSQL, as far as is known, and follows it */
	int is_behind;
	int is_old;
};

/* LIMIT: the settings of the session are changed for the settle() that follows. */
enum settler_statement {
	STATEMENT_SETTINGS,
	STATEMENT_COUNT,
	STATEMENT_LIMIT,
	STATEMENT_SETTLE,
	STATEMENT_LOOK
};

struct settler {
	struct settlement *settlement;      /* not owned, nor are the next four */
	struct rabbit_publisher *publisher; /* of replies */
	struct outboxes *outboxes;
	struct keeper *keeper; /* reads the copy; is woken when receives were rejected */
	int64_t settle_timeout_ms;
	size_t transaction_receives_max;

	struct postgres *postgres;
	enum settler_statement statement; /* the last one */
	struct durability durability;
	struct settle_args args;
	struct gate gate;
	struct backoff backoff;
	int64_t due_ms;    /* no transaction before this time */
	int64_t linger_ms; /* nor before this time, unless a client waits; 0: none */
};

/* The fields above the blank line are set by the caller. */
void settler_init(struct settler *settler, const char *database_url);
void settler_fini(struct settler *settler);

/* Does what can be done now. */
void settler_turn(struct settler *settler, int64_t now_ms);

/* When settler_turn() is to be called next; for poll() there is the socket of its session. */
int64_t settler_deadline_ms(const struct settler *settler);

/*
 * Fills the arguments of settle() with the transaction in flight, in the order of its positions.
 * The memory of earlier calls is reused.
 */
void settlement_args_fill(struct settle_args *args, const struct settlement *settlement);
