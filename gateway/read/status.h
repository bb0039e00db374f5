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

#include "common/message/number.h"
#include "gateway/admit/admission.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/read/lookup.h"

struct offers;

/* What the read operations use. */
struct status_parts {
	struct redis_pool *redis;
	struct lookup *lookup;
	struct lookup *reads; /* of what is only shown; not for `status` */
	struct offers *offers;
	struct admission *admission;
	size_t *in_redis; /* how many Redis has; less one with its reply */
};

/* The highest that this process has seen of a coupon, for the scripts that read, as in a call. */
struct seen_text {
	char generation[NUMBER_SIZE], seq[NUMBER_SIZE];
};
void status_seen(const struct status_parts *parts, int64_t coupon, struct seen_text *seen);

void status_answer(const struct status_parts *parts,
		   struct request *request); /* takes the request; answers now or later */

#endif
