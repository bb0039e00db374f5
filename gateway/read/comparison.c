#include "gateway/read/comparison.h"

#include "common/clock.h"

#define AGAIN_MS 500
#define AGAIN_EQUAL_MS 5000

static void on_rows(void *context, const PGresult *rows)
{
	struct comparison *comparison = context;
	struct changes changes;

	comparison->is_asking = 0;
	if (!rows)
		return;
	changes_take(&changes, rows);
	comparison->is_behind = changes_behind(&changes, &comparison->copy) > 0;
	comparison->is_equal = !comparison->is_behind;
}

static void on_copy(void *context, const redisReply *reply)
{
	struct comparison *comparison = context;

	comparison->is_asking = 0;
	if (!reply || changes_copy_take(&comparison->copy, reply))
		return;
	comparison->is_asking = lookup_changes(comparison->lookup, comparison->is_equal, on_rows,
					       comparison) == 0;
}

/* First the copy: it must not be newer than what it is compared with. */
static void begin(struct comparison *comparison)
{
	comparison->is_asking = 1;
	redis_query_changes(comparison->redis, on_copy, comparison);
}

void comparison_tick(struct comparison *comparison, int64_t now_ms)
{
	uint64_t connects = lookup_connects_n(comparison->lookup);

	if (comparison->is_asking)
		return;
	if (connects != comparison->connects) {
		comparison->connects = connects;
		comparison->is_equal = 0;
		comparison->due_ms = now_ms;
	}
	if (now_ms < comparison->due_ms || lookup_trouble(comparison->lookup) ||
	    redis_pool_trouble(comparison->redis))
		return;
	comparison->due_ms = now_ms + (comparison->is_equal ? AGAIN_EQUAL_MS : AGAIN_MS);
	begin(comparison);
}

int comparison_is_good(const struct comparison *comparison)
{
	return comparison->is_equal &&
	       comparison->connects == lookup_connects_n(comparison->lookup);
}

const char *comparison_trouble(const struct comparison *comparison)
{
	if (comparison_is_good(comparison))
		return NULL;
	return comparison->is_behind ? "put back to an earlier moment; run couponctl recover"
				     : "not yet compared with its copy in Redis";
}
