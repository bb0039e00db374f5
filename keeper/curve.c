#include "keeper/curve.h"

#include "common/clock.h"
#include "common/hash.h"
#include "embed.h"

#include <string.h>

#define SWEEP_MS 900    /* between two sweeps that add rows; curve_add has the same */
#define FAILED_MS 60000 /* after PostgreSQL has refused rows, or Redis the refusals */
#define TIDY_MS 3600000
#define REFUSED_MS 1000

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
	struct curve_coupon *entry =
		&curve->coupons[hash_keyed(&coupon, sizeof(coupon)) % CURVE_COUPONS];

	if (entry->coupon != coupon)
		*entry = (struct curve_coupon){ .coupon = coupon };
	return entry;
}

/* Adds a field "COUPON:ANSWER" and its number; what no gateway has written is left out. */
static void refusal_add(struct curve *curve, struct postgres_array arrays[3], const char *field,
			const redisReply *number)
{
	const char *colon = strchr(field, ':');
	int64_t coupon, num;

	if (!colon || id_parse(field, (size_t)(colon - field), &coupon) ||
	    number_parse(number->str, INT64_MAX, &num))
		return;
	entry_of(curve, coupon)->is_changed = 1;
	postgres_array_add_number(&arrays[0], coupon);
	postgres_array_add_text(&arrays[1], colon + 1, strlen(colon + 1));
	postgres_array_add_number(&arrays[2], num);
}

static int refusals_write(struct curve *curve, struct keeper_context *context,
			  const redisReply *taken)
{
	struct postgres_array arrays[] = { { .type = POSTGRES_INT8 },
					   { .type = POSTGRES_TEXT },
					   { .type = POSTGRES_INT8 } };
	int rc = 0;

	for (size_t i = 0; i + 1 < taken->elements; i += 2) {
		const char *field = taken->element[i]->str;

		if (strcmp(field, "writes") == 0)
			curve->writes += redis_reply_number(taken->element[i + 1]) + 1;
		else
			refusal_add(curve, arrays, field, taken->element[i + 1]);
	}
	if (arrays[0].n > 0 &&
	    keeper_database_run(context->database, sql_query_refusal_add,
				POSTGRES_ARGUMENTS(postgres_array(&arrays[0]),
						   postgres_array(&arrays[1]),
						   postgres_array(&arrays[2]),
						   postgres_number(context->fence))))
		rc = keeper_context_usable(context);
	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
		postgres_array_fini(&arrays[i]);
	return rc;
}

int curve_refused(struct curve *curve, struct keeper_context *context)
{
	static const char *const keys[] = { REFUSED_KEY };
	int64_t now_ms = clock_monotonic_ms();
	redisReply *taken;
	int rc;

	if (now_ms < curve->refused_ms)
		return 0;
	curve->refused_ms = now_ms + REFUSED_MS;
	taken = redis_client_eval(context->redis, lua_refused_take, 1, keys, 0, NULL);
	if (!taken) {
		curve->refused_ms = now_ms + FAILED_MS;
		return redis_client_is_open(context->redis) ? 0 : -1;
	}
	rc = refusals_write(curve, context, taken);
	freeReplyObject(taken);
	return rc;
}

static struct curve_point point_of(const struct coupon_row *row, const struct coupon_look *look)
{
	return (struct curve_point){
		.total = look->total,
		.stock = look->stock,
		.taken = coupon_taken(look),
		.issued = row->issued,
		.settled = row->settled,
	};
}

/* Whether a row of the coupon may be due. That of one that leaves the sweeps is its last. */
static int is_due(struct curve *curve, const struct curve_point *point,
		  const struct coupon_row *row)
{
	const struct curve_coupon *entry = entry_of(curve, row->id);
	int is_time = curve->is_due && clock_monotonic_ms() >= entry->due_ms;

	if (is_time && entry->is_changed)
		return 1;
	if (!is_time && row->status != COUPON_CLOSED)
		return 0;
	if (entry->is_known)
		return memcmp(&entry->told, point, sizeof(*point)) != 0;
	return point->taken > 0 || point->issued > 0 || point->settled > 0;
}

/* What the statement has returned. */
static void told_take(struct curve *curve, const PGresult *rows)
{
	for (int i = 0; i < PQntuples(rows); i++) {
		struct curve_coupon *entry = entry_of(curve, number_at(rows, i, 0));

		entry->is_known = 1;
		entry->is_changed = *PQgetvalue(rows, i, 1) != 't';
		entry->due_ms = clock_monotonic_ms() + number_at(rows, i, 2);
	}
}

int curve_add(struct curve *curve, struct keeper_context *context, const struct coupon_page *page)
{
	struct postgres_array coupons = { .type = POSTGRES_INT8 }, totals = coupons,
			      stocks = coupons, takens = coupons;
	PGresult *rows = NULL;
	int rc = 0;

	if (clock_monotonic_ms() < curve->again_ms)
		return 0;
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
		curve->again_ms = clock_monotonic_ms() + FAILED_MS;
		rc = keeper_context_usable(context);
	}
	PQclear(rows);
	postgres_array_fini(&coupons);
	postgres_array_fini(&totals);
	postgres_array_fini(&stocks);
	postgres_array_fini(&takens);
	return rc;
}
