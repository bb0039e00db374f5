/* The steps of couponctl recover for one coupon. */
#ifndef CTL_RECOVER_COUPON_H
#define CTL_RECOVER_COUPON_H

#include "ctl/recover/context.h"

void recover_coupon_run(struct recover *recover, int64_t id);

#endif
