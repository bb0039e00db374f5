/*
 * The read operation `code`: what a code would give to a user, and whether the user can claim it
 * now. claim.h has found out which code it is.
 *
 *	Redis, in one pipeline: the user's slots, who has claimed the code, terms and stock
 *	─▶ the discount (coupons.h) ─▶ answered
 *
 * A code that is revoked is answered, and counts, as a wrong one, as in a claim.
 */
#pragma once

#include "gateway/read/status.h"

/* Takes the request. Redis has one more of parts->in_redis until it is read. */
void code_answer(const struct status_parts *parts, struct request *request);
