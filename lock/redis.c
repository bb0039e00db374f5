/*
 * Locks in one Redis, for owners: lua/lock.lua. Who waits listens to a channel of its session, and
 * asks again when it is told, when the holder's lease ends, and every ASK_MS in case the message
 * was lost.
 *
 *	commands ──▶ take: no ──▶ listener: PUBLISH by the one who releases ──▶ take: yes
 */
#include "common/check.h"
#include "common/clock.h"
#include "common/redis/client.h"
#include "lock/redis_lease.h"

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_MS 1000
#define DEAF_MS 100            /* the same where Redis lets it listen to no channel */
#define WAITER_MS (3 * ASK_MS) /* who has not asked for so long is given up */
#define CHANNEL_SIZE 128

/*
 * A connection to Redis that listens to one channel. What is published while it is not connected is
 * missed: who waits for a message asks for the state after each redis_listener_open(), and from
 * time to time.
 */
struct redis_listener {
	struct redis_client *client;
	char channel[CHANNEL_SIZE];
};

/* Does not connect. The channel is copied. A malformed URL ends the process. */
static struct redis_listener *redis_listener_new(const char *url, const char *channel)
{
	struct redis_listener *listener = calloc(1, sizeof(*listener));

	check(listener != NULL);
	check((size_t)snprintf(listener->channel, CHANNEL_SIZE, "%s", channel) < CHANNEL_SIZE);
	listener->client = redis_client_new(url, NULL);
	return listener;
}

static void redis_listener_free(struct redis_listener *listener)
{
	if (!listener)
		return;
	redis_client_free(listener->client);
	free(listener);
}

/* Connects and subscribes, where it is not. 0, or -1. */
static int redis_listener_open(struct redis_listener *listener)
{
	const char *subscribe[] = { "SUBSCRIBE", listener->channel };
	redisReply *reply;

	if (redis_client_is_open(listener->client))
		return 0;
	if (redis_client_open(listener->client))
		return -1;
	reply = redis_client_call(listener->client, 2, subscribe);
	if (!reply) {
		redis_client_close(listener->client);
		return -1;
	}
	freeReplyObject(reply);
	return 0;
}

/* Waits for a message, at most `timeout_ms`. 1: one came; 0: none; -1: the connection is lost. */
static int redis_listener_wait(struct redis_listener *listener, int64_t timeout_ms)
{
	struct pollfd ready = { .events = POLLIN };
	redisReply *message;

	if (!redis_client_is_open(listener->client))
		return -1;
	ready.fd = redis_client_fd(listener->client);
	if (poll(&ready, 1, (int)timeout_ms) <= 0)
		return 0;
	do { /* several may have come: one is as good as all */
		message = redis_client_next(listener->client);
		if (!message)
			return -1;
		freeReplyObject(message);
	} while (poll(&ready, 1, 0) > 0);
	return 1;
}

struct session {
	struct redis_client *commands;
	struct redis_listener *listener;
	struct redis_lease lease;
	int is_asking; /* the last take did not end */
};

static void *session_open(const char *url)
{
	struct session *session = calloc(1, sizeof(*session));
	char channel[64];

	check(session != NULL);
	session->commands = redis_client_new(url, NULL);
	redis_lease_init(&session->lease, session->commands, 1);
	snprintf(channel, sizeof(channel), "couponmq:lock:wake:%s", session->lease.session);
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
