/* What a command of couponctl has come to, as HTTP says it. */
#pragma once

#include "admin/child.h"
#include "admin/route.h"

#include <stdint.h>

/*
 * The body (malloc) and its HTTP status: what the command has printed, from 400 on a problem of RFC
 * 9457. `*version` is that of the coupon which it tells of, 0: none.
 */
char *outcome_make(const struct route *route, const struct child_result *result, int *status,
		   int64_t *version);

/* What HTTP calls the status of a problem; NULL: it is that of none. */
const char *problem_title(int status);
/* A problem (malloc). The sentence is lent. */
char *problem_make(int status, const char *detail);
