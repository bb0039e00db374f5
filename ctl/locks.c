#include "ctl/locks.h"

#include "embed.h"

#include <stdio.h>
#include <string.h>

static int64_t since_ms(const struct locks *locks, const char *transaction, int64_t now_ms)
{
	for (size_t i = 0; i < locks->n; i++)
		if (strcmp(locks->held[i].transaction, transaction) == 0)
			return locks->held[i].since_ms;
	return now_ms;
}

int64_t locks_look(struct locks *locks, struct db *db, int64_t now_ms)
{
	PGresult *result = db_query(db, sql_query_audit_locks, 0, NULL);
	struct locks now = { .n = 0 };
	int64_t longest_ms = 0;

	for (int row = 0; row < PQntuples(result) && now.n < LOCKS_MAX; row++, now.n++) {
		const char *transaction = db_text(result, row, "holder");

		snprintf(now.held[now.n].transaction, sizeof(now.held[0].transaction), "%s",
			 transaction);
		now.held[now.n].since_ms = since_ms(locks, transaction, now_ms);
		if (now_ms - now.held[now.n].since_ms > longest_ms)
			longest_ms = now_ms - now.held[now.n].since_ms;
	}
	PQclear(result);
	*locks = now;
	return longest_ms >= LOCKS_OPEN_MS ? longest_ms : 0;
}

int locks_workers_hold(struct db *db)
{
	PGresult *result = db_query(db, sql_query_audit_workers, 0, NULL);
	int hold = db_int(result, 0, "hold_num") > 0;

	PQclear(result);
	return hold;
}
