/*
 * Nothing is settled over a new connection to PostgreSQL before its numbers were compared with
 * their copy in Redis: it may have been put back to an earlier moment (common/changes.h). While it
 * is behind, the comparison is repeated; couponctl recover ends that. So it is while Redis does not
 * belong to this PostgreSQL; then the worker does not consume, either.
 */
#ifndef WORKER_SETTLE_GATE_H
#define WORKER_SETTLE_GATE_H

#include "keeper/keeper.h"
#include "worker/outbox/outboxes.h"
#include "worker/settle/database.h"

#define GATE_AGAIN_MS 500 /* between two comparisons */

struct gate {
	struct keeper *keeper;     /* not owned, nor is the next one */
	struct outboxes *outboxes; /* gets the id of the installation */

	struct changes copy;
	char installation[INSTALLATION_SIZE]; /* of PostgreSQL */
	int64_t connected_ms;                 /* of the connection that is compared, or was */
	int64_t asked_ms;                     /* for the copy; 0: not yet */
	int installations_n;                  /* of the keeper, at that time */
	int is_open;
	int is_own; /* Redis belongs to this PostgreSQL, as far as is known */
	int is_behind;
};

/*
 * Whether transactions may begin; only when database_ready(). If not, it does the next step of the
 * comparison, after which the database may be busy.
 */
int gate_is_open(struct gate *gate, struct database *database, int64_t now_ms);
/* The event DATABASE_COUNTED. After a failure the comparison is repeated. */
void gate_counted(struct gate *gate, const PGresult *rows);
/* When gate_is_open() is to be called next, while it is not. */
int64_t gate_deadline_ms(const struct gate *gate, int64_t now_ms);

#endif
