#include "ctl/recover/times.h"

#include "common/check.h"
#include "common/message/number.h"
#include "ctl/store.h"
#include "ctl/recover/pages.h"

#include <stdlib.h>
#include <string.h>

static void times_add(struct times *times, const struct ulid *batch, int64_t at_ms)
{
	if (times->n == times->size) {
		times->size = times->size ? 2 * times->size : 1024;
		times->list = realloc(times->list, times->size * sizeof(*times->list));
		check(times->list != NULL);
	}
	times->list[times->n++] = (struct time_of){ *batch, at_ms };
}

static int batch_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct ulid));
}

static void times_sort(struct times *times)
{
	_Static_assert(offsetof(struct time_of, batch) == 0, "compared from its beginning");
	if (times->n > 1)
		qsort(times->list, times->n, sizeof(*times->list), batch_compare);
}

/* Of "BATCH:AT". */
static void settled_take(void *context, const redisReply *page)
{
	struct times *times = context;

	for (size_t i = 0; i < page->elements; i++) {
		const redisReply *entry = page->element[i];
		struct ulid batch;
		int64_t at_ms;

		if (entry->len > ULID_LEN && entry->str[ULID_LEN] == ':' &&
		    ulid_parse(&batch, entry->str, ULID_LEN) == 0 &&
		    number_parse(entry->str + ULID_LEN + 1, INT64_MAX, &at_ms) == 0)
			times_add(times, &batch, at_ms);
	}
}

void times_read_settled(struct times *times, struct redis_client *redis, int64_t coupon)
{
	pages_read(redis, coupon, COUPON_KEY_SETTLED, settled_take, times);
	times_sort(times);
}

static void message_take(void *context, const struct message *message)
{
	times_add(context, &message->batch, message->at_ms);
}

void times_read_outbox(struct times *times, struct redis_client *redis, int64_t coupon)
{
	outbox_scan(redis, coupon, message_take, times);
	times_sort(times);
}

void times_fini(struct times *times)
{
	free(times->list);
	*times = (struct times){ 0 };
}

int times_find(const struct times *times, const struct ulid *batch, int64_t *at_ms)
{
	const struct time_of *found = NULL;

	if (times->n > 0)
		found = bsearch(batch, times->list, times->n, sizeof(*times->list), batch_compare);
	if (found)
		*at_ms = found->at_ms;
	return found ? 0 : -1;
}
