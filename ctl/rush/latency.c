#include "ctl/rush/latency.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

int64_t rush_percentile(const int64_t *sorted, size_t n, int permyriad)
{
	size_t rank = (n * (size_t)permyriad + 9999) / 10000;

	if (n == 0)
		return 0;
	return sorted[rank > 0 ? rank - 1 : 0];
}

static int number_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

void rush_latency_read(struct rush_latency *latency, const struct rush_book *book, int code)
{
	int64_t *times_us = malloc((book->next ? book->next : 1) * sizeof(*times_us));
	size_t n = 0;

	check(times_us != NULL);
	for (uint32_t i = 0; i < book->next; i++)
		if (book->end[i] < RUSH_CODES_MAX && (code == RUSH_ENDS || book->end[i] == code))
			times_us[n++] = book->time_us[i];
	qsort(times_us, n, sizeof(*times_us), number_compare);
	latency->n = n;
	latency->p50_us = rush_percentile(times_us, n, 5000);
	latency->p90_us = rush_percentile(times_us, n, 9000);
	latency->p99_us = rush_percentile(times_us, n, 9900);
	latency->p999_us = rush_percentile(times_us, n, 9990);
	latency->max_us = rush_percentile(times_us, n, 10000);
	free(times_us);
}
