/*
 * The metrics of the worker's loop. The loop writes, any thread reads.
 */
#ifndef WORKER_METRICS_H
#define WORKER_METRICS_H

#include "worker/settle/outcome.h"
#include "worker/stats.h"

#include <stddef.h>
#include <stdint.h>

struct evbuffer;

enum metric {
#define METRIC(name, text, type, help) name,
#include "worker/metric_table.h"
#undef METRIC
	METRIC_COUNT
};

void metrics_add(enum metric metric, int64_t amount);
void metrics_set(enum metric metric, int64_t value);
int64_t metrics_get(enum metric metric);
void metrics_stats(const struct stats *stats);
void metrics_rejected(enum outcome_reason reason);

void metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */

#endif
