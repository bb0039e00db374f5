/*
 * Coupons that are put off: a step that failed for one of them alone is tried again after a wait,
 * which doubles from 1 s to 10 s, while the other coupons have their turn. One thread.
 */
#ifndef KEEPER_PUT_OFF_H
#define KEEPER_PUT_OFF_H

#include <stdint.h>

#define PUT_OFF_N 256 /* of two coupons that share a place the last one is remembered */

/* All zero at first. */
struct put_off {
	struct put_off_coupon {
		int64_t coupon;
		int64_t due_ms;
		int64_t wait_ms;
	} coupons[PUT_OFF_N];
};

void put_off_add(struct put_off *put_off, int64_t coupon); /* it failed (logged and counted) */
int put_off_waits(const struct put_off *put_off, int64_t coupon);
void put_off_end(struct put_off *put_off, int64_t coupon);   /* it succeeded */
void put_off_hurry(struct put_off *put_off, int64_t coupon); /* it is due now */

#endif
