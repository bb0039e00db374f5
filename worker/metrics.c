#include "worker/metrics.h"

#include "common/log/log.h"
#include "common/serve/exposition.h"

#include <stdatomic.h>

static atomic_int_least64_t values[METRIC_COUNT];
static const char *const reasons[] = {
	"",
#define REASON(name, text) text,
#include "common/message/reason_table.h"
#undef REASON
};

#define REASONS (sizeof(reasons) / sizeof(reasons[0]))

static atomic_int_least64_t rejected[REASONS];

static struct {
#define STAT(name, help) atomic_int_least64_t name;
#include "worker/counter_table.h"
#undef STAT
} loop;

static const struct {
	const char *name;
	const char *type;
	const char *help;
} metrics[] = {
#define METRIC(id, text, kind, about) [id] = { .name = text, .type = kind, .help = about },
#include "worker/metric_table.h"
#undef METRIC
};

static void store(atomic_int_least64_t *at, int64_t value)
{
	atomic_store_explicit(at, value, memory_order_relaxed);
}

static int64_t load(atomic_int_least64_t *at)
{
	return atomic_load_explicit(at, memory_order_relaxed);
}

void metrics_set(enum metric metric, int64_t value)
{
	store(&values[metric], value);
}

void metrics_count(enum metric metric, int64_t n)
{
	atomic_fetch_add_explicit(&values[metric], n, memory_order_relaxed);
}

int64_t metrics_get(enum metric metric)
{
	return load(&values[metric]);
}

void metrics_stats(const struct stats *stats)
{
#define STAT(name, help) store(&loop.name, stats->name);
#include "worker/counter_table.h"
#undef STAT
}

void metrics_rejected(size_t reason)
{
	atomic_fetch_add_explicit(&rejected[reason], 1, memory_order_relaxed);
}

static void stats_prometheus(struct evbuffer *out)
{
#define STAT(name, help)                                                 \
	exposition_head(out, "worker_" #name "_total", "counter", help); \
	exposition_value(out, "worker_" #name "_total", load(&loop.name));
#include "worker/counter_table.h"
#undef STAT
}

void metrics_prometheus(struct evbuffer *out)
{
	stats_prometheus(out);
	exposition_head(out, "worker_rejections_total", "counter", "Rejected receives by reason.");
	for (size_t i = 1; i < REASONS; i++)
		exposition_labelled(out, "worker_rejections_total", "reason", reasons[i],
				    load(&rejected[i]));
	for (int i = 0; i < METRIC_COUNT; i++) {
		exposition_head(out, metrics[i].name, metrics[i].type, metrics[i].help);
		exposition_value(out, metrics[i].name, load(&values[i]));
	}
}

static int64_t counters_sum(const struct stats *stats)
{
	return 0
#define STAT(name, help) +stats->name
#include "worker/counter_table.h"
#undef STAT
		;
}

void stats_log(const struct stats *stats)
{
	const struct log_field fields[] = {
#define STAT(name, help) LOG_I(#name, stats->name),
#include "worker/counter_table.h"
#undef STAT
		{ 0 }
	};

	log_event(LOG_LEVEL_INFO, "stats", fields);
}

void stats_step(struct stats *stats, int64_t now_ms)
{
	if (now_ms - stats->logged_ms < STATS_EVERY_MS)
		return;
	stats->logged_ms = now_ms;
	if (counters_sum(stats) == stats->logged_sum)
		return;
	stats->logged_sum = counters_sum(stats);
	stats_log(stats);
}
