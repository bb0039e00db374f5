/*
 * What time and budgets make of uses: holds end, refusals are forgotten, and campaigns whose budget
 * is used up are paused until there is room again. The keeper's thread.
 */
#pragma once

#include "keeper/context.h"

/*
 * The part of a round: at most so much that the other coupons do not wait. What it changes of a
 * campaign is a change of terms, which the sweep brings to Redis. What one campaign refuses is
 * tried again in the next round. A refusal is kept for `keep_s`. 0, or -1 when the round is over.
 */
int keeper_uses_round(struct keeper_context *context, int64_t keep_s);
