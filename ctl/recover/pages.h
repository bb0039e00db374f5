/* Reads a list of a coupon in Redis, page by page. */
#ifndef CTL_RECOVER_PAGES_H
#define CTL_RECOVER_PAGES_H

#include "common/redis/client.h"

#define PAGES_PAGE 500 /* entries */

typedef void pages_fn(void *context, const redisReply *page);
void pages_read(struct redis_client *redis, int64_t coupon, enum coupon_key which, pages_fn *take,
		void *context);

#endif
