#include "keeper/metrics.h"

#include "common/serve/exposition.h"

#include <stdatomic.h>

static atomic_int_least64_t values[KEEPER_METRIC_COUNT];
static atomic_int_least64_t coupons[STAND_COUNT];

static const struct {
	const char *name;
	const char *type;
	const char *help;
} metrics[] = {
#define METRIC(name, text, type, help) [name] = { text, type, help },
#include "keeper/metric_table.h"
#undef METRIC
};

void keeper_metrics_add(enum keeper_metric metric, int64_t amount)
{
	atomic_fetch_add_explicit(&values[metric], amount, memory_order_relaxed);
}

void keeper_metrics_set(enum keeper_metric metric, int64_t value)
{
	atomic_store_explicit(&values[metric], value, memory_order_relaxed);
}

int64_t keeper_metrics_get(enum keeper_metric metric)
{
	return atomic_load_explicit(&values[metric], memory_order_relaxed);
}

void keeper_metrics_coupons(const int64_t counts[STAND_COUNT])
{
	for (int i = 0; i < STAND_COUNT; i++)
		atomic_store_explicit(&coupons[i], counts[i], memory_order_relaxed);
}

void keeper_metrics_prometheus(struct evbuffer *out)
{
	static const char *const stands[] = {
#define STAND(name, text) [name] = text,
		COUPON_STANDS(STAND)
#undef STAND
	};

	for (int i = 0; i < KEEPER_METRIC_COUNT; i++) {
		exposition_head(out, metrics[i].name, metrics[i].type, metrics[i].help);
		exposition_value(out, metrics[i].name, keeper_metrics_get((enum keeper_metric)i));
	}
	exposition_head(out, "keeper_coupons", "gauge",
			"Watched coupons by state, while this worker is the keeper.");
	for (int i = 0; i < STAND_COUNT; i++)
		exposition_labelled(out, "keeper_coupons", "state", stands[i],
				    atomic_load_explicit(&coupons[i], memory_order_relaxed));
}
