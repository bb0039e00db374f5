/* What the loop counts, and the line that tells it. One thread. */
#ifndef WORKER_STATS_H
#define WORKER_STATS_H

#include <stdint.h>

#define STATS_EVERY_MS 60000

struct stats {
#define STAT(name, help) int64_t name;
#include "worker/stats_table.h"
#undef STAT
	int64_t told_ms; /* when the line was last written */
	int64_t told_sum;
};

/*
 * Writes the line when something has changed since the last one, and that was STATS_EVERY_MS ago.
 */
void stats_step(struct stats *stats, int64_t now_ms);
void stats_tell(struct stats *stats);

#endif
