#include "ctl/codes/revoke/marks.h"

#include "common/check.h"
#include "common/redis/key.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>

void revoke_marks_set(struct redis_client *redis, int64_t coupon, struct revoke_mark *marks,
		      size_t n)
{
	const char *argv[REVOKE_MARKS_MAX];
	redisReply *reply;
	int is_there;

	check(n >= 1 && n <= REVOKE_MARKS_MAX);
	for (size_t i = 0; i < n; i++)
		argv[i] = marks[i].code;
	reply = redis_client_coupon_eval(redis, lua_revoke, coupon,
					 COUPON_KEY_COUPON | COUPON_KEY_CODES, (int)n, argv);
	store_redis_check(redis, reply != NULL);
	is_there = reply->type == REDIS_REPLY_ARRAY && reply->elements == n + 1;
	for (size_t i = 0; i < n; i++)
		snprintf(marks[i].user, sizeof(marks[i].user), "%s",
			 is_there ? reply->element[i + 1]->str : "");
	freeReplyObject(reply);
}
