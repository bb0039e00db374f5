/*
 * The highest generation of a coupon that Redis has named to this process, and the highest seq in
 * it. They are sent with every call, so that a Redis that has fallen behind refuses it. They are
 * also reported, for the keeper, to a Redis that refuses the coupon or may have lost data. Part of
 * admission.
 */
#ifndef GATEWAY_ADMIT_SEEN_H
#define GATEWAY_ADMIT_SEEN_H

#include "gateway/admit/admission_port.h"
#include "gateway/admit/coupon_table.h"

/* Redis named this generation and seq in a reply with a decision. */
void seen_raise(const struct admission_port *port, struct coupon *coupon, int64_t generation,
		int64_t seq);

/* Redis refuses the coupon: reports what was seen, unless a report was sent a moment ago. */
void seen_report(const struct admission_port *port, struct coupon *coupon);
/* Reports the most recently used coupons. */
void seen_report_recent(const struct admission_port *port, const struct coupon_table *table);

#endif
