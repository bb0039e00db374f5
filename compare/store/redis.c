/* Commands of the ways, each a round trip. */
#include "compare/store/client.h"

#include "common/redis/url.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void redis_open(struct client *client)
{
	struct redis_url url;

	redis_url_need(&url, client->market->redis);
	client->redis = redisConnect(url.host, url.port);
	if (!client->redis || client->redis->err)
		client_fail("Redis", "connect", client->redis ? client->redis->errstr : "memory");
	if (url.password)
		redis_run(client, "AUTH %s", url.password);
	redis_run(client, "SELECT %d", url.database);
	redis_url_fini(&url);
}

static long long number_of(const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_INTEGER:
		return reply->integer;
	case REDIS_REPLY_STRING:
		return strtoll(reply->str, NULL, 10);
	case REDIS_REPLY_ARRAY:
		return (long long)reply->elements;
	case REDIS_REPLY_STATUS:
		return 1;
	default:
		return NONE;
	}
}

long long redis_run(struct client *client, const char *format, ...)
{
	redisReply *reply;
	va_list list;
	long long number;

	if (!client->redis)
		redis_open(client);
	va_start(list, format);
	reply = redisvCommand(client->redis, format, list);
	va_end(list);
	if (!reply)
		client_fail("Redis", format, client->redis->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		client_fail("Redis", format, reply->str);
	number = number_of(reply);
	freeReplyObject(reply);
	return number;
}
