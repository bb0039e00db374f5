#include "gateway/metrics.h"

#include "common/check.h"
#include "common/message/json.h"

#include <cjson/cJSON.h>
#include <string.h>

_Static_assert(METRIC_PLACES <= METRICS_MAX, "each has a place");

/* Upper bounds of the buckets of issue times, in microseconds. */
static const int64_t bounds_us[METRICS_BOUNDS] = { 250,     500,     1000,    2000,
						   4000,    8000,    16000,   32000,
						   64000,   128000,  256000,  512000,
						   1000000, 2500000, 5000000, 10000000 };

static const struct metric_row metrics[] = {
#define METRIC(name, text, type, help) [name] = { text, type, help },
#include "gateway/metric_table.h"
#undef METRIC
};

void metrics_enter(size_t process)
{
	metrics_page(process);
	for (unsigned i = 0; i < METRIC_COUNT; i++)
		if (strcmp(metrics[i].type, "gauge") == 0)
			metrics_set(i, 0);
}

void metrics_issue_time(int64_t time_us)
{
	unsigned i = 0;

	while (i < METRICS_BOUNDS && time_us > bounds_us[i])
		i++;
	metrics_add(METRIC_BUCKETS + i, 1);
	metrics_add(METRIC_TIME_US, time_us);
}

void metrics_prometheus(struct evbuffer *out)
{
	int64_t count = 0;

	exposition_table(out, metrics, METRIC_COUNT, 0);
	exposition_head(out, "answers_total", "counter", "Answers by status.");
	for (unsigned i = 0; i < ANSWER_COUNT; i++)
		exposition_labelled(out, "answers_total", "status", answer_status((enum answer)i),
				    METRIC_ANSWERS + i);

	exposition_head(out, "issue_seconds", "histogram",
			"Time from an issue request to its answer.");
	for (unsigned i = 0; i <= METRICS_BOUNDS; i++) {
		count += metrics_get(METRIC_BUCKETS + i);
		if (i < METRICS_BOUNDS)
			check(evbuffer_add_printf(out,
						  "couponmq_issue_seconds_bucket{le=\"%g\"} %lld\n",
						  (double)bounds_us[i] / 1e6,
						  (long long)count) > 0);
	}
	check(evbuffer_add_printf(out,
				  "couponmq_issue_seconds_bucket{le=\"+Inf\"} %lld\n"
				  "couponmq_issue_seconds_sum %.6f\n"
				  "couponmq_issue_seconds_count %lld\n",
				  (long long)count, (double)metrics_get(METRIC_TIME_US) / 1e6,
				  (long long)count) > 0);
}

/* To make it costs far more than to answer with it. */
const char *metrics_snapshot(int64_t now_ms)
{
	static int64_t until_ms;
	static char *text;
	cJSON *object, *answers;

	if (text && now_ms < until_ms)
		return text;
	cJSON_free(text);
	object = checked(cJSON_CreateObject());
	for (unsigned i = 0; i < METRIC_COUNT; i++)
		cJSON_AddNumberToObject(object, metrics[i].name, (double)metrics_get(i));
	answers = cJSON_AddObjectToObject(object, "answers");
	for (unsigned i = 0; i < ANSWER_COUNT; i++)
		cJSON_AddNumberToObject(answers, answer_status((enum answer)i),
					(double)metrics_get(METRIC_ANSWERS + i));
	text = checked(json_write(object));
	cJSON_Delete(object);
	until_ms = now_ms + METRICS_SNAPSHOT_MS;
	return text;
}
