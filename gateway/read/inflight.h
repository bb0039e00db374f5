/*
 * What may still take effect, told by every process of the gateway to all of them, in shared
 * memory: of which coupons requests are in hand, and of which a call's outcome became unknown. By a
 * hash of the coupon: two that share one are only told unsure more often.
 */
#ifndef GATEWAY_READ_INFLIGHT_H
#define GATEWAY_READ_INFLIGHT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Makes the pages of `processes` processes; before the fork. Without it there is one process, and
 * nobody else to tell.
 */
void unsure_init(size_t processes);
/*
 * From now on this process tells on page `process`. What a predecessor had in hand when it died is
 * unsure for `memory_ms`.
 */
void unsure_enter(size_t process, int64_t now_ms, int64_t memory_ms);

void unsure_busy(int64_t coupon,
		 int busy); /* requests of it came into this process' hands, or none is left */
void unsure_until(int64_t coupon, int64_t until_ms); /* a call's outcome is unknown */

int unsure_elsewhere(
	int64_t coupon,
	int64_t now_ms); /* by what the other processes told, and one's own predecessor */

#endif
