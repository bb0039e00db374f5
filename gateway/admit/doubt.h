/*
 * Coupons in doubt: those of which a request may still take effect. Every process of the gateway
 * records in shared memory for which coupons it holds requests, and for which the outcome of a call
 * became unknown, and reads what the others recorded. Recorded by a hash of the coupon: of two
 * coupons with the same hash, one may be in doubt because of the other, which is harmless.
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
 * From now on this process records on page `process`. If it had a predecessor, which died, every
 * coupon is in doubt for `memory_ms`.
 */
void doubt_enter(size_t process, int64_t now_ms, int64_t memory_ms);

/* This process holds requests for the coupon from now on, or (`busy` 0) holds none any more. */
void doubt_busy(int64_t coupon, int busy);
/* The outcome of a call for the coupon is unknown. */
void doubt_until(int64_t coupon, int64_t until_ms);

/* Whether the coupon is in doubt by what other processes, or a predecessor of this one, recorded. */
int doubt_elsewhere(int64_t coupon, int64_t now_ms);

#endif
