#include "gateway/read/coupon_queue.h"

#include "common/check.h"

#include <stdlib.h>

void coupon_queue_init(struct coupon_queue *queue, size_t max)
{
	*queue = (struct coupon_queue){ .max = max };
	STAILQ_INIT(&queue->waiting);
}

int coupon_queue_is_empty(const struct coupon_queue *queue)
{
	return STAILQ_EMPTY(&queue->waiting);
}

static struct coupon_entry *entry_new(struct coupon_queue *queue, int64_t coupon, int64_t now_ms)
{
	struct coupon_entry *entry = calloc(1, sizeof(*entry));

	check(entry != NULL);
	entry->id = coupon;
	entry->queued_ms = now_ms;
	STAILQ_INIT(&entry->askers);
	HASH_ADD(hh, queue->by_id, id, sizeof(entry->id), entry);
	STAILQ_INSERT_TAIL(&queue->waiting, entry, next);
	return entry;
}

int coupon_queue_add(struct coupon_queue *queue, int64_t coupon, int64_t now_ms,
		     lookup_coupon_fn *done, void *context)
{
	struct coupon_asker *asker;
	struct coupon_entry *entry;

	HASH_FIND(hh, queue->by_id, &coupon, sizeof(coupon), entry);
	if (!entry && HASH_COUNT(queue->by_id) >= queue->max)
		return -1;
	if (!entry)
		entry = entry_new(queue, coupon, now_ms);
	asker = malloc(sizeof(*asker));
	check(asker != NULL);
	*asker = (struct coupon_asker){ .done = done, .context = context };
	STAILQ_INSERT_TAIL(&entry->askers, asker, next);
	return 0;
}

void coupon_queue_take(struct coupon_queue *queue, size_t n, int64_t before_ms,
		       struct coupon_list *to)
{
	struct coupon_entry *entry;

	while (n-- > 0 && (entry = STAILQ_FIRST(&queue->waiting)) && entry->queued_ms < before_ms) {
		STAILQ_REMOVE_HEAD(&queue->waiting, next);
		HASH_DELETE(hh, queue->by_id, entry);
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
