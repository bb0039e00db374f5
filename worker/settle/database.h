/*
 * The PostgreSQL connection of the loop: connects, prepares and settles without blocking, and
 * reconnects after a loss. One statement at a time. One thread.
 */
#ifndef WORKER_SETTLE_DATABASE_H
#define WORKER_SETTLE_DATABASE_H

#include "common/postgres/settle_args.h"

#include <libpq-fe.h>
#include <stdint.h>

struct database;

enum database_event {
	DATABASE_NOTHING,
	DATABASE_SETTLED, /* committed: database_result() has the exceptions */
	DATABASE_BLOCKED, /* nothing was done: a lock was not granted within lock_timeout_ms */
	/* nothing was done: the statement was cancelled, by its time-out or by an operator */
	DATABASE_CANCELLED,
	/* nothing was done: the data is refused, also when it is sent again: database_sqlstate() */
	DATABASE_REFUSED,
	DATABASE_FAILED,  /* any other error, nothing was done: it may be sent again */
	DATABASE_LOOKED,  /* database_result() has the locked coupons; none if that failed */
	DATABASE_COUNTED, /* database_result() has the rows of change_count; none if that failed */
	DATABASE_LOST     /* the connection is lost; whether the statement took effect is unknown */
};

struct database *database_new(const char *url, int64_t settle_timeout_ms);
void database_free(struct database *database);

/* Does what can be done now. Returns DATABASE_LOST only if a statement was in flight. */
enum database_event database_step(struct database *database, int64_t now_ms);

int database_up(const struct database *database);    /* connected, idle or busy */
int database_ready(const struct database *database); /* connected and idle */
/*
 * Sends one settle(), which waits at most `lock_timeout_ms` (positive) for each row lock; only when
 * database_ready(). The arguments are lent until its result is an event: SETTLED, BLOCKED,
 * CANCELLED, REFUSED, FAILED or LOST. `put_off`: the worker holds receives of coupons that are put
 * off; the name of the session shows it, for couponctl. If the session has other settings, they are
 * changed first (one round trip).
 */
void database_settle(struct database *database, const struct settle_args *args,
		     int64_t lock_timeout_ms, int put_off, int64_t now_ms);

/*
 * Looks which of these coupons other sessions have locked; only when database_ready(). The array is
 * copied. Ends with LOOKED or LOST.
 */
void database_look(struct database *database, const struct postgres_array *coupons, int64_t now_ms);

/* Reads change_count; only when database_ready(). Ends with COUNTED, unless the
 * connection is lost. */
void database_count(struct database *database, int64_t now_ms);

/* When the connection was made; only when database_up(). */
int64_t database_connected_ms(const struct database *database);

/*
 * The rows of sql_query_settle as text: ord, outcome, reason. Until the next call of
 * database_step().
 */
const PGresult *database_result(const struct database *database);
const char *database_sqlstate(const struct database *database);

int database_fd(const struct database *database); /* for poll(); -1 when there is none */
short database_poll_events(const struct database *database);
/* the latest time for the next database_step() */
int64_t database_deadline_ms(const struct database *database);

#endif
