#include "worker/primary.h"

#include "common/clock.h"

#include <string.h>

#define GATE_AGAIN_MS 500 /* between two comparisons */
/* While the keeper's thread reads the copy: at first, and while it cannot. */
#define POLL_MS 10
#define POLL_SLOWLY_MS 200
#define POLL_SLOWLY_AFTER_MS 1000

static void gate_restart(struct gate *gate, int64_t connected_ms)
{
	gate->connected_ms = connected_ms;
	gate->installations_n = keeper_state().installations_n;
	gate->asked_ms = 0;
	gate->is_open = 0;
}

int gate_is_left(const struct gate *gate, int64_t since_ms)
{
	struct postgres_server followed = keeper_state().followed;

	return gate->is_open && gate->connected_ms == since_ms && *followed.system &&
	       !server_equals(&followed, &gate->server);
}

void gate_again(struct gate *gate)
{
	gate->asked_ms = 0;
	gate->is_open = 0;
}

enum gate_state gate_step(struct gate *gate, int64_t since_ms, int64_t now_ms)
{
	struct keeper_state keeper = keeper_state();

	if (keeper.relation == RELATION_FOREIGN)
		gate->is_own = 0;
	if (gate->connected_ms != since_ms || gate->installations_n != keeper.installations_n ||
	    (gate->is_open &&
	     (keeper.relation == RELATION_BEHIND || !gate->is_own || gate_is_left(gate, since_ms))))
		gate_restart(gate, since_ms);
	if (gate->is_open)
		return GATE_OPEN;
	if (gate->asked_ms == 0) {
		gate->asked_ms = now_ms;
		keeper_copy_ask(gate->keeper);
	} else if (now_ms >= gate->asked_ms && keeper_copy(&gate->copy) >= gate->asked_ms) {
		return GATE_COUNT;
	}
	return GATE_WAIT;
}

const char *gate_counted(struct gate *gate, const PGresult *rows)
{
	struct changes changes;
	struct standing standing;

	gate->asked_ms += GATE_AGAIN_MS;
	keeper_copy_ask(gate->keeper);
	if (PQresultStatus(rows) != PGRES_TUPLES_OK)
		return NULL;
	changes_take(&changes, rows);
	standing = changes_stand(keeper_state().relation, &changes, &gate->copy);
	gate->is_old = standing.relation == RELATION_OLD;
	switch (standing.relation) {
	case RELATION_STANDBY:
		return SERVER_STANDBY_TEXT;
	case RELATION_OLD:
		gate->is_own = 0;
		return RELATION_OLD_TEXT;
	case RELATION_UNKNOWN:
	case RELATION_FOREIGN:
	case RELATION_OTHER:
		gate->is_own = 0;
		return NULL;
	case RELATION_UNADOPTED:
		return NULL;
	case RELATION_OWN:
	case RELATION_BEHIND:
		break;
	}

	/* Compared again, at once, with a copy that is read after Redis was asked to follow it. */
	if (standing.follow != FOLLOW_NONE) {
		if (!server_equals(&changes.server, &gate->asked))
			gate->asked_ms = clock_monotonic_ms();
		gate->asked = changes.server;
		keeper_follow_ask(gate->keeper, &changes, standing.follow);
		return NULL;
	}
	gate->is_own = 1;
	gate->is_open = standing.relation == RELATION_OWN;
	gate->server = changes.server;
	memcpy(gate->installation, changes.installation, INSTALLATION_SIZE);
	if (gate->outboxes)
		outboxes_origin(gate->outboxes, &changes);
	return NULL;
}

int64_t gate_deadline_ms(const struct gate *gate, int64_t now_ms)
{
	if (gate->asked_ms > now_ms)
		return gate->asked_ms;
	return now_ms + (now_ms - gate->asked_ms < POLL_SLOWLY_AFTER_MS ? POLL_MS : POLL_SLOWLY_MS);
}
