/* A coupon as Redis has it. */
#ifndef CTL_REDIS_COUPON_H
#define CTL_REDIS_COUPON_H

#include "common/redis/client.h"

#include <stdint.h>

/* Numbers are 0 where the hash does not have them. */
struct redis_coupon {
	char status[16];
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t total, stock, reserved, lost, begin_ms, end_ms, limit, generation, seq, version;
	int64_t late; /* the last outcome of an older generation that was applied */
};

struct terms {
	int64_t version;
	const char *status;                     /* of PostgreSQL: published, paused or closed */
	int64_t total, begin_ms, end_ms, limit; /* 0 ms: no bound */
};

enum terms_result { TERMS_APPLIED, TERMS_CURRENT, TERMS_MISSING, TERMS_TAKEN, TERMS_FAILED };

/*
 * 1 when Redis has the coupon, 0 when it does not; below 0 when the call failed, for
 * redis_client_error().
 */
int redis_coupon_read(struct redis_client *redis, int64_t coupon, struct redis_coupon *read);
/* Whether it was verified on the connected Redis process; 0 also when that is unknown. */
int redis_coupon_is_verified(struct redis_client *redis, const struct redis_coupon *read);

/* How far a rebuild is. */
struct redis_filled {
	int64_t filled, rows; /* slots in Redis, of all */
	int64_t ms;           /* since the first one */
};

/* 1 when the keeper has said so of a rebuild that takes longer; otherwise 0. */
int redis_coupon_filled(struct redis_client *redis, int64_t coupon, struct redis_filled *filled);
/* Of what is left, at the same speed, in s. */
int64_t redis_filled_left_s(const struct redis_filled *filled);

/* lua/terms.lua; `*taken` is set when the result is TERMS_TAKEN. */
enum terms_result redis_coupon_terms(struct redis_client *redis, int64_t coupon,
				     const struct terms *terms, int64_t *taken);

#endif
