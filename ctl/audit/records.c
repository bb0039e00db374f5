#include "ctl/audit/records.h"

#include "common/check.h"
#include "ctl/store.h"

#define STEP_USERS 250 /* of one slot each: Redis needs about 0.3 ms */
#define STEP_LEAST 20

size_t records_step(int64_t limit)
{
	int64_t step = limit > 0 ? 2 * STEP_USERS / limit : STEP_USERS;

	return step > STEP_USERS ? STEP_USERS : step < STEP_LEAST ? STEP_LEAST : (size_t)step;
}

redisReply *records_read(struct redis_client *redis, int64_t coupon, const struct slot *slots,
			 size_t n)
{
	const char *argv[STEP_USERS + 2];
	char key[COUPON_KEY_SIZE];
	redisReply *reply;

	check(n >= 1 && n <= STEP_USERS);
	argv[0] = "HMGET";
	argv[1] = coupon_key(coupon, COUPON_KEY_USERS, key);
	for (size_t i = 0; i < n; i++)
		argv[i + 2] = slots[i].user.text;
	reply = redis_client_call(redis, (int)n + 2, argv);
	store_redis_check(redis, reply != NULL);
	check(reply->type == REDIS_REPLY_ARRAY && reply->elements == n);
	return reply;
}

enum slot_found records_look_up(const redisReply *records, const struct slot *slot, const char *key,
				struct slot *found)
{
	if (records->type != REDIS_REPLY_STRING)
		return SLOT_NONE;
	return slot_look_up(slot, key, records->str, records->len, found);
}
