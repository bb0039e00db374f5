/*
 * Compares Redis with PostgreSQL before a coupon is opened: by its numbers after Redis was
 * restarted, slot by slot for couponctl rebuild. The keeper's thread.
 */
#ifndef KEEPER_REBUILD_COMPARE_H
#define KEEPER_REBUILD_COMPARE_H

#include "keeper/context.h"

/*
 * For couponctl rebuild: compares a coupon while it is open, and puts its numbers right; where it
 * changes all the time or anything else differs, it is held and compared again, and rebuilt if that
 * is so. 0, or -1 when Redis or PostgreSQL failed or another keeper was elected: the round is over.
 */
int compare_run(struct keeper_context *context, const struct coupon_row *row,
		const struct coupon_look *look);

/*
 * Opens coupons, at most KEEPER_PAGE, on the connected Redis process if no numbers are missing
 * there: lua/verify.lua. All of them take two statements and one round trip to Redis. Each of
 * `words` gets the reply of the script, empty when Redis failed or refused. Before that, all
 * rejected receives are marked to be released again, because Redis may have lost releases. 0, or -1
 * when PostgreSQL failed.
 */
int compare_verify(struct keeper_context *context, const struct coupon_row *const *rows, size_t n,
		   char (*words)[REDIS_WORD_SIZE]);

#endif
