/*
 * Locks in one Redis: lua/lock_take.lua, lock_renew.lua and lock_release.lua. Who waits listens to
 * a channel of its session, and asks again when it is told, when the holder's lease ends, and every
 * ASK_MS in case that the message was lost.
 *
 *	commands ──▶ lock_take: no ──▶ listener: PUBLISH by the one who releases ──▶ lock_take: yes
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/message/number.h"
#include "common/message/ulid.h"
#include "common/redis/client.h"
#include "common/redis/listener.h"
#include "embed.h"
#include "lock/backend.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_MS 1000
#define DEAF_MS 100            /* the same where Redis lets it listen to no channel */
#define WAITER_MS (3 * ASK_MS) /* who has not asked for so long is given up */
#define TOKEN_SIZE (ULID_SIZE + NUMBER_SIZE)

struct session {
	struct redis_client *commands;
	struct redis_listener *listener;
	char id[ULID_SIZE];
	int64_t grants; /* each take has a token of its own, so that a late command finds nothing */
	char token[TOKEN_SIZE];
	char name[sizeof("couponmq:lock:{}") + LOCK_NAME_MAX];
	char queue[sizeof(":queue") + sizeof("couponmq:lock:{}") + LOCK_NAME_MAX];
	char seen[sizeof(":seen") + sizeof("couponmq:lock:{}") + LOCK_NAME_MAX];
	const char *kind;
	char lease[NUMBER_SIZE];
	int is_asking; /* the last take did not end */
};

static void *session_open(const char *url)
{
	struct session *session = calloc(1, sizeof(*session));
	char channel[64];
	struct ulid id;

	check(session != NULL);
	ulid_new(&id, clock_wall_ms());
	ulid_format(&id, session->id);
	snprintf(channel, sizeof(channel), "couponmq:lock:wake:%s", session->id);
	session->commands = redis_client_new(url, NULL);
	session->listener = redis_listener_new(url, channel);
	return session;
}

static void session_close(void *opaque)
{
	struct session *session = opaque;

	redis_client_free(session->commands);
	redis_listener_free(session->listener);
	free(session);
}

/*
 * A script on the keys of the lock. NULL: *failed tells how. A connection that was lost since its
 * last use is replaced: each script may be run again, because of its token.
 */
static redisReply *script_run(struct session *session, const char *script, int argc,
			      const char **argv, enum lock_reply *failed)
{
	const char *keys[] = { session->name, session->queue, session->seen };
	int was_open = redis_client_is_open(session->commands);
	redisReply *reply = NULL;

	for (int attempt = 0; attempt <= was_open; attempt++) {
		if (redis_client_open(session->commands) == 0)
			reply = redis_client_eval(session->commands, script, 3, keys, argc, argv);
		if (reply || redis_client_is_open(session->commands))
			break;
	}
	*failed = redis_client_is_open(session->commands) ? LOCK_REPLY_ERROR : LOCK_REPLY_DOWN;
	return reply;
}

/* A script that replies a number: 0 means no. */
static enum lock_reply script_number(struct session *session, const char *script, int argc,
				     const char **argv)
{
	enum lock_reply answer;
	redisReply *reply = script_run(session, script, argc, argv, &answer);

	if (!reply)
		return answer;
	answer = redis_reply_number(reply) > 0 ? LOCK_REPLY_YES : LOCK_REPLY_NO;
	freeReplyObject(reply);
	return answer;
}

static void request_begin(struct session *session, const struct lock_request *request)
{
	static const char *const kinds[] = {
		[LOCK_EXCLUSIVE] = "x", [LOCK_FAIR] = "f", [LOCK_READ] = "r", [LOCK_WRITE] = "w"
	};

	snprintf(session->token, sizeof(session->token), "%s.%lld", session->id,
		 (long long)++session->grants);
	snprintf(session->name, sizeof(session->name), "couponmq:lock:{%s}", request->name);
	snprintf(session->queue, sizeof(session->queue), "%s:queue", session->name);
	snprintf(session->seen, sizeof(session->seen), "%s:seen", session->name);
	session->kind = kinds[request->kind];
	number_text(request->lease_ms, session->lease);
	session->is_asking = 1;
}

