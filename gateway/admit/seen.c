#include "gateway/admit/seen.h"

#define REPORT_PAUSE_MS 100 /* before the same coupon is reported or asked for again */

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

void seen_ask(const struct admission_port *port, struct coupon *coupon)
{
	int64_t now_ms = port->now_ms(port->context);

	if (now_ms < coupon->ask_after_ms || !port->ask)
		return;
	coupon->ask_after_ms = now_ms + REPORT_PAUSE_MS;
	port->ask(port->context, coupon->id);
}

void seen_report_begin(struct coupon_table *table)
{
	struct coupon *coupon;

	TAILQ_FOREACH_REVERSE(coupon, &table->by_use, coupons_by_use, by_use)
	{
		if (coupon->is_unreported || coupon->seen_generation == 0)
			continue;
		coupon->is_unreported = 1;
		TAILQ_INSERT_TAIL(&table->unreported, coupon, next_unreported);
	}
}

int seen_report_some(const struct admission_port *port, struct coupon_table *table, size_t most)
{
	struct coupon *coupon;

	for (size_t i = 0; i < most && (coupon = TAILQ_FIRST(&table->unreported)); i++) {
		TAILQ_REMOVE(&table->unreported, coupon, next_unreported);
		coupon->is_unreported = 0;
		report(port, coupon->id, coupon->seen_generation, coupon->seen_seq);
	}
	return !TAILQ_EMPTY(&table->unreported);
}
