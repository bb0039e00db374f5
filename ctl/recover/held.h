/* The slots of a coupon in Redis, some hundred at a time, and what PostgreSQL has of them. */
#ifndef CTL_RECOVER_HELD_H
#define CTL_RECOVER_HELD_H

#include "ctl/recover/context.h"

#define HELD_MAX 4000
/* Calls `take` with at most HELD_MAX slots at a time, which it may reorder. Shows the progress. */
typedef void held_fn(struct recover_coupon *coupon, struct held *list, size_t n);
void held_read(struct recover_coupon *coupon, held_fn *take);
/* Keeps those without an outcome in PostgreSQL, and returns how many there are. */
size_t held_keep_open(struct recover_coupon *coupon, struct held *list, size_t n);

/*
 * When the batch was accepted: as the list of settled batches says, or its message in the outbox,
 * or else its id, whose clock is a gateway's.
 */
int64_t held_time(struct recover_coupon *coupon, const struct ulid *batch);
/* Whether the message is in the outbox. */
int held_is_sent(struct recover_coupon *coupon, const struct ulid *batch);
/* Reads a list of a coupon in Redis, page by page. */
#define PAGES_PAGE 500 /* entries */
typedef void pages_fn(void *context, const redisReply *page);
void pages_read(struct redis_client *redis, int64_t coupon, enum coupon_key which, pages_fn *take,
		void *context);

#endif
