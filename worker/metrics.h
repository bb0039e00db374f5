/* The worker's metrics, which any thread may write and read, and the log line `stats`. */
#pragma once

#include "common/message/answer.h"
#include "common/serve/metrics.h"

#define STATS_EVERY_MS 60000

enum metric {
#define STAT(id, text, about) id,
#define METRIC(id, text, kind, about) id,
#include "worker/metric_table.h"
#undef METRIC
#undef STAT
	METRIC_COUNT,
	METRIC_REJECTIONS = METRIC_COUNT, /* from here on: by enum reason */
	METRIC_PLACES = METRIC_REJECTIONS + REASON_COUNT
};

/*
 * The line is written if a counter of the loop has changed since the last line, at most every
 * STATS_EVERY_MS. Only the loop.
 */
void stats_step(int64_t now_ms);
void stats_log(void);

void metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */
