/* The metrics of the gateway, which any thread may write, and their text. */
#pragma once

#include "common/message/answer.h"
#include "common/serve/metrics.h"

#define METRICS_SNAPSHOT_MS 250
/* Issue times are counted by their upper bounds, and those above the last one. */
#define METRICS_BOUNDS 16

enum metric {
#define METRIC(name, text, type, help) name,
#include "gateway/metric_table.h"
#undef METRIC
	METRIC_COUNT,
	METRIC_ANSWERS = METRIC_COUNT, /* from here on: by status */
	METRIC_BUCKETS = METRIC_ANSWERS + ANSWER_COUNT,
	METRIC_TIME_US = METRIC_BUCKETS + METRICS_BOUNDS + 1,
	METRIC_PLACES
};

/*
 * From now on this process counts on page `process`; its gauges begin at 0 (a predecessor may have
 * died).
 */
void metrics_enter(size_t process);

void metrics_issue_time(int64_t time_us); /* how long the answer to an issue took */

void metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */
/* A JSON object, at most METRICS_SNAPSHOT_MS old; valid until the next call. */
const char *metrics_snapshot(int64_t now_ms);
