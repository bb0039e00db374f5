/*
 * What the ways sell from: tables in the schema `compare`, and a database of Redis. A way is judged
 * by what the stores have in the end, whatever its clients were told.
 */
#ifndef COMPARE_JUDGE_H
#define COMPARE_JUDGE_H

#include "compare/way.h"

struct verdict {
	long long stock, sold; /* what is left, and what users have */
	long long oversold;    /* sold beyond the stock that there was */
	long long miscounted;  /* sales that the stock does not show */
	long long over_limit;  /* users with several */
	long long unsold;      /* there was stock, and users who asked got none */
};

/* Fresh tables and an empty Redis for this way. Needs the role that may create them. */
void tables_make(struct market *market, const struct way *way);
void tables_drop(struct market *market);

void judge(struct market *market, const struct way *way, struct verdict *verdict);

#endif
