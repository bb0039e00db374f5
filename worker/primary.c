#include "worker/primary.h"

#include "common/clock.h"

#include <string.h>

#define COMPARE_AGAIN_MS 500 /* between two comparisons */
/* While the keeper's thread reads the copy: at first, and while it cannot. */
#define POLL_MS 10
#define POLL_SLOWLY_MS 200
#define POLL_SLOWLY_AFTER_MS 1000

int primary_is_left(const struct primary *primary, int64_t since_ms)
{
	struct postgres_server followed = keeper_state().followed;

	return primary->is_open && primary->connected_ms == since_ms && *followed.system &&
	       !server_equals(&followed, &primary->server);
}

void primary_again(struct primary *primary)
{
	primary->asked_ms = 0;
	primary->is_open = 0;
}

enum primary_state primary_step(struct primary *primary, int64_t since_ms, int64_t now_ms)
{
	struct keeper_state keeper = keeper_state();

	if (keeper.relation == RELATION_FOREIGN)
		primary->is_own = 0;
	if (primary->connected_ms != since_ms ||
	    primary->installations_n != keeper.installations_n ||
	    (primary->is_open && (keeper.relation == RELATION_BEHIND || !primary->is_own ||
				  primary_is_left(primary, since_ms)))) {
		primary->connected_ms = since_ms;
		primary->installations_n = keeper.installations_n;
		primary_again(primary);
	}
	if (primary->is_open)
		return PRIMARY_OPEN;
	if (primary->asked_ms == 0) {
		primary->asked_ms = now_ms;
		keeper_copy_ask(primary->keeper);
	} else if (now_ms >= primary->asked_ms &&
		   keeper_copy(&primary->copy) >= primary->asked_ms) {
		return PRIMARY_COUNT;
	}
	return PRIMARY_WAIT;
}

const char *primary_counted(struct primary *primary, const PGresult *rows)
{
	struct changes changes;
	struct standing standing;

	primary->asked_ms += COMPARE_AGAIN_MS;
	keeper_copy_ask(primary->keeper);
	if (PQresultStatus(rows) != PGRES_TUPLES_OK)
		return NULL;
	changes_take(&changes, rows);
	standing = changes_stand(keeper_state().relation, &changes, &primary->copy);
	primary->is_old = standing.relation == RELATION_OLD;
	switch (standing.relation) {
	case RELATION_STANDBY:
		return SERVER_STANDBY_TEXT;
	case RELATION_OLD:
		primary->is_own = 0;
		return RELATION_OLD_TEXT;
	case RELATION_UNKNOWN:
	case RELATION_FOREIGN:
	case RELATION_OTHER:
		primary->is_own = 0;
		return NULL;
	case RELATION_UNADOPTED:
		return NULL;
	case RELATION_OWN:
	case RELATION_BEHIND:
		break;
	}

	/* Compared again, at once, with a copy that is read after Redis was asked to follow it. */
	if (standing.follow != FOLLOW_NONE) {
		if (!server_equals(&changes.server, &primary->asked))
			primary->asked_ms = clock_monotonic_ms();
		primary->asked = changes.server;
		keeper_follow_ask(primary->keeper, &changes, standing.follow);
		return NULL;
	}
	primary->is_own = 1;
	primary->is_open = standing.relation == RELATION_OWN;
	primary->server = changes.server;
	memcpy(primary->installation, changes.installation, INSTALLATION_SIZE);
	return NULL;
}

int64_t primary_deadline_ms(const struct primary *primary, int64_t now_ms)
{
	if (primary->asked_ms > now_ms)
		return primary->asked_ms;
	return now_ms +
	       (now_ms - primary->asked_ms < POLL_SLOWLY_AFTER_MS ? POLL_MS : POLL_SLOWLY_MS);
}
