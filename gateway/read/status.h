/*
 * The read operation `status`: reads Redis first, which holds what is in flight, then PostgreSQL,
 * which holds the final outcome.
 *
 *	Redis: the user's records, and whether they are complete
 *	  └─ it does not have the coupon ─▶ PostgreSQL: was it ever loaded, is it settled?
 *	     └─▶ PostgreSQL: the outcome ─▶ answered
 */
#ifndef GATEWAY_READ_STATUS_H
#define GATEWAY_READ_STATUS_H

#include "gateway/admit/admission.h"
#include "gateway/read/lookup.h"
#include "gateway/read/offers.h"
#include "gateway/read/redis_query.h"

/* What the read operations use. */
struct status_parts {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct lookup *reads; /* of what is only shown; not for `status` */
	struct offers *offers;
	struct admission *admission;
	size_t *in_redis; /* how many Redis has; less one with its reply */
};

void status_answer(const struct status_parts *parts,
		   struct request *request); /* takes the request; answers now or later */

#endif
