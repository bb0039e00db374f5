#include "worker/metrics.h"

#include "common/log/log.h"

_Static_assert(METRIC_PLACES <= METRICS_KEEPER, "each has a place");

static const struct metric_row metrics[] = {
#define STAT(id, text, about) [id] = { "worker_" text "_total", "counter", about },
#define METRIC(id, text, kind, about) [id] = { text, kind, about },
#include "worker/metric_table.h"
#undef METRIC
#undef STAT
};

void metrics_prometheus(struct evbuffer *out)
{
	exposition_head(out, "worker_rejections_total", "counter", "Rejected receives by reason.");
	for (unsigned i = 1; i < REASON_COUNT; i++)
		exposition_labelled(out, "worker_rejections_total", "reason",
				    reason_text((enum reason)i), METRIC_REJECTIONS + i);
	exposition_table(out, metrics, METRIC_COUNT, 0);
}

void stats_log(void)
{
	const struct log_field fields[] = {
#define STAT(id, text, about) LOG_I(text, metrics_get(id)),
#define METRIC(id, text, kind, about)
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
	const int64_t sum = 0
#define STAT(id, text, about) +metrics_get(id)
#define METRIC(id, text, kind, about)
#include "worker/metric_table.h"
#undef METRIC
#undef STAT
		;

	if (logged_ms == 0)
		logged_ms = now_ms;
	if (now_ms - logged_ms < STATS_EVERY_MS)
		return;
	logged_ms = now_ms;
	if (sum == logged_sum)
		return;
	logged_sum = sum;
	stats_log();
}
