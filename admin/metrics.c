#include "admin/metrics.h"

_Static_assert(METRIC_PLACES <= METRICS_MAX, "each has a place");

static const struct metric_row metrics[] = {
#define METRIC(id, text, kind, about) [id] = { text, kind, about },
#include "admin/metric_table.h"
#undef METRIC
};

static const char *const results[] = { [RESULT_DONE] = "done",
				       [RESULT_REFUSED] = "refused",
				       [RESULT_UNAVAILABLE] = "unavailable",
				       [RESULT_FAILED] = "failed" };

void metrics_count_result(int status)
{
	enum command_result result = status < 400    ? RESULT_DONE
				     : status < 500  ? RESULT_REFUSED
				     : status == 503 ? RESULT_UNAVAILABLE
						     : RESULT_FAILED;

	metrics_add(METRIC_RESULTS + result, 1);
}

void metrics_prometheus(struct evbuffer *out)
{
	exposition_head(out, "admin_commands_total", "counter", "Commands and jobs by result.");
	for (unsigned i = 0; i < RESULT_COUNT; i++)
		exposition_labelled(out, "admin_commands_total", "result", results[i],
				    METRIC_RESULTS + i);
	exposition_table(out, metrics, METRIC_COUNT, 0);
}
