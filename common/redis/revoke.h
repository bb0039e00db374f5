/* Revoked exchange codes in Redis, where they are decided: see lua/revoke.lua. */
#ifndef COMMON_REDIS_REVOKE_H
#define COMMON_REDIS_REVOKE_H

#include "common/redis/client.h"

#define REDIS_REVOKE_CODES_MAX 512 /* of a call */

/* Of revocations above `from`, up to `to`, in the copy of this generation. */
struct redis_revocation {
	const char *run_id; /* of the Redis process */
	int64_t coupon, generation, from, to;
};

enum redis_revoked {
	REDIS_REVOKED_FAILED, /* as redis_client_call() */
	REDIS_REVOKED_DONE,
	REDIS_REVOKED_MISSING, /* Redis does not have the coupon: it is loaded with the codes */
	REDIS_REVOKED_BEHIND   /* Redis has another copy by now, or lost revocations up to `from` */
};

/*
 * Marks codes, each as Redis names it. The last call has `is_last`, and possibly no codes: it
 * records that all revocations up to `to` are marked. What Redis has accepted until then in this
 * generation has at most this `seq`; -1: Redis cannot tell, it may have lost numbers.
 */
enum redis_revoked redis_revoke(struct redis_client *redis,
				const struct redis_revocation *revocation, int is_last, size_t n,
				const char *const *codes, int64_t *seq);

/*
 * A value of coupon:{ID}:codes is the user who has redeemed the code, "" if it is revoked, or the
 * user and a space: revoked as soon as that receive loses it. The length of the user; 0: none.
 */
size_t redis_code_user(const redisReply *value);
int redis_code_is_revoked(const redisReply *value); /* now, or later */

#endif
