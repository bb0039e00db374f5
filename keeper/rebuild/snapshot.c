#include "keeper/rebuild/snapshot.h"

#include "embed.h"

#include <stdlib.h>
#include <string.h>

void snapshot_row_read(struct snapshot *snapshot, const PGresult *rows, int i)
{
	coupon_row_read(rows, i, &snapshot->row);
	snapshot->late = number_at(rows, i, 17);
	snapshot->unreleased = number_at(rows, i, 18);
	snapshot->has_rejected = *PQgetvalue(rows, i, 19) == 't';
}

static int coupon_read(struct snapshot *snapshot)
{
	PGresult *result = keeper_database_coupons(snapshot->database, sql_query_rebuild_coupon,
						   &snapshot->row.id, 1);
	int rc = result && PQntuples(result) == 1 ? 0 : -1;

	if (rc == 0)
		snapshot_row_read(snapshot, result, 0);
	PQclear(result);
	return rc;
}

static int older_read(struct snapshot *snapshot)
{
	PGresult *result = keeper_database_coupons(snapshot->database,
						   sql_query_rebuild_generations, &snapshot->row.id,
						   1);

	for (int i = 0; result && i < PQntuples(result); i++)
		generation_add_row(&snapshot->generations, result, i, 1);
	PQclear(result);
	return result ? 0 : -1;
}

static int waiting(void *context)
{
	return keeper_context_goes_on(context);
}

int snapshot_begin(struct snapshot *snapshot, struct keeper_context *context,
		   struct keeper_database *database, int64_t coupon)
{
	*snapshot = (struct snapshot){ .database = database, .row.id = coupon };
	keeper_database_patient(database, waiting, context);
	if (keeper_database_run(database, sql_query_rebuild_begin, 0, NULL) ||
	    keeper_database_run(database, sql_query_rebuild_patience, 0, NULL) ||
	    coupon_read(snapshot) || older_read(snapshot))
		return -1;
	return keeper_database_run(database, sql_query_rebuild_rows,
				   POSTGRES_ARGUMENTS(postgres_number(coupon)));
}

static int page_take(struct snapshot *snapshot, PGresult *page)
{
	PQclear(snapshot->page);
	snapshot->page = page;
	return page ? 0 : -1;
}

int snapshot_rows_ask(struct snapshot *snapshot)
{
	snapshot->is_ahead = keeper_database_send(snapshot->database, sql_query_rebuild_fetch, 0,
						  NULL) == 0;
	return snapshot->is_ahead ? 0 : -1;
}

int snapshot_rows(struct snapshot *snapshot)
{
	if (!snapshot->is_ahead && snapshot_rows_ask(snapshot))
		return -1;
	snapshot->is_ahead = 0;
	if (page_take(snapshot, keeper_database_take(snapshot->database)))
		return -1;
	return PQntuples(snapshot->page) > 0 ? snapshot_rows_ask(snapshot) : 0;
}

int snapshot_revoked_begin(struct snapshot *snapshot, int64_t above)
{
	return keeper_database_run(snapshot->database, sql_query_rebuild_revoked,
				   POSTGRES_ARGUMENTS(postgres_number(snapshot->row.id),
						      postgres_number(above)));
}

int snapshot_revoked(struct snapshot *snapshot)
{
	return page_take(snapshot, keeper_database_query(snapshot->database,
							 sql_query_rebuild_fetch_revoked, 0, NULL));
}

int snapshot_rejected(struct snapshot *snapshot, const struct slot *slots, size_t n)
{
	struct postgres_array batches = { .type = POSTGRES_UUID };
	int rc;

	if (!snapshot->has_rejected || n == 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		postgres_array_add_uuid(&batches, &slots[i].batch);
	rc = page_take(snapshot,
		       keeper_database_query(snapshot->database, sql_query_rebuild_rejected,
					     POSTGRES_ARGUMENTS(postgres_number(snapshot->row.id),
								postgres_array(&batches))));
	postgres_array_fini(&batches);
	return rc;
}

int snapshot_is_rejected(const struct snapshot *snapshot, const struct slot *slot)
{
	char uuid[ULID_UUID_SIZE];

	if (!snapshot->has_rejected)
		return 0;
	ulid_to_uuid(&slot->batch, uuid);
	for (int row = 0; row < PQntuples(snapshot->page); row++)
		if (number_at(snapshot->page, row, 1) == slot->index &&
		    strcmp(PQgetvalue(snapshot->page, row, 0), uuid) == 0)
			return 1;
	return 0;
}

void snapshot_raise(struct snapshot *snapshot, int64_t generation, int64_t high)
{
	for (size_t i = 0; i < snapshot->generations.n; i++)
		if (snapshot->generations.list[i].number == generation)
			generation_raise(&snapshot->generations, generation, high);
}

void snapshot_end(struct snapshot *snapshot)
{
	if (!snapshot->database)
		return;
	PQclear(snapshot->page);
	snapshot->page = NULL;
	if (snapshot->is_ahead)
		PQclear(keeper_database_take(snapshot->database));
	snapshot->is_ahead = 0;
	keeper_database_patient(snapshot->database, NULL, NULL);
	/* No effect on a dropped connection. */
	keeper_database_run(snapshot->database, sql_query_rebuild_end, 0, NULL);
	snapshot->database = NULL;
}
