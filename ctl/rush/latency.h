/* How long answers took: exact, from all of them. */
#ifndef CTL_RUSH_LATENCY_H
#define CTL_RUSH_LATENCY_H

#include "ctl/rush/book.h"

struct rush_latency {
	size_t n;
	int64_t p50_us, p90_us, p99_us, p999_us, max_us; /* 0 when n is 0 */
};

/* The smallest of the values that at least `permyriad` of 10000 are not above; 0 of none. */
int64_t rush_percentile(const int64_t *sorted, size_t n, int permyriad);

/* Of the answers of one code, or of all with RUSH_ENDS. */
void rush_latency_read(struct rush_latency *latency, const struct rush_book *book, int code);

#endif
