/*
 * For couponctl rebuild: a coupon whose issuing is stopped is compared with PostgreSQL, slot by
 * slot and number by number, and is then opened as it is, or rebuilt where anything differs. The
 * keeper's thread.
 */
#ifndef KEEPER_REBUILD_COMPARE_H
#define KEEPER_REBUILD_COMPARE_H

#include "keeper/context.h"

/* 0, or -1 when Redis or PostgreSQL failed or another keeper was elected: the round is over. */
int compare_run(struct keeper_view *view, const struct coupon_row *row,
		const struct coupon_cache *cache);

#endif
