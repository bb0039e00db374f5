/*
 * Counters and gauges, one page per process in memory shared by all processes of the gateway, so
 * that any of them can report the sum. Adding is safe from any thread.
 */
#pragma once

#include "common/message/answer.h"

#include <stddef.h>
#include <stdint.h>

#define METRICS_SNAPSHOT_MS 250

struct evbuffer;

enum metric {
#define METRIC(name, text, type, help) name,
#include "gateway/metric_table.h"
#undef METRIC
	METRIC_COUNT
};

/* Makes the pages of `processes` processes; before the fork. */
void metrics_init(size_t processes);
/*
 * From now on this process counts on page `process`; its gauges begin at 0 (a predecessor may have
 * died).
 */
void metrics_enter(size_t process);

void metrics_add(enum metric metric, int64_t amount);
void metrics_set(enum metric metric, int64_t value); /* gauges */

/* One answer, and for an issue how long it took. */
void metrics_answer(enum answer answer);
void metrics_issue_time(int64_t time_us);

void metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */
/* A JSON object, at most METRICS_SNAPSHOT_MS old; valid until the next call. */
const char *metrics_snapshot(int64_t now_ms);
