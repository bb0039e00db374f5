/*
 * The PostgreSQL connection of the loop: connects, prepares and settles without blocking, and
 * reconnects after a loss. One statement at a time. One thread.
 */
#ifndef WORKER_SETTLE_DATABASE_H
#define WORKER_SETTLE_DATABASE_H

#include "common/postgres/session.h"
#include "common/postgres/settle_args.h"

#include <stdint.h>

struct database;

enum database_event {
	DATABASE_NOTHING,
	DATABASE_SETTLED, /* committed: the rows are the exceptions */
	DATABASE_BLOCKED, /* nothing was done: a lock was not granted within lock_timeout_ms */
	/* nothing was done: the statement was cancelled, by its time-out or by an operator */
	DATABASE_CANCELLED,
	/* nothing was done: the data is refused, also when it is sent again: the SQLSTATE */
	DATABASE_REFUSED,
	DATABASE_FAILED,  /* any other error, nothing was done: it may be sent again */
	DATABASE_LOOKED,  /* the rows are the locked coupons; none if that failed */
	DATABASE_COUNTED, /* the rows are those of change_count; none if that failed */
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

/*
 * The session: when it was connected, its socket and its deadline. After an event also the rows, as
 * text (of SETTLED ord, outcome and reason of sql/query/settle.sql), and the SQLSTATE, until the
 * next call of database_step().
 */
struct postgres *database_postgres(const struct database *database);

#endif
