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
 *
 * Only the worker's loops.
 */
#pragma once

#include "common/changes.h"
#include "keeper/keeper.h"

#include <libpq-fe.h>

/* Open once the numbers were compared. */
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

enum primary_state {
	PRIMARY_OPEN,
	PRIMARY_COUNT, /* the numbers are to be read, by sql_query_change_counts */
	PRIMARY_WAIT
};

/* While the session is idle, before each transaction. `since_ms`: when it was connected. */
enum primary_state primary_step(struct primary *primary, int64_t since_ms, int64_t now_ms);
/*
 * The numbers were read; after a failure, without rows, the comparison is repeated. Returns NULL,
 * or why the session is to be left: `is_old`, or a standby.
 */
const char *primary_counted(struct primary *primary, const PGresult *rows);
/* Compares again, with a copy that is read from now on. */
void primary_again(struct primary *primary);
/* Whether Redis follows another server meanwhile: what runs in the session may never end. */
int primary_is_left(const struct primary *primary, int64_t since_ms);
/* When primary_step() is to be called next, while it is not open. */
int64_t primary_deadline_ms(const struct primary *primary, int64_t now_ms);
