#include "gateway/metrics.h"

#include "common/check.h"
#include "common/serve/exposition.h"

#include <cjson/cJSON.h>
#include <event2/buffer.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

/* Upper bounds of the buckets of issue times, in microseconds. */
static const int64_t bounds_us[] = { 250,     500,     1000,    2000,    4000,   8000,
				     16000,   32000,   64000,   128000,  256000, 512000,
				     1000000, 2500000, 5000000, 10000000 };

#define BOUNDS_N (sizeof(bounds_us) / sizeof(bounds_us[0]))

struct page {
	atomic_int_least64_t values[METRIC_COUNT];
	atomic_int_least64_t answers[ANSWER_COUNT];
	atomic_int_least64_t buckets[BOUNDS_N + 1];
	atomic_int_least64_t time_us;
};

static const struct {
	const char *name;
	const char *type;
	const char *help;
} metrics[] = {
#define METRIC(name, text, type, help) [name] = { text, type, help },
#include "gateway/metric_table.h"
#undef METRIC
};

static struct page fallback; /* until metrics_init, and in tests */
static struct page *pages = &fallback;
static struct page *mine = &fallback;
static size_t pages_n = 1;

void metrics_init(size_t processes)
{
	pages = mmap(NULL, processes * sizeof(*pages), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(pages != MAP_FAILED);
	pages_n = processes;
	mine = &pages[0];
}

void metrics_enter(size_t process)
{
	check(process < pages_n);
	mine = &pages[process];
	for (int i = 0; i < METRIC_COUNT; i++)
		if (strcmp(metrics[i].type, "gauge") == 0)
			atomic_store(&mine->values[i], 0);
}

static void add(atomic_int_least64_t *counter, int64_t amount)
{
	atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

#define SUM(counter) sum_at(offsetof(struct page, counter))

/* The sum over all pages of the counter at `offset` bytes into each. */
static int64_t sum_at(size_t offset)
{
	int64_t sum = 0;

	for (size_t i = 0; i < pages_n; i++)
		sum += atomic_load_explicit((atomic_int_least64_t *)(void *)((char *)&pages[i] +
									     offset),
					    memory_order_relaxed);
	return sum;
}

void metrics_add(enum metric metric, int64_t amount)
{
	add(&mine->values[metric], amount);
}

void metrics_set(enum metric metric, int64_t value)
{
	atomic_store_explicit(&mine->values[metric], value, memory_order_relaxed);
}

void metrics_answer(enum answer answer)
{
	add(&mine->answers[answer], 1);
}

void metrics_issue_time(int64_t time_us)
{
	size_t i = 0;

	while (i < BOUNDS_N && time_us > bounds_us[i])
		i++;
	add(&mine->buckets[i], 1);
	add(&mine->time_us, time_us);
}

static void issue_time_prometheus(struct evbuffer *out)
{
	int64_t count = 0;

	exposition_head(out, "issue_seconds", "histogram",
			"Time from an issue request to its answer.");
	for (size_t i = 0; i <= BOUNDS_N; i++) {
		count += SUM(buckets[i]);
		if (i < BOUNDS_N)
			evbuffer_add_printf(out, "couponmq_issue_seconds_bucket{le=\"%g\"} %lld\n",
					    (double)bounds_us[i] / 1e6, (long long)count);
	}
	evbuffer_add_printf(out, "couponmq_issue_seconds_bucket{le=\"+Inf\"} %lld\n",
			    (long long)count);
	evbuffer_add_printf(out, "couponmq_issue_seconds_sum %.6f\n", (double)SUM(time_us) / 1e6);
	evbuffer_add_printf(out, "couponmq_issue_seconds_count %lld\n", (long long)count);
}

void metrics_prometheus(struct evbuffer *out)
{
	for (int i = 0; i < METRIC_COUNT; i++) {
		exposition_head(out, metrics[i].name, metrics[i].type, metrics[i].help);
		exposition_value(out, metrics[i].name, SUM(values[i]));
	}
	exposition_head(out, "answers_total", "counter", "Answers by status.");
	for (int i = 0; i < ANSWER_COUNT; i++)
		exposition_labelled(out, "answers_total", "status", answer_status((enum answer)i),
				    SUM(answers[i]));
	issue_time_prometheus(out);
}

static cJSON *metrics_json(void)
{
	cJSON *object = checked(cJSON_CreateObject()), *answers;

	for (int i = 0; i < METRIC_COUNT; i++)
		cJSON_AddNumberToObject(object, metrics[i].name, (double)SUM(values[i]));
	answers = cJSON_AddObjectToObject(object, "answers");
	for (int i = 0; i < ANSWER_COUNT; i++)
		cJSON_AddNumberToObject(answers, answer_status((enum answer)i),
					(double)SUM(answers[i]));
	return object;
}

/* To make it costs far more than to answer with it. */
const char *metrics_snapshot(int64_t now_ms)
{
	static int64_t until_ms;
	static char *text;
	cJSON *object;

	if (text && now_ms < until_ms)
		return text;
	cJSON_free(text);
	object = metrics_json();
	text = checked(cJSON_PrintUnformatted(object));
	cJSON_Delete(object);
	until_ms = now_ms + METRICS_SNAPSHOT_MS;
	return text;
}
