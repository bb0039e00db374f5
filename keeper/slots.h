/*
 * Settles receives that have a slot in Redis, and whose outbox entry is gone: something removed it
 * before they were settled, and their message was lost as well (RESEND_SLOTS in resend.h). The
 * keeper's thread.
 */
#ifndef KEEPER_SLOTS_H
#define KEEPER_SLOTS_H

#include "keeper/context.h"
#include "keeper/resend.h"

/*
 * Whether the coupon has receives in flight that could be settled so: all of its generation, which
 * Redis has had from the beginning. Pure.
 */
int slots_may_settle(const struct coupon_row *row, const struct coupon_look *look,
		     const char *run_id);

/*
 * Settles what the slots have, until about `until_ms`. What has an outcome already keeps it. 1 when
 * the pass has ended, 0 when it is to go on, -1: the lock, Redis or PostgreSQL is lost.
 */
int slots_settle(struct keeper_context *context, const struct coupon_row *row,
		 const struct coupon_look *look, struct resend_pass *pass, int64_t until_ms);

#endif