/* Asks once. NO: `*left_ms` until the next lease ends; 0: none does. */
static enum lock_reply ask(struct session *session, int64_t waiter_ms, struct lock_grant *grant,
			   int64_t *left_ms)
{
	char waiter[NUMBER_SIZE];
	const char *argv[] = { session->kind, session->token, session->lease,
			       number_text(waiter_ms, waiter) };
	enum lock_reply answer;
	redisReply *reply;

	grant->asked_ms = lock_clock_ms();
	reply = script_run(session, lua_lock_take, 4, argv, &answer);
	if (!reply)
		return answer;
	check(reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2);
	answer = reply->element[0]->integer ? LOCK_REPLY_YES : LOCK_REPLY_NO;
	if (answer == LOCK_REPLY_YES)
		grant->fence = reply->element[2]->integer;
	else
		*left_ms = reply->element[1]->integer;
	freeReplyObject(reply);
	return answer;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static enum lock_reply session_release(void *opaque)
{
	struct session *session = opaque;
	const char *argv[] = { session->kind, session->token };

	session->is_asking = 0;
	return script_number(session, lua_lock_release, 2, argv);
}

/* Waits until it is told that the lock may be free, or for this time. */
static void news_wait(struct session *session, int64_t wait_ms)
{
	if (redis_listener_wait(session->listener, wait_ms) < 0) /* it may not listen */
		poll(NULL, 0, (int)least(wait_ms, DEAF_MS));
}

/* Waits in the queue. Listens before it asks, so that no message is missed. */
static enum lock_reply wait_for(struct session *session, int64_t until_ms, struct lock_grant *grant)
{
	int64_t left_ms = 0, now_ms;
	enum lock_reply answer;

	for (;;) {
		redis_listener_open(session->listener);
		answer = ask(session, WAITER_MS, grant, &left_ms);
		now_ms = clock_monotonic_ms();
		if (answer != LOCK_REPLY_NO)
			return answer;
		if (now_ms >= until_ms)
			break;
		left_ms = least(left_ms > 0 ? left_ms : ASK_MS, ASK_MS);
		news_wait(session, least(left_ms, until_ms - now_ms));
	}
	return session_release(session) == LOCK_REPLY_DOWN ? LOCK_REPLY_DOWN : LOCK_REPLY_NO;
}

static enum lock_reply session_take(void *opaque, const struct lock_request *request,
				    int64_t wait_ms, struct lock_grant *grant)
{
	struct session *session = opaque;
	int64_t now_ms = clock_monotonic_ms(), left_ms;
	enum lock_reply answer;

	if (!session->is_asking)
		request_begin(session, request);
	answer = ask(session, 0, grant, &left_ms);
	if (answer == LOCK_REPLY_NO && wait_ms > 0)
		answer = wait_for(session,
				  wait_ms < LOCK_WAIT_FOREVER - now_ms ? now_ms + wait_ms
								       : LOCK_WAIT_FOREVER,
				  grant);
	if (answer == LOCK_REPLY_YES || answer == LOCK_REPLY_NO)
		session->is_asking = 0;
	return answer;
}

static enum lock_reply session_renew(void *opaque)
{
	struct session *session = opaque;
	const char *argv[] = { session->kind, session->token, session->lease };

	return script_number(session, lua_lock_renew, 3, argv);
}

static const char *session_why(const void *opaque)
{
	const struct session *session = opaque;

	return redis_client_error(session->commands);
}

const struct lock_backend lock_redis = {
	.name = "Redis",
	.open = session_open,
	.close = session_close,
	.take = session_take,
	.renew = session_renew,
	.release = session_release,
	.why = session_why,
};
