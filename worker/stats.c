#include "worker/stats.h"

#include "common/log.h"

static int64_t sum(const struct stats *stats)
{
	return 0
#define STAT(name, help) +stats->name
#include "worker/stats_table.h"
#undef STAT
		;
}

void stats_tell(struct stats *stats)
{
	const struct log_field fields[] = {
#define STAT(name, help) LOG_I(#name, stats->name),
#include "worker/stats_table.h"
#undef STAT
		{ 0 }
	};

	log_event(LOG_LEVEL_INFO, "stats", fields);
}

void stats_step(struct stats *stats, int64_t now_ms)
{
	if (now_ms - stats->told_ms < STATS_EVERY_MS)
		return;
	stats->told_ms = now_ms;
	if (sum(stats) == stats->told_sum)
		return;
	stats->told_sum = sum(stats);
	stats_tell(stats);
}
