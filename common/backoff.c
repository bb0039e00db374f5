#include "common/backoff.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int64_t jitter(int64_t wait)
{
	uint32_t random;

	check(getrandom(&random, sizeof(random), 0) == sizeof(random));
	return wait / 2 + random % (wait / 2 + 1);
}

int64_t backoff_ms(struct backoff *backoff)
{
	int64_t wait = backoff->next_ms ? backoff->next_ms : BACKOFF_FIRST_MS;

	backoff->next_ms = wait * 2 > BACKOFF_MOST_MS ? BACKOFF_MOST_MS : wait * 2;
	return jitter(wait);
}

int64_t backoff_connect_ms(struct backoff *backoff)
{
	if (backoff->tries < BACKOFF_CONNECT_TRIES) {
		backoff->tries++;
		backoff->next_ms = BACKOFF_CONNECT_MS;
		return jitter(BACKOFF_CONNECT_MS);
	}
	return backoff_ms(backoff);
}

int backoff_tells(struct backoff *backoff, const char *why, int64_t now_ms)
{
	uint64_t reason = hash_keyed(why, strlen(why)) | 1;
	int64_t pause_ms = backoff->told == reason ? BACKOFF_TELL_MS : BACKOFF_TELL_OTHER_MS;

	if (backoff->told && now_ms - backoff->told_ms < pause_ms)
		return 0;
	backoff->told = reason;
	backoff->told_ms = now_ms;
	return 1;
}

void backoff_reset(struct backoff *backoff)
{
	*backoff = (struct backoff){ 0 };
}

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

static void oldest_forget(struct put_off *put_off)
{
	struct put_off_coupon *entry, *next;

	HASH_ITER (hh, put_off->coupons, entry, next) {
		if (entry->held > 0)
			continue;
		entry_free(put_off, entry);
		return;
	}
}

static struct put_off_coupon *entry_new(struct put_off *put_off, int64_t coupon)
{
	struct put_off_coupon *entry = checked(calloc(1, sizeof(*entry)));

	if (HASH_COUNT(put_off->coupons) >= PUT_OFF_MAX)
		oldest_forget(put_off);
	entry->coupon = coupon;
	entry->wait_ms = put_off->first_ms;
	HASH_ADD(hh, put_off->coupons, coupon, sizeof(entry->coupon), entry);
	return entry;
}

struct put_off_coupon *put_off_add(struct put_off *put_off, int64_t coupon, int64_t now_ms)
{
	struct put_off_coupon *entry = put_off_find(put_off, coupon);

	if (!entry)
		entry = entry_new(put_off, coupon);
	else
		entry->wait_ms *= 2;
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
