/*
 * The counters of the worker's loop, as metrics and as the log line `stats`. The loop writes them;
 * any thread may read the metrics.
 */
#ifndef WORKER_METRICS_H
#define WORKER_METRICS_H

#include <stddef.h>
#include <stdint.h>

struct evbuffer;

#define STATS_EVERY_MS 60000

/* The loop's own counters. */
struct stats {
#define STAT(name, help) int64_t name;
#include "worker/counter_table.h"
#undef STAT
	int64_t logged_ms; /* when the line was last written */
	int64_t logged_sum;
};

/* Writes the line if a counter has changed since the last line, at most every STATS_EVERY_MS. */
void stats_step(struct stats *stats, int64_t now_ms);
void stats_log(const struct stats *stats);

enum metric {
#define METRIC(id, text, kind, about) id,
#include "worker/metric_table.h"
#undef METRIC
	METRIC_COUNT
};

void metrics_set(enum metric metric, int64_t value);
void metrics_count(enum metric metric, int64_t n); /* any thread */
int64_t metrics_get(enum metric metric);
void metrics_stats(const struct stats *stats);
/* A receive was rejected; `reason` is its place in common/message/reason_table.h, from 1. */
void metrics_rejected(size_t reason);

void metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */

#endif
