#include "keeper/curve.h"

#include "common/clock.h"
#include "embed.h"

#include <string.h>

#define SWEEP_MS 900    /* between two sweeps that add rows; curve_add has the same */
#define FAILED_MS 60000 /* after a statement that PostgreSQL has refused */
#define TIDY_MS 3600000

void curve_begin(struct curve *curve, struct keeper_context *context)
{
	int64_t now_ms = clock_monotonic_ms();

	curve->is_due = now_ms >= curve->due_ms;
	if (curve->is_due)
		curve->due_ms = now_ms + SWEEP_MS;
	if (now_ms < curve->tidy_ms)
		return;
	curve->tidy_ms = now_ms + TIDY_MS;
	keeper_database_run(context->database, sql_query_curve_expire, 0, NULL);
}

static struct curve_coupon *entry_of(struct curve *curve, int64_t coupon)
{
	struct curve_coupon *entry = &curve->coupons[coupon % CURVE_COUPONS];

	if (entry->coupon != coupon)
		*entry = (struct curve_coupon){ .coupon = coupon };
	return entry;
}

static struct curve_point point_of(const struct coupon_row *row, const struct coupon_look *look)
{
	return (struct curve_point){
		.total = look->total,
		.stock = look->stock,
		.taken = look->total - look->stock - look->reserved - look->lost,
		.issued = row->issued,
		.settled = row->settled,
	};
}

/* Whether a row of the coupon may be due. That of one that leaves the sweeps is its last. */
static int is_due(struct curve *curve, const struct curve_point *point,
		  const struct coupon_row *row)
{
	const struct curve_coupon *entry = entry_of(curve, row->id);

	if (row->status != COUPON_CLOSED &&
	    (!curve->is_due || clock_monotonic_ms() < entry->due_ms))
		return 0;
	if (entry->is_told)
		return memcmp(&entry->told, point, sizeof(*point)) != 0;
	return point->taken > 0 || point->issued > 0 || point->settled > 0;
}

/* What the statement has returned. */
static void told_take(struct curve *curve, const PGresult *rows)
{
	for (int i = 0; i < PQntuples(rows); i++) {
		struct curve_coupon *entry = entry_of(curve, number_at(rows, i, 0));

		entry->is_told = *PQgetvalue(rows, i, 1) == 't';
		entry->due_ms = clock_monotonic_ms() + number_at(rows, i, 2);
	}
}

int curve_add(struct curve *curve, struct keeper_context *context, const struct coupon_page *page)
{
	struct postgres_array coupons = { .type = POSTGRES_INT8 }, totals = coupons,
			      stocks = coupons, takens = coupons;
	PGresult *rows = NULL;
	int rc = 0;

	for (size_t i = 0; i < page->n; i++) {
		const struct coupon_row *row = &page->rows[i];
		const struct coupon_look *look = &page->looks[i];
		struct curve_point point = point_of(row, look);

		if (!coupon_is_verified(row, look, context->run_id) || !is_due(curve, &point, row))
			continue;
		*entry_of(curve, row->id) = (struct curve_coupon){ .coupon = row->id,
								   .told = point };
		postgres_array_add_number(&coupons, row->id);
		postgres_array_add_number(&totals, point.total);
		postgres_array_add_number(&stocks, point.stock);
		postgres_array_add_number(&takens, point.taken);
	}
	if (coupons.n > 0)
		rows = keeper_database_query(context->database, sql_query_curve_add,
					     POSTGRES_ARGUMENTS(postgres_array(&coupons),
								postgres_array(&totals),
								postgres_array(&stocks),
								postgres_array(&takens),
								postgres_number(context->fence)));
	if (rows) {
		told_take(curve, rows);
	} else if (coupons.n > 0) {
		curve->due_ms = clock_monotonic_ms() + FAILED_MS;
		rc = keeper_context_usable(context);
	}
	PQclear(rows);
	postgres_array_fini(&coupons);
	postgres_array_fini(&totals);
	postgres_array_fini(&stocks);
	postgres_array_fini(&takens);
	return rc;
}
