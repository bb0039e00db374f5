/* What the keeper does for one coupon: load, verify, give it newer terms. The keeper's thread. */
#ifndef WORKER_KEEPER_COUPON_H
#define WORKER_KEEPER_COUPON_H

#include "worker/keeper_database.h"
#include "worker/keeper_redis.h"

/* What was logged last of a coupon, so that a state that lasts is told once. Two coupons may share a place. */
#define KEEPER_TOLD_N 1024

struct keeper_told {
	int64_t coupon;
	const char *event; /* a constant */
};

struct keeper_view {
	struct keeper_redis *redis;
	struct keeper_database *database;
	int64_t fence;
	int fenced;  /* somebody has a higher fence: a new election is needed */
	int refused; /* the last script was refused for this coupon alone */
	char run_id[KEEPER_RUN_ID_SIZE];
	struct keeper_told told[KEEPER_TOLD_N];
};

/* Somebody has a higher fence (logged). Returns -1. */
int keeper_fenced(struct keeper_view *view);

/* 0, or -1 when Redis or PostgreSQL failed or another keeper was elected: the round is over. */
int keeper_coupon_step(struct keeper_view *view, const struct coupon_row *row, const struct coupon_cache *cache);

#endif
