#include "worker/metrics.h"

#include "common/log/log.h"
#include "common/message/answer.h"
#include "common/serve/exposition.h"

#include <stdatomic.h>

static atomic_int_least64_t values[METRIC_COUNT];

static atomic_int_least64_t rejected[REASON_COUNT];

static const struct {
	const char *name;
	const char *type;
	const char *help;
} metrics[] = {
#define STAT(id, text, about) [id] = { "worker_" text "_total", "counter", about },
#define METRIC(id, text, kind, about) [id] = { text, kind, about },
#include "worker/metric_table.h"
#undef METRIC
#undef STAT
};

void metrics_set(enum metric metric, int64_t value)
{
	values[metric] = value;
}

void metrics_count(enum metric metric, int64_t n)
{
	values[metric] += n;
}

int64_t metrics_get(enum metric metric)
{
	return values[metric];
}

void metrics_rejected(size_t reason)
{
	rejected[reason]++;
}

void metrics_prometheus(struct evbuffer *out)
{
	exposition_head(out, "worker_rejections_total", "counter", "Rejected receives by reason.");
	for (size_t i = 1; i < REASON_COUNT; i++)
		exposition_labelled(out, "worker_rejections_total", "reason",
				    reason_text((enum reason)i), rejected[i]);
	for (int i = 0; i < METRIC_COUNT; i++) {
		exposition_head(out, metrics[i].name, metrics[i].type, metrics[i].help);
		exposition_value(out, metrics[i].name, values[i]);
	}
}

static int64_t counters_sum(void)
{
	return 0
#define STAT(id, text, about) +values[id]
#define METRIC(id, text, kind, about)
#include "worker/metric_table.h"
#undef STAT
		;
}

void stats_log(void)
{
	const struct log_field fields[] = {
#define STAT(id, text, about) LOG_I(text, values[id]),
#include "worker/metric_table.h"
#undef METRIC
#undef STAT
		{ 0 }
	};

	log_event(LOG_LEVEL_INFO, "stats", fields);
}

void stats_step(int64_t now_ms)
{
	static int64_t logged_ms, logged_sum;

	if (logged_ms == 0)
		logged_ms = now_ms;
	if (now_ms - logged_ms < STATS_EVERY_MS)
		return;
	logged_ms = now_ms;
	if (counters_sum() == logged_sum)
		return;
	logged_sum = counters_sum();
	stats_log();
}
