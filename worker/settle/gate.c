#include "worker/settle/gate.h"

#include "common/log/log.h"

#include <string.h>

/* While the keeper's thread reads the copy: at first, and while it cannot. */
#define POLL_MS 10
#define POLL_SLOWLY_MS 200
#define POLL_SLOWLY_AFTER_MS 1000

static void restart(struct gate *gate, int64_t connected_ms)
{
	gate->connected_ms = connected_ms;
	gate->installations_n = keeper_state().installations_n;
	gate->asked_ms = 0;
	gate->is_open = 0;
}

int gate_is_open(struct gate *gate, struct database *database, int64_t now_ms)
{
	struct keeper_state keeper = keeper_state();

	if (keeper.relation == RELATION_FOREIGN)
		gate->is_own = 0;
	if (gate->connected_ms != database_connected_ms(database) ||
	    gate->installations_n != keeper.installations_n ||
	    (gate->is_open && (keeper.is_behind || !gate->is_own)))
		restart(gate, database_connected_ms(database));
	if (gate->is_open)
		return 1;
	if (gate->asked_ms == 0) {
		gate->asked_ms = now_ms;
		keeper_copy_ask(gate->keeper);
	} else if (now_ms >= gate->asked_ms && keeper_copy(&gate->copy) >= gate->asked_ms) {
		database_count(database, now_ms);
	}
	return 0;
}

void gate_counted(struct gate *gate, const PGresult *rows)
{
	struct changes changes;
	enum relation relation;
	int64_t behind;

	gate->asked_ms += GATE_AGAIN_MS;
	keeper_copy_ask(gate->keeper);
	if (PQresultStatus(rows) != PGRES_TUPLES_OK)
		return;
	changes_take(&changes, rows);
	relation = changes_relate(keeper_state().relation, &changes, &gate->copy);
	if (relation != RELATION_UNCLAIMED)
		gate->is_own = relation == RELATION_OWN;
	if (relation != RELATION_OWN)
		return;
	memcpy(gate->installation, changes.installation, INSTALLATION_SIZE);
	outboxes_installation(gate->outboxes, changes.installation);
	behind = changes_behind(&changes, &gate->copy);
	gate->is_open = behind == 0;
	if (behind > 0 && !gate->is_behind)
		log_error("postgresql_behind", LOG_I("transactions", behind),
			  LOG_S("why", "PostgreSQL was put back to an earlier moment"),
			  LOG_S("mend", "couponctl recover"));
	gate->is_behind = behind > 0;
}

int64_t gate_deadline_ms(const struct gate *gate, int64_t now_ms)
{
	if (gate->asked_ms > now_ms)
		return gate->asked_ms;
	return now_ms + (now_ms - gate->asked_ms < POLL_SLOWLY_AFTER_MS ? POLL_MS : POLL_SLOWLY_MS);
}
