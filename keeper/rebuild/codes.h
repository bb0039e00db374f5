/*
 * The exchange codes of a coupon in Redis: those that are redeemed follow from the records of the
 * users, those that are revoked from PostgreSQL. The keeper's thread.
 */
#ifndef KEEPER_REBUILD_CODES_H
#define KEEPER_REBUILD_CODES_H

#include "keeper/context.h"
#include "keeper/rebuild/snapshot.h"

/*
 * Writes the codes that were revoked after the revocation `above` under the temporary name of this
 * generation. 0, or -1.
 */
int codes_fill(struct keeper_context *context, struct snapshot *snapshot, int64_t generation,
	       int64_t above);

/*
 * The same in a transaction of its own, for codes that were revoked after a snapshot that has the
 * revocations up to `revocation`; it becomes the number of the last one, or stays if there are
 * none.
 */
int codes_fill_more(struct keeper_context *context, int64_t coupon, int64_t generation,
		    int64_t *revocation);

/* Marks the revoked codes that Redis does not have yet: couponctl has died meanwhile. 0, or -1. */
int codes_revoke(struct keeper_context *context, const struct coupon_row *row,
		 const struct coupon_look *look);

/*
 * A comparison: first codes_compare_users() of the slots of every user, then
 * codes_compare_end(). Each 0, or -1 when a store failed. `differs` is set if Redis has other
 * codes than the records of the users and PostgreSQL say.
 */
struct codes_compare {
	struct keeper_context *context;
	int64_t redeemed, found; /* by the records of the users, and in Redis */
	int differs;
};

int codes_compare_users(struct codes_compare *compare, int64_t coupon, const struct slots *slots);
int codes_compare_end(struct codes_compare *compare, struct snapshot *snapshot);

#endif
