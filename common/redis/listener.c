#include "common/redis/listener.h"

#include "common/check.h"
#include "common/redis/client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define CHANNEL_SIZE 128

struct redis_listener {
	struct redis_client *client;
	char channel[CHANNEL_SIZE];
};

struct redis_listener *redis_listener_new(const char *url, const char *channel)
{
	struct redis_listener *listener = calloc(1, sizeof(*listener));

	check(listener != NULL);
	check((size_t)snprintf(listener->channel, CHANNEL_SIZE, "%s", channel) < CHANNEL_SIZE);
	listener->client = redis_client_new(url, NULL);
	return listener;
}

void redis_listener_free(struct redis_listener *listener)
{
	if (!listener)
		return;
	redis_client_free(listener->client);
	free(listener);
}

int redis_listener_open(struct redis_listener *listener)
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

int redis_listener_wait(struct redis_listener *listener, int64_t timeout_ms)
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
