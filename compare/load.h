/*
 * The requests of a run, in the order in which they are made, and their answers. Every tenth user
 * asks three times in a row. Any thread, but for load_new(), load_free() and load_result().
 */
#ifndef COMPARE_LOAD_H
#define COMPARE_LOAD_H

#include "compare/market.h"
#include "compare/request.h"

#include <stdint.h>

struct load;

struct load *load_new(const struct market *market);
void load_free(struct load *load);

/* The next request, which is made now. NULL: there are no more. */
const struct request *load_next(struct load *load, int *number);
void load_answer(struct load *load, int number, enum outcome outcome);
int load_is_over(const struct load *load); /* all are answered */
long long load_sold(const struct load *load);

/* The sales that were answered so far are committed, now. */
void load_committed(struct load *load);
/* This one is: for workers behind a queue. */
void load_written(struct load *load, const struct request *request);
long long load_written_n(const struct load *load);

struct load_result {
	long long requests, sold, failed;       /* requests by their outcomes */
	int64_t answered_us, committed_us;      /* from the first request to the last… */
	int64_t latency_p50_us, latency_p99_us; /* of the requests that were sold */
};

void load_result(const struct load *load, struct load_result *result);

#endif
