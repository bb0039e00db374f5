#include "keeper/rebuild/snapshot.h"

#include "common/check.h"
#include "common/message/number.h"
#include "embed.h"

#include <stdlib.h>
#include <string.h>

static PGresult *coupon_query(struct snapshot *snapshot, const char *sql)
{
	const struct postgres_argument coupon = postgres_number(snapshot->row.id);

	return keeper_database_query(snapshot->database, sql, 1, &coupon);
}

static int64_t number_at(const PGresult *result, int row, int column)
{
	return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

static int coupon_read(struct snapshot *snapshot)
{
	struct postgres_array ids = { .type = POSTGRES_INT8 };
	const struct postgres_argument argument = postgres_array(&ids);
	PGresult *result;
	int rc;

	postgres_array_add_number(&ids, snapshot->row.id);
	result = keeper_database_query(snapshot->database, sql_query_rebuild_coupon, 1, &argument);
	postgres_array_fini(&ids);
	rc = result && PQntuples(result) == 1 ? 0 : -1;

	if (rc == 0) {
		coupon_row_read(result, 0, &snapshot->row);
		snapshot->late = number_at(result, 0, 17);
		snapshot->late_kept = number_at(result, 0, 18);
		snapshot->unreleased = number_at(result, 0, 19);
		snapshot->tombstone = *PQgetvalue(result, 0, 20) == 't';
	}
	PQclear(result);
	return rc;
}

static int generations_read(struct snapshot *snapshot)
{
	PGresult *result = coupon_query(snapshot, sql_query_coupon_generation_page);
	int rows;

	if (!result)
		return -1;
	rows = PQntuples(result);
	snapshot->generations = calloc((size_t)rows + 1, sizeof(*snapshot->generations));
	check(snapshot->generations != NULL);
	for (int i = 0; i < rows; i++)
		snapshot->generations[snapshot->generations_n++] = (struct snapshot_generation){
			.number = number_at(result, i, 0),
			.seq_seen = number_at(result, i, 1),
			.settled = number_at(result, i, 2),
		};
	PQclear(result);
	return 0;
}

static int rows_declare(struct snapshot *snapshot)
{
	PGresult *result = coupon_query(snapshot, sql_query_rebuild_rows);

	PQclear(result);
	return result ? 0 : -1;
}

int snapshot_begin(struct snapshot *snapshot, struct keeper_database *database, int64_t coupon,
		   int (*waiting)(void *context), void *context)
{
	*snapshot = (struct snapshot){ .database = database, .row.id = coupon };
	keeper_database_patient(database, waiting, context);
	if (keeper_database_run(database, sql_query_rebuild_begin, 0, NULL) ||
	    keeper_database_run(database, sql_query_rebuild_patience, 0, NULL))
		return -1;
	return coupon_read(snapshot) || generations_read(snapshot) || rows_declare(snapshot) ? -1
											     : 0;
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
	const struct postgres_argument arguments[] = { postgres_number(snapshot->row.id),
						       postgres_number(above) };
	PGresult *result = keeper_database_query(snapshot->database, sql_query_rebuild_revoked, 2,
						 arguments);

	PQclear(result);
	return result ? 0 : -1;
}

int snapshot_revoked(struct snapshot *snapshot)
{
	return page_take(snapshot, keeper_database_query(snapshot->database,
							 sql_query_rebuild_fetch_revoked, 0, NULL));
}

int snapshot_rejected(struct snapshot *snapshot, const struct postgres_array *batches)
{
	const struct postgres_argument arguments[] = { postgres_number(snapshot->row.id),
						       postgres_array(batches) };

	return page_take(snapshot, keeper_database_query(snapshot->database,
							 sql_query_rebuild_rejected, 2, arguments));
}

int snapshot_is_rejected(const struct snapshot *snapshot, const struct ulid *batch, int index)
{
	char uuid[ULID_UUID_SIZE];

	ulid_to_uuid(batch, uuid);
	for (int row = 0; row < PQntuples(snapshot->page); row++)
		if (number_at(snapshot->page, row, 1) == index &&
		    strcmp(PQgetvalue(snapshot->page, row, 0), uuid) == 0)
			return 1;
	return 0;
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
	keeper_database_run(snapshot->database, sql_query_rebuild_end, 0,
			    NULL); /* no effect on a dropped connection */
	snapshot->database = NULL;
}

void snapshot_fini(struct snapshot *snapshot)
{
	free(snapshot->generations);
	snapshot->generations = NULL;
	snapshot->generations_n = 0;
}
