/*
 * Whether the worker may settle in its session of PostgreSQL.
 *
 * Nothing is settled in a new session of PostgreSQL before its numbers were compared with their
 * copy in Redis: it may have been put back to an earlier moment (common/changes.h). While it is
 * behind, the comparison is repeated; couponctl recover ends that. So it is while Redis does not
 * belong to this PostgreSQL, or follows another server; then the worker does not consume, either.
 * A standby is left: a session that outlives its promotion was compared before it.
 *
 * The worker's loop.
 */
#pragma once

#include "keeper/keeper.h"
#include "worker/outboxes.h"

#include <libpq-fe.h>

/* Opens once the numbers were compared. */
struct gate {
	struct keeper *keeper;     /* reads the copy */
	struct outboxes *outboxes; /* are told whose numbers they copy; NULL: none */

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

enum gate_state {
	GATE_OPEN,
	GATE_COUNT, /* the numbers are to be read, by sql_query_change_counts */
	GATE_WAIT
};

/* While the session is idle, before each transaction. `since_ms`: when it was connected. */
enum gate_state gate_step(struct gate *gate, int64_t since_ms, int64_t now_ms);
/*
 * The numbers were read; after a failure, without rows, the comparison is repeated. Returns NULL,
 * or why the session is to be left: `is_old`, or a standby.
 */
const char *gate_counted(struct gate *gate, const PGresult *rows);
/* Compares again, with a copy that is read from now on. */
void gate_again(struct gate *gate);
/* Whether Redis follows another server meanwhile: what runs in the session may never end. */
int gate_is_left(const struct gate *gate, int64_t since_ms);
/* When gate_step() is to be called next, while it is not open. */
int64_t gate_deadline_ms(const struct gate *gate, int64_t now_ms);
