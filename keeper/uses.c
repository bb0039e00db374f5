#include "keeper/uses.h"

#include "common/fault.h"
#include "common/log/log.h"
#include "embed.h"

#include <string.h>

#define FREED_MOST 2000 /* a round */
#define FORGOTTEN_MOST 10000
#define DUE_MOST 100

/*
 * The row of a hold says that it is held until somebody frees it, and its budget has reserved its
 * discount until then.
 */
static int holds_end(struct keeper_context *context)
{
	return keeper_database_run(context->database, sql_query_use_free,
				   POSTGRES_ARGUMENTS(postgres_number(FREED_MOST)))
		       ? keeper_context_failed(context)
		       : 0;
}

/* A copy of a message does not come so late. */
static int refusals_forget(struct keeper_context *context, int64_t keep_s)
{
	return keeper_database_run(context->database, sql_query_use_forget,
				   POSTGRES_ARGUMENTS(postgres_number(keep_s),
						      postgres_number(FORGOTTEN_MOST)))
		       ? keeper_context_failed(context)
		       : 0;
}

/* Each campaign by itself: what a death leaves, or one that is locked, is due in the next round. */
static int budget_move(struct keeper_context *context, const PGresult *due, int row)
{
	int64_t coupon = number_at(due, row, 0);
	int is_open = strcmp(PQgetvalue(due, row, 1), "published") == 0, moved;

	if (keeper_context_goes_on(context) ||
	    keeper_context_change(context, sql_query_budget_pause,
				  POSTGRES_ARGUMENTS(postgres_number(coupon),
						     postgres_number(context->fence)),
				  &moved))
		return -1;
	if (moved)
		log_info(is_open ? "coupon_budget_spent" : "coupon_budget_left",
			 LOG_I("coupon", coupon));
	return 0;
}

int keeper_uses_round(struct keeper_context *context, int64_t keep_s)
{
	PGresult *due;
	int rc = 0;

	if (holds_end(context))
		return -1;
	fault_point(FAULT_KEEPER_HOLDS_ENDED);
	if (refusals_forget(context, keep_s))
		return -1;
	due = keeper_database_query(context->database, sql_query_budget_due,
				    POSTGRES_ARGUMENTS(postgres_number(DUE_MOST)));
	if (!due)
		return keeper_context_failed(context);
	for (int row = 0; rc == 0 && row < PQntuples(due); row++)
		rc = budget_move(context, due, row);
	PQclear(due);
	return rc;
}
