/* Commands of the ways, each a round trip, or several together. */
#include "compare/store/client.h"

#include "common/check.h"
#include "common/redis/redis.h"

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

static redisReply *reply_get(struct client *client, const char *what)
{
	redisReply *reply;

	if (redisGetReply(client->redis, (void **)&reply))
		client_fail("Redis", what, client->redis->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		client_fail("Redis", what, reply->str);
	return reply;
}

static void command_send(struct client *client, const char *format, va_list list)
{
	if (!client->redis)
		redis_open(client);
	if (redisvAppendCommand(client->redis, format, list))
		client_fail("Redis", format, client->redis->errstr);
}

static long long number_get(struct client *client, const char *what)
{
	redisReply *reply = reply_get(client, what);
	long long number = number_of(reply);

	freeReplyObject(reply);
	return number;
}

long long redis_run(struct client *client, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	command_send(client, format, list);
	va_end(list);
	return number_get(client, format);
}

void redis_ask(struct client *client, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	command_send(client, format, list);
	va_end(list);
}

long long redis_answer(struct client *client)
{
	return number_get(client, "a pipeline");
}

void redis_script_load(struct client *client, const char *script, char sha[REDIS_SHA_SIZE])
{
	redisReply *reply;

	redis_ask(client, "SCRIPT LOAD %s", script);
	reply = reply_get(client, "SCRIPT LOAD");
	check(reply->type == REDIS_REPLY_STRING && reply->len == REDIS_SHA_SIZE - 1);
	memcpy(sha, reply->str, REDIS_SHA_SIZE);
	freeReplyObject(reply);
}
