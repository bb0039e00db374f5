#include "gateway/admit/coupon_table.h"

#include "common/check.h"

#include <stdlib.h>

#define EVICT_TRIES 16 /* coupons examined to find one to evict */

void coupon_table_init(struct coupon_table *table, size_t max)
{
	table->coupons = NULL;
	table->max = max;
	TAILQ_INIT(&table->by_use);
	TAILQ_INIT(&table->unreported);
}

static void coupon_forget(struct coupon_table *table, struct coupon *coupon)
{
	HASH_DEL(table->coupons, coupon);
	TAILQ_REMOVE(&table->by_use, coupon, by_use);
	free(coupon);
}

void coupon_table_fini(struct coupon_table *table)
{
	struct coupon *coupon;

	while ((coupon = TAILQ_FIRST(&table->by_use)))
		coupon_forget(table, coupon);
}

struct coupon *coupon_table_find(const struct coupon_table *table, int64_t id)
{
	struct coupon *coupon;

	HASH_FIND(hh, table->coupons, &id, sizeof(id), coupon);
	return coupon;
}

/*
 * Evicts a coupon without open requests; 0, or -1 when none of the least recently used can be
 * evicted.
 */
static int evict(struct coupon_table *table, int64_t now_ms)
{
	struct coupon *coupon = TAILQ_FIRST(&table->by_use);

	for (int i = 0; coupon && i < EVICT_TRIES; i++, coupon = TAILQ_NEXT(coupon, by_use)) {
		if (coupon->open == 0 && coupon->calls == 0 && !coupon->looking &&
		    !coupon->is_ready && !coupon->is_unreported &&
		    coupon->doubt_until_ms <= now_ms) {
			coupon_forget(table, coupon);
			return 0;
		}
	}
	return -1;
}

struct coupon *coupon_table_get(struct coupon_table *table, int64_t id, int64_t now_ms)
{
	struct coupon *coupon = coupon_table_find(table, id);

	if (coupon) {
		TAILQ_REMOVE(&table->by_use, coupon, by_use);
		TAILQ_INSERT_TAIL(&table->by_use, coupon, by_use);
		return coupon;
	}
	if (HASH_COUNT(table->coupons) >= table->max && evict(table, now_ms))
		return NULL;
	coupon = calloc(1, sizeof(*coupon));
	check(coupon != NULL);
	coupon->id = id;
	STAILQ_INIT(&coupon->waiting);
	STAILQ_INIT(&coupon->parked);
	HASH_ADD(hh, table->coupons, id, sizeof(coupon->id), coupon);
	TAILQ_INSERT_TAIL(&table->by_use, coupon, by_use);
	return coupon;
}

int coupon_has_requests(const struct coupon *coupon)
{
	return coupon->calls > 0 || !STAILQ_EMPTY(&coupon->waiting);
}

void coupon_remember(struct coupon *coupon, enum answer answer, int64_t until_ms)
{
	coupon->memory = answer;
	coupon->memory_until_ms = until_ms;
}

int coupon_remembers(const struct coupon *coupon, const struct request *request, int64_t now_ms)
{
	return request->key_len == 0 && request->code_len == 0 && coupon->memory_until_ms > now_ms;
}

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
