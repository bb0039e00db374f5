/*
 * Does the work of the deliveries that a loop of the worker holds: one transaction at a time, with
 * everything that has arrived meanwhile. Connects the books (settlement.h) with PostgreSQL, over a
 * session of its own. There are two kinds of work, each with a loop of its own (main.c), so that
 * neither waits for the other:
 *
 *	              receives (work_receives.c)        uses (work_uses.c)
 *	read          a message of receives             a message of uses
 *	compared      its numbers go to the outboxes    -
 *	may_begin     always                            Redis knows the session
 *	send          settle()                          use()
 *	blocked       look which coupons are locked     the transaction is split
 *	committed     reply; outboxes; wake keeper      Redis has the records; reply
 *	dead_lettered the batch is marked in Redis      -
 *	turn          copies of what waits; metrics     -
 *
 * After a small transaction the next one begins SETTLE_LINGER_MS after its end at the earliest,
 * unless a client waits for an outcome: where nobody waits, larger transactions cost PostgreSQL
 * less. What arrives later than that, in an idle system, does not wait.
 *
 * Nothing is settled in a new session of PostgreSQL before its numbers were compared: struct
 * primary.
 */
#pragma once

#include "common/backoff.h"
#include "common/changes.h"
#include "common/postgres/postgres_session.h"
#include "common/program/weak_settings.h"
#include "common/rabbit/rabbit_publisher.h"
#include "keeper/keeper.h"
#include "worker/metrics.h"
#include "worker/settlement.h"

#include <libpq-fe.h>

/*
 * Whether the worker may settle in its session of PostgreSQL: whether its server is the one that
 * counts.
 *
 * Nothing is settled in a new session of PostgreSQL before its numbers were compared with their
 * copy in Redis: it may have been put back to an earlier moment (common/changes.h). While it is
 * behind, the comparison is repeated; couponctl recover ends that. It is also repeated while Redis
 * does not belong to this PostgreSQL, or follows another server; then the worker does not consume,
 * either.
 * A standby is left: a session that outlives its promotion was compared before it.
 */
struct primary {
	struct keeper *keeper; /* reads the copy */

	struct changes copy;
	char installation[INSTALLATION_SIZE]; /* of PostgreSQL */
	struct postgres_server server;        /* of the session, which keeps its server */
	int64_t connected_ms;                 /* of the session that is compared, or was */
	int64_t asked_ms;                     /* for the copy; 0: not yet */
	struct postgres_server asked;         /* that Redis was last asked to follow */
	int installations_n;                  /* of the keeper, at that time */
	int is_open;
	int is_own; /* Redis belongs to this PostgreSQL, as far as is known, and follows it */
	int is_old; /* the server of the last session that was compared */
};

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

/* The sources of a loop, in the order of its queues. */
enum source { SOURCE_WORK, SOURCE_PARKED, SOURCES };

struct settler;

/* A kind of work. The loop calls these functions; `state` is what open() has set. */
struct work {
	const char *queues[SOURCES]; /* that its loop consumes, by source */
	size_t queues_n;
	const char *routing_key;      /* of the first queue */
	const char *application_name; /* of the session, as audit_workers of couponctl reads it */
	const char *statement;        /* the text of the statement, which is prepared */

	/* Sets the fields of the settler that are its own. Does not wait for a store. */
	void (*open)(struct settler *settler, const struct config *config);
	void (*close)(void *state);
	/* Decodes a batch, for struct unpack. */
	struct delivery *(*read)(struct unpack *unpack, const char *text, size_t len,
				 const char **error);
	/*
	 * Redis belongs to this PostgreSQL, and follows the server that `primary` names; before its
	 * first transaction. May be NULL.
	 */
	void (*compared)(void *state, const struct primary *primary);
	/* Before each transaction, in the idle session: whether one may begin. NULL: it may. */
	int (*may_begin)(struct settler *settler, int64_t now_ms);
	/* Sends the statement for the transaction in flight. */
	void (*send)(struct settler *settler, int64_t now_ms);
	/*
	 * It met a lock, and did nothing. Ends in settlement_blocked() after a look. NULL: without.
	 */
	void (*blocked)(struct settler *settler, int64_t now_ms);
	/*
	 * It is committed. Ends in settlement_commit(); or, where it has to be tried again at
	 * `due_ms`, it is called again then, unless the session is lost before.
	 */
	void (*committed)(struct settler *settler, int64_t now_ms);
	/* RabbitMQ has confirmed the dead letter of this batch. May be NULL. */
	void (*dead_lettered)(void *state, int64_t coupon, const struct ulid *batch);
	/* In each turn of the loop, after the acks. Returns when the next is due. May be NULL. */
	int64_t (*turn)(struct settler *settler, const struct rabbit_link *consumer,
			int64_t now_ms);
};

extern const struct work work_of_receives, work_of_uses;

struct settler {
	const struct work *work;
	struct keeper *keeper; /* reads the copy; is woken when receives were rejected. Not owned */
	struct rabbit_publisher *publisher; /* of replies; not owned */

	/* set by open() */
	void *state;
	struct settlement *settlement;
	int64_t prefetch; /* of each queue */
	size_t transaction_receives_max;

	int64_t settle_timeout_ms;
	struct postgres *postgres;
	enum settler_statement statement; /* the last one */
	struct durability durability;
	struct primary primary;
	struct backoff backoff;
	char started[SETTLER_STARTED_SIZE]; /* when the server was started, as a text */
	int64_t due_ms;                     /* no transaction before this time */
	int64_t linger_ms;  /* nor before this time, unless a client waits; 0: none */
	struct reply reply; /* that is sent next */
};

/* The caller sets the fields above the first blank line; the publisher before the first turn. */
void settler_init(struct settler *settler, const struct config *config);
void settler_fini(struct settler *settler);

/* Does what can be done now. */
void settler_turn(struct settler *settler, int64_t now_ms);

/* When settler_turn() is to be called next; for poll() there is the socket of its session. */
int64_t settler_deadline_ms(const struct settler *settler);

/* For the kinds of work. */

/* The `noticed` of settlement_new(). */
void put_off_log(const struct put_off_coupon *notice);
/* Compares the numbers again, with a copy that is read from now on. */
void primary_again(struct primary *primary);
/* Sends the statement with its arguments. */
void settler_send(struct settler *settler, int n, const struct postgres_argument *arguments,
		  int64_t now_ms);
/* Sends a statement that only reads, as STATEMENT_LOOK: which of these coupons are locked. */
void settler_read(struct settler *settler, enum settler_statement statement, const char *sql, int n,
		  const struct postgres_argument *arguments, int64_t now_ms);
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
