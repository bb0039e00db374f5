/*
 * What a rush requests. Its requests are numbered from 0, and the number is their id on the wire.
 * The requests of one user are for one coupon, and are sent one directly after the other, so that
 * they race.
 */
#pragma once

#include "common/message/number.h"
#include "common/message/receive.h"
#include "ctl/args.h"

#include <stddef.h>
#include <stdint.h>

#define RUSH_REQUESTS_MAX 100000000
#define RUSH_COUPONS_MAX 100000
#define RUSH_CODE_MAX 96                         /* bytes of an exchange code, or of a receive */
#define RUSH_USER_MAX 36                         /* bytes of a user id: of a UUID */
#define RUSH_NUMBER_MAX ((INT64_C(1) << 62) - 1) /* of UUIDs and with a seed */
/* bytes of a request line: two numbers of 20 digits, three user ids and the words around them */
#define RUSH_LINE_MAX (2 * 20 + 3 * RUSH_USER_MAX + 2 * RUSH_CODE_MAX + 100)
#define RUSH_HTTP_MAX (RUSH_LINE_MAX + 150) /* of a request over HTTP, beside `fields` */
#define RUSH_RETRIES_MAX 10

/* Their ids, in order. */
struct rush_coupons {
	int64_t *list;
	uint32_t n;
	size_t size;
};

/* From the command line, as all that is read here. A wrong option ends the process. */
void rush_coupons_read(struct rush_coupons *coupons, const struct args *args);
void rush_coupons_add(struct rush_coupons *coupons, int64_t id);
/* After the last one was added. Returns an id that was added twice, or 0. */
int64_t rush_coupons_sort(struct rush_coupons *coupons);

/* The index of a coupon, or -1. */
int64_t rush_coupons_find(const struct rush_coupons *coupons, int64_t id);

enum rush_form { RUSH_INT, RUSH_UUID };
enum rush_ack { RUSH_ACCEPTED, RUSH_QUEUED, RUSH_ISSUED, RUSH_USED };
extern const char *const rush_forms[], *const rush_acks[]; /* their names */

/*
 * The users have numbers, one after the other, and the id of a user is made of its number:
 *
 *	                in sequence                             by a seed, here 7
 *	int     1001                                    2090231180005980176
 *	uuid    00000000-0000-4000-8000-0000000003e9    48ab021f-3a19-4184-9d01-fe2f06b3b80f
 *
 * Different numbers have different ids, with a seed too, and the same seed gives the same ids.
 */
struct rush_users {
	uint32_t n;
	int64_t first; /* the number of the first; the next have the numbers after it */
	enum rush_form form;
	int seeded;
	int64_t seed;
};

/* The id of user `i` of 0 to n - 1. */
struct user_id rush_users_id(const struct rush_users *users, uint32_t i);

/*
 * One of `choices`, from 0, for user `i`. It looks random and is made of the seed, 0 without one,
 * and the user's number.
 */
uint32_t rush_users_choice(const struct rush_users *users, uint32_t i, uint32_t choices);

/* How long a user waits before it presses again. */
enum rush_pause { RUSH_PAUSE_NONE, RUSH_PAUSE_FIXED, RUSH_PAUSE_EXPONENTIAL };
extern const char *const rush_pauses[]; /* their names */

/*
 * An open loop: users come at random times, on average `rate` a second, whatever the answers do
 * (Poisson). Each has one request with a key of its own, and a connection of its own, which it
 * closes when it has no answer in time; then it presses again.
 */
struct rush_open_loop {
	int64_t duration_us; /* 0: there is none, the loop is closed */
	int64_t give_up_us;
	uint32_t retries;
	enum rush_pause pause;
	int is_http;
	uint32_t sources; /* addresses that the connections come from; 0: one */
};

struct rush_plan {
	struct rush_coupons coupons;
	struct rush_users users;
	char (*codes)[RUSH_CODE_MAX + 1]; /* to claim, one for each user; or receives; NULL: none */
	uint32_t requests_per_user;
	uint32_t requests_n;
	int keys;          /* each user's requests carry the same idempotency key */
	enum rush_ack ack; /* RUSH_USED: `codes` are receives that are used */
	int64_t rate;      /* requests a second; 0: as fast as answers come */
	uint32_t connections_n;
	uint32_t pipeline;  /* unanswered requests of one connection */
	int64_t timeout_us; /* a later answer counts as unknown */
	struct rush_open_loop open;
};

/* Whether all requests of a user must get one receive: they have one key, or one code. */
static inline int rush_plan_repeats(const struct rush_plan *plan)
{
	return plan->keys || plan->codes;
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

void rush_plan_read(struct rush_plan *plan, const struct args *args);
void rush_plan_fini(struct rush_plan *plan);

/* Writes the request's line with its end, at most RUSH_LINE_MAX bytes, and returns its length. */
size_t rush_plan_line(const struct rush_plan *plan, uint32_t request, char *out);

/*
 * Over HTTP: the same as a request, at most RUSH_HTTP_MAX bytes and `fields`, the lines of its head
 * that are the same for all.
 */
size_t rush_plan_http(const struct rush_plan *plan, uint32_t request, const char *fields,
		      char *out);

/* When the request is due, in microseconds from the start. Only for plans with a rate. */
int64_t rush_plan_due_us(const struct rush_plan *plan, uint32_t request);

/* The pause before a user presses for the `retry`th time again, from 1 on. */
int64_t rush_plan_pause_us(const struct rush_plan *plan, uint32_t retry);

/* The times at which the users of an open loop come. The same seed and rate give the same times. */
struct rush_arrivals {
	uint64_t state;
	double gap_us; /* on average */
	double at_us;
};

void rush_arrivals_init(struct rush_arrivals *arrivals, const struct rush_plan *plan);
/* When the next user comes, in microseconds from the start. */
int64_t rush_arrivals_next(struct rush_arrivals *arrivals);
