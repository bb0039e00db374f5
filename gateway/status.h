/*
 * The reading operations `status` and `coupon`: Redis is asked first, because it knows what is in flight, then PostgreSQL, whose
 * word is final. Each takes the request and answers it, now or later.
 */
#ifndef GATEWAY_STATUS_H
#define GATEWAY_STATUS_H

#include "gateway/admission.h"
#include "gateway/lookup.h"
#include "gateway/redis_pool.h"

struct status_parts {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct admission *admission;
	int alone; /* no other process of this gateway can have something in hand that this one does not see */
};

void status_answer(const struct status_parts *parts, struct request *request); /* OP_STATUS */
void coupon_answer_state(const struct status_parts *parts, struct request *request); /* OP_COUPON */

/* A row of coupon_state.sql (NULL: the look-up failed) as admission and the `coupon` operation understand it. */
enum coupon_state coupon_state_of(const PGresult *rows);

#endif
