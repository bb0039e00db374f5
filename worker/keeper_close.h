/* The end of a campaign: the keeper closes it when its end has passed. The keeper's thread. */
#ifndef WORKER_KEEPER_CLOSE_H
#define WORKER_KEEPER_CLOSE_H

#include "worker/keeper_coupon.h"

/* After the end, so that it never comes before the last receive by a clock that is set back a little. */
#define CLOSE_GRACE_MS 1000

/* Whether it is over at Redis' time `now_ms` and PostgreSQL does not say so yet. Pure. */
int close_due(const struct coupon_row *row, int64_t now_ms);
/* Closes it in PostgreSQL. Redis is told as of any other terms. 0, or -1 when PostgreSQL failed or another keeper was elected. */
int close_ended(struct keeper_view *view, const struct coupon_row *row);

#endif
