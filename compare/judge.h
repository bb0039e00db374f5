/* Judges a way by what the stores have in the end, whatever its clients were told. */
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

void judge(struct market *market, const struct way *way, struct verdict *verdict);

#endif
