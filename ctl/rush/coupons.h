/*
 * The coupons of a rush, in the order of their ids. Which of them a user requests is decided by
 * rush_users_choice().
 */
#ifndef CTL_RUSH_COUPONS_H
#define CTL_RUSH_COUPONS_H

#include "common/message/id.h"
#include "ctl/args.h"

#define RUSH_COUPONS_MAX 100000

struct rush_coupon {
	int64_t id;
	char text[ID_SIZE];
	size_t len; /* of the text */
};

struct rush_coupons {
	struct rush_coupon *list;
	uint32_t n, size;
};

/* From the command line. A wrong option ends the process. */
void rush_coupons_read(struct rush_coupons *coupons, const struct args *args);
void rush_coupons_fini(struct rush_coupons *coupons);

void rush_coupons_add(struct rush_coupons *coupons, int64_t id);
/* After the last one was added. Returns an id that was added twice, or 0. */
int64_t rush_coupons_sort(struct rush_coupons *coupons);

/* The index of a coupon, or -1. */
int64_t rush_coupons_find(const struct rush_coupons *coupons, int64_t id);

#endif
