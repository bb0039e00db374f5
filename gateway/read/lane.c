#include "gateway/read/lane.h"

#include "common/check.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

struct lane_asker {
	STAILQ_ENTRY(lane_asker) next;
	lookup_coupon_fn *done;
	void *context;
};

void lane_init(struct lane *lane, size_t max)
{
	*lane = (struct lane){ .max = max };
	STAILQ_INIT(&lane->entries);
}

static struct lane_entry *entry_new(void)
{
	struct lane_entry *entry = calloc(1, sizeof(*entry));

	check(entry != NULL);
	entry->queued_ms = clock_monotonic_ms();
	STAILQ_INIT(&entry->askers);
	return entry;
}

static void entry_put(struct lane *lane, struct lane_entry *entry)
{
	STAILQ_INSERT_TAIL(&lane->entries, entry, next);
	lane->n++;
}

static void entry_free(struct lane_entry *entry)
{
	for (int i = 0; i < entry->n; i++)
		free((char *)entry->arguments[i].text);
	postgres_array_fini(&entry->array);
	free(entry);
}

static struct postgres_argument argument_keep(struct lane_entry *entry,
					      const struct postgres_argument *argument)
{
	char *text;

	switch (argument->kind) {
	case POSTGRES_OF_TEXT:
		text = argument->text ? strdup(argument->text) : NULL;
		check(text || !argument->text);
		return postgres_text(text);
	case POSTGRES_OF_ARRAY:
		entry->array = *argument->array;
		return postgres_array(&entry->array);
	case POSTGRES_OF_NUMBER:
		break;
	}
	return *argument;
}

int lane_add(struct lane *lane, const char *sql, int n, const struct postgres_argument *arguments,
	     lookup_fn *done, void *context)
{
	struct lane_entry *entry = entry_new();

	check(n <= LANE_ARGUMENTS_MAX);
	entry->sql = sql;
	entry->n = n;
	for (int i = 0; i < n; i++)
		entry->arguments[i] = argument_keep(entry, &arguments[i]);
	entry->done = done;
	entry->context = context;
	if (lane->n >= lane->max) {
		entry_free(entry);
		return -1;
	}
	entry_put(lane, entry);
	return 0;
}

int lane_add_coupon(struct lane *lane, int64_t coupon, lookup_coupon_fn *done, void *context)
{
	struct lane_asker *asker;
	struct lane_entry *entry;

	HASH_FIND(hh, lane->by_coupon, &coupon, sizeof(coupon), entry);
	if (!entry && lane->n >= lane->max)
		return -1;
	if (!entry) {
		entry = entry_new();
		entry->coupon = coupon;
		entry_put(lane, entry);
		HASH_ADD(hh, lane->by_coupon, coupon, sizeof(entry->coupon), entry);
	}
	asker = malloc(sizeof(*asker));
	check(asker != NULL);
	*asker = (struct lane_asker){ .done = done, .context = context };
	STAILQ_INSERT_TAIL(&entry->askers, asker, next);
	return 0;
}

size_t lane_take(struct lane *lane, size_t n, int64_t before_ms, struct lane_list *to)
{
	struct lane_entry *entry;
	size_t taken = 0;

	while (taken < n && (entry = STAILQ_FIRST(&lane->entries)) &&
	       entry->queued_ms < before_ms) {
		STAILQ_REMOVE_HEAD(&lane->entries, next);
		if (!entry->sql)
			HASH_DELETE(hh, lane->by_coupon, entry);
		STAILQ_INSERT_TAIL(to, entry, next);
		lane->n--;
		taken++;
	}
	return taken;
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

static void coupon_end(struct lane_entry *entry, const PGresult *rows)
{
	int row = rows ? row_find(rows, entry->coupon) : -1;
	struct lane_asker *asker;

	while ((asker = STAILQ_FIRST(&entry->askers))) {
		STAILQ_REMOVE_HEAD(&entry->askers, next);
		asker->done(asker->context, rows, row);
		free(asker);
	}
}

void lane_list_end(struct lane_list *list, const PGresult *rows)
{
	struct lane_entry *entry;

	while ((entry = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		if (entry->sql)
			entry->done(entry->context, rows);
		else
			coupon_end(entry, rows);
		entry_free(entry);
	}
}
