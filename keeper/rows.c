#include "keeper/rows.h"

#include "common/check.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t number_at(const PGresult *result, int row, int column)
{
	return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

static enum coupon_status status_parse(const char *text)
{
	if (strcmp(text, "published") == 0)
		return COUPON_OPEN;
	return strcmp(text, "paused") == 0 ? COUPON_PAUSED : COUPON_CLOSED;
}

void rows_read(const PGresult *result, int i, struct coupon_row *row)
{
	*row = (struct coupon_row){
		.id = number_at(result, i, 0),
		.status = status_parse(PQgetvalue(result, i, 1)),
		.version = number_at(result, i, 2),
		.total = number_at(result, i, 3),
		.issued = number_at(result, i, 4),
		.limit = number_at(result, i, 5),
		.begin_ms = number_at(result, i, 6),
		.end_ms = number_at(result, i, 7),
		.generation = number_at(result, i, 8),
		.seq_seen = number_at(result, i, 9),
		.settled = number_at(result, i, 10),
		.rebuild_asked = number_at(result, i, 11),
		.rebuild_done = number_at(result, i, 12),
		.pending = *PQgetvalue(result, i, 13) == 't',
		.is_settled = *PQgetvalue(result, i, 14) == 't',
		.late = *PQgetvalue(result, i, 15) == 't',
		.revocation = number_at(result, i, 16),
	};
}

static void rows_take(const PGresult *result, struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	*n = (size_t)PQntuples(result);
	check(*n <= KEEPER_PAGE);
	for (int i = 0; i < (int)*n; i++)
		rows_read(result, i, &rows[i]);
}

static int page_query(struct keeper_database *database, int64_t after,
		      const struct postgres_array *ids, struct coupon_row rows[KEEPER_PAGE],
		      size_t *n)
{
	const struct postgres_argument arguments[] = { postgres_number(after),
						       postgres_number(KEEPER_PAGE),
						       ids ? postgres_array(ids)
							   : postgres_text(NULL) };
	PGresult *result = keeper_database_query(database, sql_query_coupon_page, 3, arguments);

	if (!result)
		return -1;
	rows_take(result, rows, n);
	PQclear(result);
	return 0;
}

int rows_page(struct keeper_database *database, int64_t after, struct coupon_row rows[KEEPER_PAGE],
	      size_t *n)
{
	return page_query(database, after, NULL, rows, n);
}

int rows_of(struct keeper_database *database, const int64_t *ids, size_t ids_n,
	    struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	struct postgres_array array;
	int rc;

	check(ids_n <= KEEPER_PAGE);
	postgres_array_init(&array, POSTGRES_INT8);
	for (size_t i = 0; i < ids_n; i++)
		postgres_array_add_number(&array, ids[i]);
	rc = page_query(database, 0, &array, rows, n);
	postgres_array_fini(&array);
	return rc;
}

int rows_expiring(struct keeper_database *database, struct keeper_expiring *after,
		  struct coupon_row rows[KEEPER_PAGE], size_t *n)
{
	const struct postgres_argument arguments[] = { postgres_text(after->at),
						       postgres_number(after->coupon),
						       postgres_number(KEEPER_PAGE) };
	PGresult *result = keeper_database_query(database, sql_query_coupon_expiring_page, 3,
						 arguments);

	if (!result)
		return -1;
	*n = (size_t)PQntuples(result);
	check(*n <= KEEPER_PAGE);
	for (int i = 0; i < (int)*n; i++)
		rows[i] = (struct coupon_row){ .id = number_at(result, i, 0),
					       .status = COUPON_CLOSED,
					       .generation = number_at(result, i, 1),
					       .seq_seen = number_at(result, i, 2),
					       .is_settled = 1 };
	if (*n > 0) {
		after->coupon = rows[*n - 1].id;
		snprintf(after->at, sizeof(after->at), "%s", PQgetvalue(result, (int)*n - 1, 3));
	}
	PQclear(result);
	return 0;
}
