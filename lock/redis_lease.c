#include "lock/redis_lease.h"

#include "common/check.h"
#include "common/clock.h"
#include "embed.h"

#include <stdio.h>

void redis_lease_init(struct redis_lease *lease, struct redis_client *client, int is_reconnecting)
{
	struct ulid id;

	*lease = (struct redis_lease){ .client = client, .is_reconnecting = is_reconnecting };
	ulid_new(&id, clock_wall_ms());
	ulid_format(&id, lease->session);
}

void redis_lease_begin(struct redis_lease *lease, const struct lock_request *request)
{
	static const char *const kinds[] = {
		[LOCK_EXCLUSIVE] = "x", [LOCK_FAIR] = "f", [LOCK_READ] = "r", [LOCK_WRITE] = "w"
	};

	snprintf(lease->token, sizeof(lease->token), "%s.%lld", lease->session,
		 (long long)++lease->grants);
	snprintf(lease->name, sizeof(lease->name), "couponmq:lock:{%s}", request->name);
	snprintf(lease->queue, sizeof(lease->queue), "%s:queue", lease->name);
	snprintf(lease->seen, sizeof(lease->seen), "%s:seen", lease->name);
	lease->kind = kinds[request->kind];
	number_text(request->lease_ms, lease->lease);
	lease->fence = lease->until_ms = 0;
}

/* NULL: *failed tells how. The script may be run again, because of the token. */
static redisReply *script_run(struct redis_lease *lease, int argc, const char **argv,
			      enum lock_reply *failed)
{
	const char *keys[] = { lease->name, lease->queue, lease->seen };
	int attempts = lease->is_reconnecting && redis_client_is_open(lease->client) ? 2 : 1;
	redisReply *reply = NULL;

	while (!reply && attempts-- > 0) {
		if (!lease->is_reconnecting || redis_client_open(lease->client) == 0)
			reply = redis_client_eval(lease->client, lua_lock, 3, keys, argc, argv);
		if (redis_client_is_open(lease->client))
			break;
	}
	*failed = redis_client_is_open(lease->client) ? LOCK_REPLY_ERROR : LOCK_REPLY_DOWN;
	return reply;
}

enum lock_reply redis_lease_take(struct redis_lease *lease, int64_t waiter_ms, int64_t *left_ms)
{
	char waiter[NUMBER_SIZE];
	const char *argv[] = { "take", lease->kind, lease->token, lease->lease,
			       number_text(waiter_ms, waiter) };
	enum lock_reply answer;
	redisReply *reply = script_run(lease, 5, argv, &answer);

	if (!reply)
		return answer;
	check(reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2);
	answer = reply->element[0]->integer ? LOCK_REPLY_YES : LOCK_REPLY_NO;
	if (answer == LOCK_REPLY_YES) {
		lease->until_ms = reply->element[1]->integer;
		lease->fence = reply->element[2]->integer;
	} else {
		*left_ms = reply->element[1]->integer;
	}
	freeReplyObject(reply);
	return answer;
}

/* The reply is a number: 0 means no. */
static enum lock_reply script_number(struct redis_lease *lease, int argc, const char **argv,
				     int64_t *number)
{
	enum lock_reply answer;
	redisReply *reply = script_run(lease, argc, argv, &answer);

	if (!reply)
		return answer;
	*number = redis_reply_number(reply);
	freeReplyObject(reply);
	return *number > 0 ? LOCK_REPLY_YES : LOCK_REPLY_NO;
}

enum lock_reply redis_lease_renew(struct redis_lease *lease)
{
	const char *argv[] = { "renew", lease->kind, lease->token, lease->lease };
	int64_t until_ms = 0;
	enum lock_reply answer = script_number(lease, 4, argv, &until_ms);

	if (answer == LOCK_REPLY_YES)
		lease->until_ms = until_ms;
	return answer;
}

enum lock_reply redis_lease_release(struct redis_lease *lease)
{
	const char *argv[] = { "release", lease->kind, lease->token };
	int64_t is_released = 0;

	return script_number(lease, 3, argv, &is_released);
}
