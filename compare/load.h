/*
 * The load: clients that ask for one piece each and wait for the answer before the next request.
 * Every tenth user asks three times at once.
 *
 *	client threads ──▶ pool of connections ──▶ way->buy()
 *	or one thread for each connection, which carries clients / connections of them ──▶ way->serve()
 *	way->work(): one thread for each connection
 */
#ifndef COMPARE_LOAD_H
#define COMPARE_LOAD_H

#include "compare/market.h"

#include <stdint.h>

struct way;
struct load;

struct request {
	int user; /* from 1 */
	int item; /* from 1 */
};

enum outcome {
	SOLD,
	SOLD_OUT,
	HAS_ONE, /* the user bought one before */
	FAILED   /* the user is told to try again */
};

struct load_result {
	long long requests, sold, failed;        /* requests by their outcomes */
	long long attempts, attempts_failed;     /* of the ways that try again, each try */
	int64_t answered_us, committed_us;       /* until the last answer; until the last COMMIT */
	int64_t latency_p50_us, latency_p99_us;  /* of the requests that were sold */
};

void load_run(const struct market *market, const struct way *way, struct load_result *result);

/* For way->serve() and way->work(), any thread. */
const struct request *load_next(struct load *load, int *number); /* NULL: there are no more */
void load_answer(struct load *load, int number, enum outcome outcome);
int load_window(const struct load *load);   /* requests that a connection may have in flight */
int load_is_over(const struct load *load);  /* all answered */
long long load_sold(const struct load *load);
/* A worker has committed one, or all that were sold, now. */
void load_committed(struct load *load, const struct request *request);
void load_committed_all(struct load *load);
long long load_written(const struct load *load); /* that workers have committed */

#endif
