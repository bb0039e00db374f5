/*
 * The requests of a run in the order in which they are made, their answers, and the clients that
 * make them. Every tenth user asks three times in a row. Each client asks for one piece, waits for
 * the answer, and asks for the next one. A connection is a thread that carries its share of the
 * clients, whatever the way:
 *
 *	asked: [ 7 ][ 3 ][ 9 ][ 4 ] … one place for each client, answered in turn
 *	         │ way->buy(): the first is served, the others wait for the connection
 *	         │ way->ask(), way->answer(): all have been sent
 *
 * A request's time runs from when its client asks. way->work(): a thread for each worker;
 * way->watch(): one.
 */
#ifndef COMPARE_LOAD_H
#define COMPARE_LOAD_H

#include "compare/market.h"

#include <stdint.h>

struct load;
struct way;

struct result {
	long long requests, sold, failed;       /* requests by their outcomes */
	long long attempts, attempts_failed;    /* 0: the way does not try again */
	int64_t answered_us, committed_us;      /* from the first request to the last… */
	int64_t latency_p50_us, latency_p99_us; /* of the requests that were sold */
};

/* Makes the requests by this way, until all are answered and committed. */
void load_run(struct market *market, const struct way *way, struct result *result);

/* For workers and watchers, in any thread. All are answered: */
int load_is_over(const struct load *load);
long long load_sold(const struct load *load);
/* The sales that were answered so far are committed, now. */
void load_committed(struct load *load);
/* This one is. */
void load_written(struct load *load, const struct request *request);
long long load_written_n(const struct load *load);

#endif
