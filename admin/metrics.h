/* The metrics of coupon-admin. Any thread. */
#pragma once

#include "common/serve/metrics.h"

enum command_result {
	RESULT_DONE,
	RESULT_REFUSED,
	RESULT_UNAVAILABLE,
	RESULT_FAILED,
	RESULT_COUNT
};

enum metric {
#define METRIC(id, text, kind, about) id,
#include "admin/metric_table.h"
#undef METRIC
	METRIC_COUNT,
	METRIC_RESULTS = METRIC_COUNT, /* from here on: by enum command_result */
	METRIC_PLACES = METRIC_RESULTS + RESULT_COUNT
};

/* A command or a job has come to this status of HTTP. */
void metrics_count_result(int status);

void metrics_prometheus(struct evbuffer *out); /* text exposition format 0.0.4 */
