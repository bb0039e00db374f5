/* What couponctl recover prints: a line for each thing that is named, then a summary. */
#ifndef CTL_RECOVER_REPORT_H
#define CTL_RECOVER_REPORT_H

#include "ctl/recover/context.h"

/* `what` is a constant such as "created"; `detail` may be NULL. */
void report_coupon(struct recover *recover, const char *what, int64_t coupon, const char *detail);
/* A receive that is lost, or rejected with this reason. */
void report_receive(struct recover *recover, const char *what, int64_t coupon,
		    const struct held *held, const char *reason);
void report_end(struct recover *recover, int64_t ms);

#endif
