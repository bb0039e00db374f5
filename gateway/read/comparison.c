#include "gateway/read/comparison.h"

#include "common/clock.h"

#define AGAIN_MS 500
#define AGAIN_EQUAL_MS 5000

static void on_rows(void *context, const PGresult *rows)
{
	struct comparison *comparison = context;
	struct changes changes;
	int is_behind;

	comparison->is_asking = 0;
	if (!rows || comparison_is_due(comparison))
		return;
	changes_take(&changes, rows);
	is_behind = changes_behind(&changes, &comparison->copy) > 0;
	if (!is_behind)
		comparison->due_ms = clock_monotonic_ms() + AGAIN_EQUAL_MS;
	lookup_trust(comparison->lookup, is_behind ? LOOKUP_PUT_BACK : LOOKUP_TRUSTED);
}

static void on_copy(void *context, const redisReply *reply)
{
	struct comparison *comparison = context;

	comparison->is_asking = 0;
	if (!reply || changes_copy_take(&comparison->copy, reply))
		return;
	comparison->is_asking = lookup_changes(comparison->lookup, on_rows, comparison) == 0;
}

int comparison_is_due(const struct comparison *comparison)
{
	return comparison->connects != lookup_connects_n(comparison->lookup);
}

/* First the copy: it must not be newer than what it is compared with. */
void comparison_tick(struct comparison *comparison, int64_t now_ms)
{
	if (comparison->is_asking || !lookup_is_connected(comparison->lookup) ||
	    redis_pool_trouble(comparison->redis))
		return;
	if (!comparison_is_due(comparison) && now_ms < comparison->due_ms)
		return;
	comparison->connects = lookup_connects_n(comparison->lookup);
	comparison->due_ms = now_ms + AGAIN_MS;
	comparison->is_asking = 1;
	redis_query_changes(comparison->redis, on_copy, comparison);
}
