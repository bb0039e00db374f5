#include "keeper/rebuild/snapshot.h"

#include "common/number.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run(struct snapshot *snapshot, const char *sql)
{
	PGresult *result = keeper_database_ask(snapshot->database, sql, 0, NULL);

	PQclear(result);
	return result ? 0 : -1;
}

static PGresult *ask(struct snapshot *snapshot, const char *sql)
{
	char coupon[NUMBER_SIZE];
	const char *const values[] = { coupon };

	snprintf(coupon, sizeof(coupon), "%" PRId64, snapshot->row.id);
	return keeper_database_ask(snapshot->database, sql, 1, values);
}

static int64_t number_at(const PGresult *result, int row, int column)
{
	return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

static int coupon_read(struct snapshot *snapshot)
{
	PGresult *result = ask(snapshot, sql_query_rebuild_coupon);
	int rc = result && PQntuples(result) == 1 ? 0 : -1;

	if (rc == 0) {
		keeper_database_row(result, 0, &snapshot->row);
		snapshot->late = number_at(result, 0, 16);
		snapshot->late_kept = number_at(result, 0, 17);
		snapshot->unreleased = number_at(result, 0, 18);
	}
	PQclear(result);
	return rc;
}

static int generations_read(struct snapshot *snapshot)
{
	PGresult *result = ask(snapshot, sql_query_coupon_generation_page);
	int rows, first;

	if (!result)
		return -1;
	rows = PQntuples(result);
	/* Of one that old nothing can be on its way any more. */
	first = rows > SNAPSHOT_GENERATIONS_MAX ? rows - SNAPSHOT_GENERATIONS_MAX : 0;
	for (int i = first; i < rows; i++)
		snapshot->generations[snapshot->generations_n++] = (struct snapshot_generation){
			number_at(result, i, 0), number_at(result, i, 1), number_at(result, i, 2)
		};
	PQclear(result);
	return 0;
}

static int rows_declare(struct snapshot *snapshot)
{
	PGresult *result = ask(snapshot, sql_query_rebuild_rows);

	PQclear(result);
	return result ? 0 : -1;
}

int snapshot_begin(struct snapshot *snapshot, struct keeper_database *database, int64_t coupon,
		   int (*waiting)(void *context), void *context)
{
	*snapshot = (struct snapshot){ .database = database, .row.id = coupon };
	keeper_database_patient(database, waiting, context);
	if (run(snapshot, sql_query_rebuild_begin) || run(snapshot, sql_query_rebuild_patience))
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

int snapshot_rows(struct snapshot *snapshot)
{
	return page_take(snapshot,
			 keeper_database_ask(snapshot->database, sql_query_rebuild_fetch, 0, NULL));
}

int snapshot_rejected(struct snapshot *snapshot, const char *batches)
{
	char coupon[NUMBER_SIZE];
	const char *const values[] = { coupon, batches };

	snprintf(coupon, sizeof(coupon), "%" PRId64, snapshot->row.id);
	return page_take(snapshot, keeper_database_ask(snapshot->database,
						       sql_query_rebuild_rejected, 2, values));
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
	PQclear(snapshot->page);
	snapshot->page = NULL;
	keeper_database_patient(snapshot->database, NULL, NULL);
	run(snapshot, sql_query_rebuild_end); /* on a dropped connection: nothing */
}
