/*
 * One connection to PostgreSQL, used without blocking: it connects, and runs one statement at a
 * time. A loop calls postgres_step() when the socket is ready or the deadline has passed; query.h
 * waits instead. It does not reconnect. One thread.
 *
 *	        open()               session is set             send()
 *	DOWN ───────────▶ CONNECTING ──────────────▶ IDLE ◀───────────────▶ BUSY
 *	  ▲                   │                        │   the result is there │
 *	  └──────── any loss, any missed deadline, drop() ─────────────────────┘
 */
#ifndef COMMON_POSTGRES_CONNECTION_H
#define COMMON_POSTGRES_CONNECTION_H

#include "common/postgres/argument.h"

#include <libpq-fe.h>
#include <stdint.h>

/* What the failure of a statement means: of the coupons in it, or of the connection. */

/* In each case but DOWN the connection is good, and the statement did nothing. */
enum postgres_failure {
	POSTGRES_OK,
	POSTGRES_BLOCKED,   /* 55P03: a lock was not granted within lock_timeout */
	POSTGRES_CANCELLED, /* 57014: by statement_timeout, or by an operator */
	POSTGRES_REFUSED,   /* classes 22 and 23: the data is refused, also when sent again */
	POSTGRES_AGAIN,     /* 40001, 40P01: another transaction was in the way */
	/* any other error: a full disk, for instance, or a schema that is not as expected */
	POSTGRES_UNFIT,
	POSTGRES_DOWN /* there is no connection; whether the statement took effect is unknown */
};

/* Of an error with this SQLSTATE; NULL or "": the server has reported none, POSTGRES_DOWN. */
enum postgres_failure postgres_classify(const char *sqlstate);

/*
 * Whether a failure concerns only the coupons of the statement, which are put off while everything
 * else continues.
 */
int postgres_of_coupon(enum postgres_failure failure);

#define POSTGRES_ARGUMENTS_MAX 16

/* Texts are lent. */
struct postgres_options {
	const char *url;
	const char *application_name;
	int64_t connect_timeout_ms;   /* until the session is set, too */
	int64_t statement_timeout_ms; /* the server's limit for one statement; 0: its own setting */
	int64_t lock_timeout_ms;      /* and for one lock; 0: its own setting */
	const char *session;          /* further SET statements; NULL: none */
	const char *notice_event;     /* the server's notices are logged as this; NULL: dropped */
	/* Gets the text of each of the server's notices, from within a step. NULL: none. */
	void (*notice)(void *context, const char *text);
	void *notice_context;
};

enum postgres_event {
	POSTGRES_NOTHING,
	POSTGRES_CONNECTED, /* ready for the first statement */
	POSTGRES_ENDED,     /* the statement has ended: postgres_failure() */
	POSTGRES_LOST       /* the connection is lost: postgres_why(). It may have taken effect. */
};

struct postgres;

struct postgres *postgres_new(const struct postgres_options *options); /* copied; down */
void postgres_free(struct postgres *postgres);                         /* NULL is allowed */

/*
 * Begins to connect, while down. `address` is that of the URL's host; with NULL libpq looks it up,
 * and blocks meanwhile. 0, or -1: postgres_why().
 */
int postgres_connect(struct postgres *postgres, const char *address, int64_t now_ms);
/* `why` is for postgres_why(); NULL leaves that as it is. */
void postgres_drop(struct postgres *postgres, const char *why);

/* Does what can be done now. */
enum postgres_event postgres_step(struct postgres *postgres, int64_t now_ms);

/*
 * Each sends one statement, while idle; the arguments are copied. After `deadline_ms` without its
 * end the connection is lost. Without arguments `sql` may be several statements, which are one
 * transaction; the result is that of the last one, or the first error.
 */
void postgres_send(struct postgres *postgres, const char *sql, int n,
		   const struct postgres_argument *arguments, int64_t deadline_ms);
/* The same with at least one argument, and a result in PostgreSQL's binary form. */
void postgres_send_binary(struct postgres *postgres, const char *sql, int n,
			  const struct postgres_argument *arguments, int64_t deadline_ms);
void postgres_prepare(struct postgres *postgres, const char *name, const char *sql,
		      int64_t deadline_ms);
void postgres_send_prepared(struct postgres *postgres, const char *name, int n,
			    const struct postgres_argument *arguments, int64_t deadline_ms);
/* The settings that a session may change later. The name is lent and contains no quotes. */
struct postgres_session {
	int64_t lock_timeout_ms;
	const char *application_name; /* shown in pg_stat_activity */
};

/* Changes the session. 1: sent, and ends as a statement does; 0: it has these settings. */
int postgres_set_session(struct postgres *postgres, const struct postgres_session *session,
			 int64_t deadline_ms);

/* Of the last statement, until the next one is sent. */
enum postgres_failure postgres_failure(const struct postgres *postgres);
const char *postgres_sqlstate(const struct postgres *postgres); /* "": none */
const PGresult *postgres_result(const struct postgres *postgres);
PGresult *postgres_result_take(struct postgres *postgres); /* owned by the caller, to be cleared */

/* Of the last failure: libpq's message; its first line, and all of it on one line. */
const char *postgres_why(const struct postgres *postgres);
const char *postgres_why_long(const struct postgres *postgres);

int postgres_up(const struct postgres *postgres);   /* idle or busy */
int postgres_idle(const struct postgres *postgres); /* a statement can be sent */
PGconn *postgres_libpq(
	struct postgres *postgres); /* for NOTIFY and the backend's pid; NULL: down */

int postgres_fd(const struct postgres *postgres); /* for poll(); -1 when down */
short postgres_poll_events(const struct postgres *postgres);
/* the latest time for the next postgres_step(); INT64_MAX: no limit */
int64_t postgres_deadline_ms(const struct postgres *postgres);

#endif
