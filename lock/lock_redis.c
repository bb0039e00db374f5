/*
 * Locks in one Redis, for owners: lua/lock.lua. A session that waits listens to a channel of its
 * own, and asks again when it is told, when the holder's lease ends, and every ASK_MS in case the
 * message was lost.
 *
 *	commands ──▶ take: no ──▶ listener: PUBLISH by the one who releases ──▶ take: yes
 */
#include "common/check.h"
#include "common/clock.h"
#include "embed.h"
#include "lock/redis_lease.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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

#define ASK_MS 1000
#define DEAF_MS 100            /* the same where Redis lets it listen to no channel */
#define WAITER_MS (3 * ASK_MS) /* a session that has not asked for so long is given up */

struct redis_lock_session {
	struct redis_client *commands, *listener; /* to one channel */
	struct redis_lease lease;
	char channel[sizeof("couponmq:lock:wake:") + ULID_SIZE];
	int is_asking; /* the last take did not end */
};

static int url_check(const char *text, char *why, size_t size)
{
	char sentence[REDIS_URL_WHY_SIZE];
	struct redis_url url;

	if (redis_url_read(&url, text, sentence)) {
		snprintf(why, size, "the URL %s", sentence);
		return -1;
	}
	redis_url_fini(&url);
	return 0;
}

static void *session_open(const char *url)
{
	struct redis_lock_session *session = checked(calloc(1, sizeof(*session)));

	session->commands = redis_client_new(url, NULL);
	redis_lease_init(&session->lease, session->commands, 1);
	snprintf(session->channel, sizeof(session->channel), "couponmq:lock:wake:%s",
		 session->lease.session);
	session->listener = redis_client_new(url, NULL);
	return session;
}

static void session_close(void *opaque)
{
	struct redis_lock_session *session = opaque;

	redis_client_free(session->commands);
	redis_client_free(session->listener);
	free(session);
}

/* Asks once: redis_lease_take(). */
static enum lock_reply ask(struct redis_lock_session *session, int64_t waiter_ms,
			   struct lock_grant *grant, int64_t *left_ms)
{
	enum lock_reply answer;

	grant->asked_ms = lock_clock_ms();
	answer = redis_lease_take(&session->lease, waiter_ms, left_ms);
	grant->fence = session->lease.fence;
	return answer;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static enum lock_reply session_release(void *opaque)
{
	struct redis_lock_session *session = opaque;

	session->is_asking = 0;
	return redis_lease_release(&session->lease);
}

static enum lock_reply session_take(void *opaque, const struct lock_request *request,
				    int64_t wait_ms, struct lock_grant *grant)
{
	struct redis_lock_session *session = opaque;
	const char *subscribe[] = { "SUBSCRIBE", session->channel };
	struct redis_client *listener = session->listener;
	int64_t now_ms = clock_monotonic_ms(), left_ms = 0,
		until_ms = wait_ms < LOCK_WAIT_FOREVER - now_ms ? now_ms + wait_ms
								: LOCK_WAIT_FOREVER;
	enum lock_reply answer;

	if (!session->is_asking)
		redis_lease_begin(&session->lease, request);
	session->is_asking = 1;
	answer = ask(session, 0, grant, &left_ms);

	/* Waits in the queue. Listens before it asks, so that no message is missed. */
	while (answer == LOCK_REPLY_NO && wait_ms > 0) {
		struct pollfd ready = { .events = POLLIN };
		redisReply *reply;
		int is_deaf; /* it may not listen */

		if (!redis_client_is_open(listener) && redis_client_open(listener) == 0) {
			reply = redis_client_call(listener, 2, subscribe);
			if (!reply)
				redis_client_close(listener);
			freeReplyObject(reply);
		}
		answer = ask(session, WAITER_MS, grant, &left_ms);
		now_ms = clock_monotonic_ms();
		if (answer != LOCK_REPLY_NO)
			break;
		if (now_ms >= until_ms) {
			if (session_release(session) == LOCK_REPLY_DOWN)
				answer = LOCK_REPLY_DOWN;
			break;
		}

		/* Waits until it is told that the lock may be free, or for this time. */
		left_ms = least(left_ms > 0 ? left_ms : ASK_MS, ASK_MS);
		left_ms = least(left_ms, until_ms - now_ms);
		is_deaf = !redis_client_is_open(listener);
		ready.fd = is_deaf ? -1 : redis_client_fd(listener);
		/* Several messages may have come: one is as good as all. */
		for (int ms = (int)left_ms; !is_deaf && poll(&ready, 1, ms) > 0; ms = 0) {
			reply = redis_client_next(listener);
			is_deaf = !reply;
			freeReplyObject(reply);
		}
		if (is_deaf)
			poll(NULL, 0, (int)least(left_ms, DEAF_MS));
	}
	session->is_asking = answer == LOCK_REPLY_DOWN; /* the same request may be made again */
	return answer;
}

static enum lock_reply session_renew(void *opaque)
{
	struct redis_lock_session *session = opaque;

	return redis_lease_renew(&session->lease);
}

static const char *session_why(const void *opaque)
{
	const struct redis_lock_session *session = opaque;

	return redis_client_error(session->commands);
}

const struct lock_backend lock_redis = {
	.name = "Redis",
	.url_check = url_check,
	.open = session_open,
	.close = session_close,
	.take = session_take,
	.renew = session_renew,
	.release = session_release,
	.why = session_why,
};
