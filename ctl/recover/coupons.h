/*
 * The coupons that Redis holds, and their terms. Redis has these twice: the whole row of the
 * coupon, as the keeper copied it, and those by which it decides. Either may be newer: couponctl
 * changes the latter by itself, and a draft has the former only.
 */
#ifndef CTL_RECOVER_COUPONS_H
#define CTL_RECOVER_COUPONS_H

#include "ctl/recover/context.h"

/* Their ids in ascending order, to be freed. Returns how many there are. */
size_t coupons_find(struct redis_client *redis, int64_t **ids);
/* Reads one. recover_coupon_fini() follows. */
void recover_coupon_read(struct recover_coupon *coupon, struct recover *recover, int64_t id);
void recover_coupon_fini(struct recover_coupon *coupon);

/*
 * Stops issuing, as the keeper does while PostgreSQL is behind, and removes the expiry of a coupon
 * that is over: nothing of it may vanish meanwhile.
 */
void recover_coupon_hold(const struct recover_coupon *coupon);
/* Removes all keys. */
void recover_coupon_delete(const struct recover_coupon *coupon);
/* The number of its users. */
int64_t recover_coupon_users(const struct recover_coupon *coupon);
/* Creates the coupon in PostgreSQL, or gives it the terms that Redis has if they are newer. */
void terms_restore(struct recover_coupon *coupon);
/* Raises the version in PostgreSQL above that of Redis, where PostgreSQL's terms then apply. */
void terms_keep(struct recover_coupon *coupon);

#endif
