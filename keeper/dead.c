#include "keeper/dead.h"

int dead_read(struct keeper_context *context, int64_t coupon, const char *const *batches, size_t n,
	      char *marks)
{
	char key[COUPON_KEY_SIZE];

	coupon_key(coupon, COUPON_KEY_DEAD, key);
	for (size_t i = 0; i < n; i++)
		redis_client_append(context->redis, 3,
				    (const char *[]){ "SISMEMBER", key, batches[i] });
	for (size_t i = 0; i < n; i++) {
		redisReply *reply = redis_client_next(context->redis);

		marks[i] = reply && redis_reply_number(reply) != 0;
		if (reply)
			freeReplyObject(reply);
	}
	return redis_client_is_open(context->redis) ? 0 : -1;
}
