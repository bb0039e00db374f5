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
