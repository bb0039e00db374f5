/*
 * The exchange codes of a coupon in Redis: those that are redeemed follow from the records of the
 * users, those that are revoked from PostgreSQL. The keeper's thread.
 */
#ifndef KEEPER_REBUILD_CODES_H
#define KEEPER_REBUILD_CODES_H

#include "keeper/context.h"
#include "keeper/rebuild/snapshot.h"

/*
 * Writes the revoked codes under the temporary name of this generation, before the users. 0, or -1.
 */
int codes_revoked_write(struct keeper_context *context, struct snapshot *snapshot,
			int64_t generation);

/* The same for a coupon that is loaded for the first time, in a transaction of its own. */
int codes_load(struct keeper_context *context, const struct coupon_row *row, int64_t generation);

/*
 * A comparison: first codes_compare_users() of every step of a scan of the users, then
 * codes_compare_end(). Each 0, or -1 when a store failed. `differs` is set if Redis has other
 * codes than the records of the users and PostgreSQL say. It may have more revoked ones: couponctl
 * marks them there first.
 */
struct codes_compare {
	struct keeper_context *context;
	int64_t redeemed;
	int differs;
};

int codes_compare_users(struct codes_compare *compare, int64_t coupon, const redisReply *pairs);
int codes_compare_end(struct codes_compare *compare, struct snapshot *snapshot);

#endif
