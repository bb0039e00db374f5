#include "ctl/recover/pages.h"

#include "common/message/number.h"
#include "ctl/store.h"

void pages_read(struct redis_client *redis, int64_t coupon, enum coupon_key which, pages_fn *take,
		void *context)
{
	char key[COUPON_KEY_SIZE], first[NUMBER_SIZE], last[NUMBER_SIZE];
	const char *lrange[] = { "LRANGE", coupon_key(coupon, which, key), first, last };
	size_t n;

	for (int64_t from = 0;; from += PAGES_PAGE) {
		redisReply *page;

		number_text(from, first);
		number_text(from + PAGES_PAGE - 1, last);
		page = redis_client_call(redis, 4, lrange);
		store_redis_check(redis, page != NULL);
		n = page->elements;
		if (n > 0)
			take(context, page);
		freeReplyObject(page);
		if (n < PAGES_PAGE)
			return;
	}
}
