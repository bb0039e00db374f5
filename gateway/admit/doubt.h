/*
 * Coupons in doubt: a request for them may still take effect. Every process of the gateway records
 * in shared memory for which coupons it holds requests, and for which the outcome of a call became
 * unknown, and reads the records of the others. The records are kept by a hash of the coupon: of
 * two coupons with the same hash, one may be in doubt because of the other, which is harmless.
 */
#ifndef GATEWAY_ADMIT_DOUBT_H
#define GATEWAY_ADMIT_DOUBT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Makes the pages of `processes` processes; before the fork. With one process, or without this
 * call, nothing is recorded.
 */
void doubt_init(size_t processes);
/*
 * From now on this process records on page `process`. If a predecessor died, every coupon is in
 * doubt for `memory_ms`.
 */
void doubt_enter(size_t process, int64_t now_ms, int64_t memory_ms);

/* Records that this process holds requests for the coupon, or (`busy` 0) that it no longer does. */
void doubt_busy(int64_t coupon, int busy);
/* The outcome of a call for the coupon is unknown. */
void doubt_until(int64_t coupon, int64_t until_ms);

/*
 * Whether the coupon is in doubt by the records of other processes, or of a predecessor of this
 * one.
 */
int doubt_elsewhere(int64_t coupon, int64_t now_ms);

#endif
