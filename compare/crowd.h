/*
 * The clients of a run. Each asks for one piece, waits for the answer, and asks for the next one.
 *
 *	client threads ──▶ pool of connections ──▶ way->buy()
 *	or a thread for each connection, which carries several clients ──▶ way->serve()
 *	way->work(): a thread for each connection; way->watch(): one
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
