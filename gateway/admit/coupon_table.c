#include "gateway/admit/coupon_table.h"

#include "common/check.h"
#include "common/hash.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#define EVICT_TRIES 16 /* coupons examined to find one to evict */

void coupon_table_init(struct coupon_table *table, size_t max)
{
	table->coupons = NULL;
	table->max = max;
	TAILQ_INIT(&table->by_use);
	TAILQ_INIT(&table->unreported);
	TAILQ_INIT(&table->refused);
}

static void coupon_forget(struct coupon_table *table, struct coupon *coupon)
{
	HASH_DEL(table->coupons, coupon);
	TAILQ_REMOVE(&table->by_use, coupon, by_use);
	if (coupon->is_refused)
		TAILQ_REMOVE(&table->refused, coupon, next_refused);
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

struct coupon *coupon_table_get(struct coupon_table *table, int64_t id, int64_t now_ms)
{
	struct coupon *coupon = coupon_table_find(table, id), *old;

	if (coupon) {
		TAILQ_REMOVE(&table->by_use, coupon, by_use);
		TAILQ_INSERT_TAIL(&table->by_use, coupon, by_use);
		return coupon;
	}

	/* Evicts one on which nothing depends, of the least recently used ones. */
	if (HASH_COUNT(table->coupons) >= table->max) {
		int tries = EVICT_TRIES;

		old = TAILQ_FIRST(&table->by_use);
		while (old && (old->open > 0 || old->calls > 0 || old->looking || old->is_ready ||
			       old->is_unreported || old->doubt_until_ms > now_ms))
			old = --tries > 0 ? TAILQ_NEXT(old, by_use) : NULL;
		if (!old)
			return NULL;
		coupon_forget(table, old);
	}

	coupon = checked(calloc(1, sizeof(*coupon)));
	coupon->id = coupon->refusals.coupon = id;
	STAILQ_INIT(&coupon->waiting);
	STAILQ_INIT(&coupon->parked);
	HASH_ADD(hh, table->coupons, id, sizeof(coupon->id), coupon);
	TAILQ_INSERT_TAIL(&table->by_use, coupon, by_use);
	return coupon;
}

#define SLOTS 4096 /* a power of two */

/* What one process recorded. Only that process writes it. */
struct doubt_page {
	atomic_int_least64_t busy[SLOTS];     /* coupons with this hash that have requests */
	atomic_int_least64_t until_ms[SLOTS]; /* monotonic, which all processes share */
	atomic_int_least64_t all_until_ms;
	atomic_int entered;
};

static struct doubt_page *pages;
static size_t pages_n; /* 0: this is the only process */
static size_t mine;

static size_t slot_of(int64_t coupon)
{
	return (size_t)hash_keyed(&coupon, sizeof(coupon)) & (SLOTS - 1);
}

void doubt_init(size_t processes)
{
	if (processes < 2)
		return;
	pages = mmap(NULL, processes * sizeof(*pages), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(pages != MAP_FAILED);
	pages_n = processes;
}

void doubt_enter(size_t process, int64_t now_ms, int64_t memory_ms)
{
	struct doubt_page *page;

	if (pages_n == 0)
		return;
	check(process < pages_n);
	mine = process;
	page = &pages[process];
	if (atomic_exchange(&page->entered, 1)) /* before the busy counts are cleared */
		atomic_store(&page->all_until_ms, now_ms + memory_ms);
	for (size_t i = 0; i < SLOTS; i++)
		atomic_store(&page->busy[i], 0);
}

void doubt_busy(int64_t coupon, int busy)
{
	if (pages_n > 0)
		atomic_fetch_add(&pages[mine].busy[slot_of(coupon)], busy ? 1 : -1);
}

void doubt_until(int64_t coupon, int64_t until_ms)
{
	if (pages_n > 0)
		atomic_store(&pages[mine].until_ms[slot_of(coupon)], until_ms);
}

int doubt_elsewhere(int64_t coupon, int64_t now_ms)
{
	size_t slot = slot_of(coupon);

	for (size_t i = 0; i < pages_n; i++) {
		const struct doubt_page *page = &pages[i];

		if (page->all_until_ms > now_ms ||
		    (i != mine && (page->busy[slot] > 0 || page->until_ms[slot] > now_ms)))
			return 1;
	}
	return 0;
}
