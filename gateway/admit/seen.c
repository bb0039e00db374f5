#include "gateway/admit/seen.h"

#define REPORT_PAUSE_MS 100     /* before the same coupon is reported again */
#define REPORT_COUPONS_MAX 1024 /* at a new connection */

static void report(const struct admission_port *port, int64_t coupon, int64_t generation,
		   int64_t seq)
{
	if (generation > 0 && seq > 0)
		port->report(port->context, coupon, generation, seq);
}

void seen_raise(const struct admission_port *port, struct coupon *coupon, int64_t generation,
		int64_t seq)
{
	if (generation > coupon->seen_generation) {
		coupon->seen_generation = generation;
		coupon->seen_seq = seq;
	} else if (generation < coupon->seen_generation) {
		/*
		 * A reply over another connection named a later generation first: the rebuild that
		 * made it may not have counted this seq.
		 */
		report(port, coupon->id, generation, seq);
	} else if (seq > coupon->seen_seq) {
		coupon->seen_seq = seq;
	}
}

void seen_report(const struct admission_port *port, struct coupon *coupon)
{
	int64_t now_ms = port->now_ms(port->context);

	if (now_ms < coupon->report_after_ms)
		return;
	coupon->report_after_ms = now_ms + REPORT_PAUSE_MS;
	report(port, coupon->id, coupon->seen_generation, coupon->seen_seq);
}

void seen_report_recent(const struct admission_port *port, const struct coupon_table *table)
{
	struct coupon *coupon = TAILQ_LAST(&table->by_use, coupons_by_use);

	for (int i = 0; coupon && i < REPORT_COUPONS_MAX;
	     i++, coupon = TAILQ_PREV(coupon, coupons_by_use, by_use))
		report(port, coupon->id, coupon->seen_generation, coupon->seen_seq);
}
