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
/* Tells the keeper that a client asks for this coupon, unless it was told a moment ago. */
void seen_ask(const struct admission_port *port, struct coupon *coupon);

/*
 * To a new connection all that was seen is reported, a few coupons at a time, the most recently
 * used ones first. Those that are left from an earlier beginning are reported once.
 */
void seen_report_begin(struct coupon_table *table);
/* Reports some of what is left. Returns whether more is left. */
int seen_report_some(const struct admission_port *port, struct coupon_table *table, size_t most);

#endif
