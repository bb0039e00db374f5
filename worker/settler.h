/*
 * Settles the deliveries that the worker holds: one transaction at a time, with everything that has
 * arrived meanwhile. Connects the books (settlement.h) with PostgreSQL, over a session of its own.
 *
 * After a small transaction the next one begins SETTLE_LINGER_MS after its end at the earliest,
 * unless a client waits for an outcome: where nobody waits, larger transactions cost PostgreSQL
 * less. What arrives later than that, in an idle system, does not wait.
 *
 * Nothing is settled in a new session of PostgreSQL before its gate is open (gate.h).
 */
#pragma once

#include "common/backoff.h"
#include "common/postgres/session.h"
#include "common/program/durability.h"
#include "common/rabbit/publisher.h"
#include "worker/gate.h"
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

#define SETTLER_STARTED_SIZE 32

/* LIMIT: the settings of the session are changed for the settle() that follows. */
enum settler_statement {
	STATEMENT_SETTINGS,
	STATEMENT_COUNT,
	STATEMENT_LIMIT,
	STATEMENT_SETTLE,
	STATEMENT_LOOK
};

struct settler;

/* What its transactions do: settle receives, or execute uses (uses.h). */
struct settler_kind {
	const char *statement;        /* the text of the statement, which is prepared */
	const char *application_name; /* of its session */
	int locks_coupons;            /* its locks are those of rows of coupons */
	/* Before each transaction, in the idle session: whether one may begin. NULL: always. */
	int (*may_begin)(struct settler *settler, int64_t now_ms);
	/* Sends the statement for the transaction in flight. */
	void (*send)(struct settler *settler, int64_t now_ms);
	/*
	 * It is committed. Ends in settlement_commit(); or, where it has to be tried again at
	 * `due_ms`, it is called again then, unless the session is lost before.
	 */
	void (*committed)(struct settler *settler, int64_t now_ms);
};

extern const struct settler_kind settler_of_receives;

struct settler {
	const struct settler_kind *kind;
	struct uses *uses;                  /* of that kind; else NULL. Not owned: */
	struct settlement *settlement;      /* nor are the next four */
	struct rabbit_publisher *publisher; /* of replies */
	struct outboxes *outboxes;          /* NULL for uses */
	struct keeper *keeper; /* reads the copy; is woken when receives were rejected */
	int64_t settle_timeout_ms;
	size_t transaction_receives_max;

	struct postgres *postgres;
	enum settler_statement statement; /* the last one */
	struct durability durability;
	struct settle_args args;
	struct gate gate;
	struct backoff backoff;
	char started[SETTLER_STARTED_SIZE]; /* when the server was started, as a text */
	int64_t due_ms;                     /* no transaction before this time */
	int64_t linger_ms;  /* nor before this time, unless a client waits; 0: none */
	struct reply reply; /* that is sent next */
};

/* The fields above the blank line are set by the caller. */
void settler_init(struct settler *settler, const struct config *config);
void settler_fini(struct settler *settler);

/* Does what can be done now. */
void settler_turn(struct settler *settler, int64_t now_ms);

/* When settler_turn() is to be called next; for poll() there is the socket of its session. */
int64_t settler_deadline_ms(const struct settler *settler);

/* For its kind. Sends the statement with its arguments. */
void settler_send(struct settler *settler, int n, const struct postgres_argument *arguments,
		  int64_t now_ms);
/*
 * Sends `reply` to the gateway that waits for this delivery, if one does. A lost reply does no
 * harm: at its deadline the gateway looks a receive up, and tells that a use is unknown, after
 * which its client asks again with the same key.
 */
void settler_reply(struct settler *settler, const struct delivery *delivery);
/* The transaction is to be tried again, though it is committed: it changes nothing then. */
void settler_retry(struct settler *settler, int64_t now_ms);

/*
 * Fills the arguments of settle() with the transaction in flight, in the order of its positions.
 * The memory of earlier calls is reused.
 */
void settlement_args_fill(struct settle_args *args, const struct settlement *settlement);
