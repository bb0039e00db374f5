#include "gateway/read/lane.h"

#include "common/check.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

static struct postgres_argument argument_keep(struct lane_query *query,
					      const struct postgres_argument *argument)
{
	switch (argument->kind) {
	case POSTGRES_OF_TEXT:
		return postgres_text(argument->text ? strdup(argument->text) : NULL);
	case POSTGRES_OF_ARRAY:
		query->array = *argument->array;
		return postgres_array(&query->array);
	case POSTGRES_OF_NUMBER:
		break;
	}
	return *argument;
}

struct lane_query *lane_query_new(const char *sql, int n, const struct postgres_argument *arguments,
				  lookup_fn *done, void *context)
{
	struct lane_query *query = calloc(1, sizeof(*query));

	check(query != NULL && n <= LANE_ARGUMENTS_MAX);
	query->sql = sql;
	query->n = n;
	for (int i = 0; i < n; i++)
		query->arguments[i] = argument_keep(query, &arguments[i]);
	query->done = done;
	query->context = context;
	query->queued_ms = clock_monotonic_ms();
	return query;
}

void lane_query_free(struct lane_query *query)
{
	for (int i = 0; i < query->n; i++)
		free((char *)query->arguments[i].text);
	postgres_array_fini(&query->array);
	free(query);
}

void lane_init(struct lane *lane, size_t max)
{
	*lane = (struct lane){ .max = max };
	STAILQ_INIT(&lane->queries);
	STAILQ_INIT(&lane->coupons);
}

size_t lane_waiting(const struct lane *lane)
{
	return lane->queries_n + HASH_COUNT(lane->by_id);
}

int lane_add(struct lane *lane, struct lane_query *query)
{
	if (lane->queries_n >= lane->max) {
		lane_query_free(query);
		return -1;
	}
	lane->queries_n++;
	STAILQ_INSERT_TAIL(&lane->queries, query, next);
	return 0;
}

struct lane_query *lane_take(struct lane *lane, int64_t before_ms)
{
	struct lane_query *query = STAILQ_FIRST(&lane->queries);

	if (!query || query->queued_ms >= before_ms)
		return NULL;
	STAILQ_REMOVE_HEAD(&lane->queries, next);
	lane->queries_n--;
	return query;
}

static struct coupon_entry *entry_new(struct lane *lane, int64_t coupon, int64_t now_ms)
{
	struct coupon_entry *entry = calloc(1, sizeof(*entry));

	check(entry != NULL);
	entry->id = coupon;
	entry->queued_ms = now_ms;
	STAILQ_INIT(&entry->askers);
	HASH_ADD(hh, lane->by_id, id, sizeof(entry->id), entry);
	STAILQ_INSERT_TAIL(&lane->coupons, entry, next);
	return entry;
}

int lane_add_coupon(struct lane *lane, int64_t coupon, int64_t now_ms, lookup_coupon_fn *done,
		    void *context)
{
	struct coupon_asker *asker;
	struct coupon_entry *entry;

	HASH_FIND(hh, lane->by_id, &coupon, sizeof(coupon), entry);
	if (!entry && HASH_COUNT(lane->by_id) >= lane->max)
		return -1;
	if (!entry)
		entry = entry_new(lane, coupon, now_ms);
	asker = malloc(sizeof(*asker));
	check(asker != NULL);
	*asker = (struct coupon_asker){ .done = done, .context = context };
	STAILQ_INSERT_TAIL(&entry->askers, asker, next);
	return 0;
}

void lane_take_coupons(struct lane *lane, size_t n, int64_t before_ms, struct coupon_list *to)
{
	struct coupon_entry *entry;

	while (n-- > 0 && (entry = STAILQ_FIRST(&lane->coupons)) && entry->queued_ms < before_ms) {
		STAILQ_REMOVE_HEAD(&lane->coupons, next);
		HASH_DELETE(hh, lane->by_id, entry);
		STAILQ_INSERT_TAIL(to, entry, next);
	}
}

/* The row of a coupon, or -1. */
static int row_find(const PGresult *rows, int64_t coupon)
{
	int column = PQfnumber(rows, "id");

	for (int row = 0; row < PQntuples(rows); row++)
		if (strtoll(PQgetvalue(rows, row, column), NULL, 10) == coupon)
			return row;
	return -1;
}

static void entry_end(struct coupon_entry *entry, const PGresult *rows)
{
	int row = rows ? row_find(rows, entry->id) : -1;
	struct coupon_asker *asker;

	while ((asker = STAILQ_FIRST(&entry->askers))) {
		STAILQ_REMOVE_HEAD(&entry->askers, next);
		asker->done(asker->context, rows, row);
		free(asker);
	}
	free(entry);
}

void coupon_list_end(struct coupon_list *list, const PGresult *rows)
{
	struct coupon_entry *entry;

	while ((entry = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		entry_end(entry, rows);
	}
}
