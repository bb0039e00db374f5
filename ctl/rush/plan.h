/*
 * The requests of a rush. They are numbered from 0, and the number is their id on the wire. The
 * requests of one user are for one coupon, and are sent one directly after the other, so that they
 * race.
 */
#ifndef CTL_RUSH_PLAN_H
#define CTL_RUSH_PLAN_H

#include "ctl/args.h"
#include "ctl/rush/codes.h"
#include "ctl/rush/coupons.h"
#include "ctl/rush/users.h"

#include <stddef.h>
#include <stdint.h>

#define RUSH_REQUESTS_MAX 100000000
/* bytes of a request line: two numbers of 20 digits, two user ids and the words around them */
#define RUSH_LINE_MAX (2 * 20 + 2 * RUSH_USER_MAX + RUSH_CODE_MAX + 80)

enum rush_ack { RUSH_ACCEPTED, RUSH_QUEUED, RUSH_ISSUED };

struct rush_plan {
	struct rush_coupons coupons;
	struct rush_users users;
	struct rush_codes codes;
	uint32_t requests_per_user;
	uint32_t requests_n;
	int keys; /* each user's requests carry the same idempotency key */
	enum rush_ack ack;
	int64_t rate; /* requests a second; 0: as fast as answers come */
	uint32_t connections_n;
	uint32_t pipeline;  /* unanswered requests of one connection */
	int64_t timeout_us; /* a later answer counts as unknown */
};

/* Whether all requests of a user must get one receive: they have one key, or one code. */
static inline int rush_plan_repeats(const struct rush_plan *plan)
{
	return plan->keys || plan->codes.list;
}

/* The user of a request: its index in plan->users. */
static inline uint32_t rush_plan_user(const struct rush_plan *plan, uint32_t request)
{
	return request / plan->requests_per_user;
}

/* The coupon of a user: its index in plan->coupons. */
static inline uint32_t rush_plan_coupon(const struct rush_plan *plan, uint32_t user)
{
	return rush_users_choice(&plan->users, user, plan->coupons.n);
}

/* From the command line. A wrong option ends the process. */
void rush_plan_read(struct rush_plan *plan, const struct args *args);
void rush_plan_fini(struct rush_plan *plan);

const char *rush_ack_text(enum rush_ack ack);

/* Writes the request's line with its end, at most RUSH_LINE_MAX bytes, and returns its length. */
size_t rush_plan_line(const struct rush_plan *plan, uint32_t request, char *out);

/* When the request is due, in microseconds from the start. Only for plans with a rate. */
int64_t rush_plan_due_us(const struct rush_plan *plan, uint32_t request);

#endif
