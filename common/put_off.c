#include "common/put_off.h"

#include "common/check.h"

#include <stdlib.h>

static void entry_free(struct put_off *put_off, struct put_off_coupon *entry)
{
	HASH_DEL(put_off->coupons, entry);
	free(entry);
}

void put_off_clear(struct put_off *put_off)
{
	struct put_off_coupon *entry, *next;

	HASH_ITER (hh, put_off->coupons, entry, next)
		entry_free(put_off, entry);
}

void put_off_forget(struct put_off *put_off, int64_t before_ms)
{
	struct put_off_coupon *entry, *next;

	HASH_ITER (hh, put_off->coupons, entry, next)
		if (entry->held == 0 && entry->due_ms < before_ms)
			entry_free(put_off, entry);
}

struct put_off_coupon *put_off_find(const struct put_off *put_off, int64_t coupon)
{
	struct put_off_coupon *entry;

	HASH_FIND(hh, put_off->coupons, &coupon, sizeof(coupon), entry);
	return entry;
}

int put_off_waits(const struct put_off *put_off, int64_t coupon, int64_t now_ms)
{
	const struct put_off_coupon *entry = put_off_find(put_off, coupon);

	return entry && now_ms < entry->due_ms;
}

struct put_off_coupon *put_off_add(struct put_off *put_off, int64_t coupon, int64_t now_ms)
{
	struct put_off_coupon *entry = put_off_find(put_off, coupon), *oldest;

	if (entry) {
		entry->wait_ms *= 2;
	} else {
		oldest = HASH_COUNT(put_off->coupons) >= PUT_OFF_MAX ? put_off->coupons : NULL;
		while (oldest && oldest->held > 0)
			oldest = oldest->hh.next;
		if (oldest)
			entry_free(put_off, oldest);
		entry = checked(calloc(1, sizeof(*entry)));
		entry->coupon = coupon;
		entry->wait_ms = put_off->first_ms;
		HASH_ADD(hh, put_off->coupons, coupon, sizeof(entry->coupon), entry);
	}
	if (entry->wait_ms > put_off->longest_ms)
		entry->wait_ms = put_off->longest_ms;
	entry->failures++;
	entry->due_ms = now_ms + entry->wait_ms;
	return entry;
}

void put_off_end(struct put_off *put_off, int64_t coupon)
{
	struct put_off_coupon *entry = put_off_find(put_off, coupon);

	if (entry)
		entry_free(put_off, entry);
}

void put_off_hurry(struct put_off *put_off, int64_t coupon)
{
	struct put_off_coupon *entry = put_off_find(put_off, coupon);

	if (entry)
		entry->due_ms = 0;
}
