/* The audit of one coupon. */
#ifndef CTL_AUDIT_COUPON_H
#define CTL_AUDIT_COUPON_H

#include "ctl/audit/watch.h"

struct coupon_audit {
	struct audit *audit;
	int64_t coupon;
	struct pass pass; /* the last one */
	struct watch watch;
	enum sum_verdict sum;
	int passes_n;
	int suspected_n; /* passes that found the sum wrong while receives were accepted */
	int is_void;     /* the last pass has no sure sum */
};

/* A coupon that PostgreSQL has: its pass, and the first look of the watch. */
struct coupon_audit *coupon_audit_new(struct audit *audit, int64_t coupon);
/*
 * When the watch is done. 1: the coupon was rebuilt, loaded or unloaded meanwhile, and there is a
 * new pass.
 */
int coupon_audit_again(struct coupon_audit *one);
/*
 * Judges the pass and its `stall`, and frees it. The figures are appended to `coupons`, or printed
 * when that is NULL.
 */
void coupon_audit_end(struct coupon_audit *one, cJSON *coupons);

#endif
