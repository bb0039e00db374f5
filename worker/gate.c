#include "worker/gate.h"

#include "common/clock.h"
#include "common/log/log.h"

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
	    (gate->is_open && (keeper.is_behind || !gate->is_own || gate_is_left(gate, since_ms))))
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

static void gate_old(struct gate *gate, const struct postgres_server *server)
{
	char own[SERVER_TEXT_SIZE], followed[SERVER_TEXT_SIZE];

	if (!gate->is_old)
		log_error("postgresql_old", LOG_S("server", server_text(server, own)),
			  LOG_S("followed", server_text(&gate->copy.server, followed)),
			  LOG_S("why", RELATION_OLD_TEXT), LOG_S("mend", SERVER_OLD_MEND));
	gate->is_old = 1;
	gate->is_own = 0;
	gate->asked = (struct postgres_server){ .timeline = 0 };
}

/*
 * 1 if Redis follows the server of this session, as the copy has it; -1 if it is an old one. If 0,
 * it is asked to follow it, and the comparison is repeated with a later copy.
 */
static int gate_follows(struct gate *gate, const struct changes *changes, int64_t behind)
{
	enum relation followed = RELATION_UNKNOWN;

	if (server_equals(&changes->server, &gate->copy.server))
		return 1;
	if (server_equals(&changes->server, &gate->asked))
		followed = keeper_followed();
	if (followed == RELATION_OLD) {
		gate_old(gate, &changes->server);
		return -1;
	}
	gate->asked = changes->server;
	gate->asked_ms = clock_monotonic_ms();
	if (followed == RELATION_OTHER || followed == RELATION_OWN)
		gate->asked_ms += GATE_AGAIN_MS;
	keeper_follow_ask(gate->keeper, changes, behind > 0 ? FOLLOW_NEWER : FOLLOW_OTHER);
	return followed == RELATION_OTHER && behind > 0; /* it was put back */
}

const char *gate_counted(struct gate *gate, const PGresult *rows)
{
	struct changes changes;
	enum relation relation;
	int64_t behind;
	int follows;

	gate->asked_ms += GATE_AGAIN_MS;
	keeper_copy_ask(gate->keeper);
	if (PQresultStatus(rows) != PGRES_TUPLES_OK)
		return NULL;
	changes_take(&changes, rows);
	if (changes.server.timeline == 0) {
		gate->is_old = 0;
		return SERVER_STANDBY_TEXT;
	}
	behind = changes_behind(&changes, &gate->copy);
	relation = changes_relate(keeper_state().relation, &changes, &gate->copy);
	if (relation != RELATION_UNADOPTED && relation != RELATION_OWN)
		gate->is_own = 0;
	if (relation != RELATION_OWN)
		return NULL;
	follows = gate_follows(gate, &changes, behind);
	if (follows <= 0)
		return follows < 0 ? RELATION_OLD_TEXT : NULL;
	gate->is_own = 1;
	gate->is_old = 0;
	gate->server = changes.server;
	memcpy(gate->installation, changes.installation, INSTALLATION_SIZE);
	if (gate->outboxes)
		outboxes_origin(gate->outboxes, &changes);
	gate->is_open = behind == 0;
	if (behind > 0 && !gate->is_behind)
		log_error("postgresql_behind", LOG_I("transactions", behind),
			  LOG_S("why", "PostgreSQL was put back to an earlier moment"),
			  LOG_S("mend", "couponctl recover"));
	gate->is_behind = behind > 0;
	return NULL;
}

int64_t gate_deadline_ms(const struct gate *gate, int64_t now_ms)
{
	if (gate->asked_ms > now_ms)
		return gate->asked_ms;
	return now_ms + (now_ms - gate->asked_ms < POLL_SLOWLY_AFTER_MS ? POLL_MS : POLL_SLOWLY_MS);
}
