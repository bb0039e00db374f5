/* The worker's metrics, which any thread may write and read, and the log line `stats`. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct evbuffer;

#define STATS_EVERY_MS 60000

enum metric {
#define STAT(id, text, about) id,
#define METRIC(id, text, kind, about) id,
#include "worker/metric_table.h"
#undef METRIC
#undef STAT
	METRIC_COUNT
};

void metrics_set(enum metric metric, int64_t value);
void metrics_count(enum metric metric, int64_t n);
int64_t metrics_get(enum metric metric);
/* A receive was rejected; `reason` is its place in common/message/reason_table.h, from 1. */
void metrics_rejected(size_t reason);

/*
 * The line is written if a counter of the loop has changed since the last line, at most every
 * STATS_EVERY_MS. Only the loop.
 */
void stats_step(int64_t now_ms);
void stats_log(void);

void metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */
