/*
 * The read operations `status` and `coupon`. Each reads Redis first.
 *
 *	status  Redis: the user's records, which are in flight, and whether they are complete
 *	          └─ it does not have the coupon ─▶ PostgreSQL: was it ever loaded, is it settled?
 *	             └─▶ PostgreSQL: the final outcome ─▶ answered
 *	coupon  Redis: terms and stock ─▶ the discount (coupons.h) ─▶ answered
 *	          └─ it does not have the coupon ─▶ PostgreSQL, which may be a replica ─▶ answered
 */
#pragma once

#include "gateway/admit/admission.h"
#include "gateway/admit/redis_pool.h"
#include "gateway/admit/replicas.h"
#include "gateway/read/coupons.h"

/* What they use. */
struct status_parts {
	struct redis_pool *redis;
	struct replicas *replicas; /* NULL: none are waited for */
	struct lookup *lookup;
	struct lookup *reads; /* what is only shown; not for `status` */
	struct discounts *discounts;
	struct admission *admission;
	size_t *in_redis; /* how many Redis has; less one with its reply */
};

/* Takes the request; answers now or later. */
void status_answer(const struct status_parts *parts, struct request *request);

/* What Redis has of a coupon, as coupon_state.lua returns it. */
struct coupon_state {
	const char *state; /* "open", "not_started", "paused" or "ended" */
	const char *why;   /* NULL, or why it cannot be told: the rest is not set */
	int is_missing;    /* Redis does not have it, which is a reason, too */
	int is_behind;     /* so is this: Redis has an older state than was seen */
	int64_t total, stock, limit, begin_ms, end_ms, version, now_ms;
};

/* Reads the reply that came over the link; NULL: there was none. */
void coupon_state_read(const redisReply *reply, struct redis_link *link,
		       struct coupon_state *state);
/* Asks for it, over the link; NULL: Redis is unreachable. */
void coupon_state_ask(const struct status_parts *parts, struct redis_link *link, int64_t coupon,
		      redis_done_fn *done, void *context);

/* The reply that shows it, as far as Redis has it. */
cJSON *coupon_state_object(int64_t coupon, const struct coupon_state *state);
/*
 * Why a user who has taken so many cannot have another one; NULL: the user can. By the state as
 * above.
 */
const char *coupon_refusal(const char *state, int64_t stock, int64_t limit, int taken);

/*
 * The answer by what LOOKUP_COUPON found of a coupon that Redis does not hold; `*is_published`: it
 * waits for the keeper.
 */
enum answer coupon_row_answer(const PGresult *rows, int64_t coupon, int *is_published);
/* Answers a request about such a coupon, and takes it. */
void coupon_row_refuse(struct request *request, const PGresult *rows);
