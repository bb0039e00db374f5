/*
 * The clients of a run. Each asks for one piece, waits for the answer, and asks for the next one.
 * A connection is a thread that carries its share of the clients, whatever the way:
 *
 *	asked: [ 7 ][ 3 ][ 9 ][ 4 ] … one place for each client, answered in turn
 *	         │ way->buy(): the first is served, the others wait for the connection
 *	         │ way->ask(), way->answer(): all have been sent
 *
 * A request's time runs from when its client asks. way->work(): a thread for each worker;
 * way->watch(): one.
 */
#ifndef COMPARE_CROWD_H
#define COMPARE_CROWD_H

#include "compare/way.h"

struct crowd_result {
	long long attempts, attempts_failed; /* 0: the way does not count them */
};

void crowd_run(struct market *market, const struct way *way, struct load *load,
	       struct crowd_result *result);

#endif
