/*
 * Locks in one Redis, for owners: lua/lock.lua. Who waits listens to a channel of its session, and
 * asks again when it is told, when the holder's lease ends, and every ASK_MS in case the message
 * was lost.
 *
 *	commands ──▶ take: no ──▶ listener: PUBLISH by the one who releases ──▶ take: yes
 */
#include "common/check.h"
#include "common/clock.h"
#include "lock/redis_lease.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_MS 1000
#define DEAF_MS 100            /* the same where Redis lets it listen to no channel */
#define WAITER_MS (3 * ASK_MS) /* who has not asked for so long is given up */

struct session {
	struct redis_client *commands, *listener; /* to one channel */
	struct redis_lease lease;
	char channel[sizeof("couponmq:lock:wake:") + ULID_SIZE];
	int is_asking; /* the last take did not end */
};

static void *session_open(const char *url)
{
	struct session *session = checked(calloc(1, sizeof(*session)));

	session->commands = redis_client_new(url, NULL);
	redis_lease_init(&session->lease, session->commands, 1);
	snprintf(session->channel, sizeof(session->channel), "couponmq:lock:wake:%s",
		 session->lease.session);
	session->listener = redis_client_new(url, NULL);
	return session;
}

static void session_close(void *opaque)
{
	struct session *session = opaque;

	redis_client_free(session->commands);
	redis_client_free(session->listener);
	free(session);
}

/* Asks once: redis_lease_take(). */
static enum lock_reply ask(struct session *session, int64_t waiter_ms, struct lock_grant *grant,
			   int64_t *left_ms)
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
	struct session *session = opaque;

	session->is_asking = 0;
	return redis_lease_release(&session->lease);
}

/* What is published while it is not subscribed is missed: it asks after this, and now and then. */
static void channel_open(struct session *session)
{
	const char *subscribe[] = { "SUBSCRIBE", session->channel };
	redisReply *reply;

	if (redis_client_is_open(session->listener) || redis_client_open(session->listener))
		return;
	reply = redis_client_call(session->listener, 2, subscribe);
	if (!reply)
		redis_client_close(session->listener);
	freeReplyObject(reply);
}

/* Waits until it is told that the lock may be free, or for this time. */
static void news_wait(struct session *session, int64_t wait_ms)
{
	int is_deaf = !redis_client_is_open(session->listener); /* it may not listen */
	struct pollfd ready = { .fd = is_deaf ? -1 : redis_client_fd(session->listener),
				.events = POLLIN };

	/* Several messages may have come: one is as good as all. */
	for (int ms = (int)wait_ms; !is_deaf && poll(&ready, 1, ms) > 0; ms = 0) {
		redisReply *message = redis_client_next(session->listener);

		is_deaf = !message;
		freeReplyObject(message);
	}
	if (is_deaf)
		poll(NULL, 0, (int)least(wait_ms, DEAF_MS));
}

/* Waits in the queue. Listens before it asks, so that no message is missed. */
static enum lock_reply wait_for(struct session *session, int64_t until_ms, struct lock_grant *grant)
{
	int64_t left_ms = 0, now_ms;
	enum lock_reply answer;

	for (;;) {
		channel_open(session);
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
		redis_lease_begin(&session->lease, request);
	session->is_asking = 1;
	answer = ask(session, 0, grant, &left_ms);
	if (answer == LOCK_REPLY_NO && wait_ms > 0)
		answer = wait_for(session,
				  wait_ms < LOCK_WAIT_FOREVER - now_ms ? now_ms + wait_ms
								       : LOCK_WAIT_FOREVER,
				  grant);
	session->is_asking = answer == LOCK_REPLY_DOWN; /* the same request may be made again */
	return answer;
}

static enum lock_reply session_renew(void *opaque)
{
	struct session *session = opaque;

	return redis_lease_renew(&session->lease);
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
