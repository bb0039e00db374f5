#include "common/redis/reply.h"

#include "common/message/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After any other error a script may have run in part. */
static const struct {
	const char *prefix;
	int is_of_server;
} not_run[] = {
	{ "LOADING ", 1 },
	{ "READONLY ", 1 },
	{ "BUSY ", 1 },
	{ "MISCONF ", 1 },
	{ "NOAUTH ", 1 },
	{ "NOREPLICAS ", 1 },
	{ "MASTERDOWN ", 1 },
	{ "CLUSTERDOWN ", 1 },
	{ "ERR max number of clients", 1 },
	/*
	 * Out of memory, Redis still runs commands that need none: removal from an outbox,
	 * expiry.
	 */
	{ "OOM ", 0 },
	{ "NOPERM ", 0 },
	{ "MOVED ", 0 },
	{ "ASK ", 0 },
	{ "TRYAGAIN ", 0 },
	{ "NOSCRIPT ", 0 },
	{ "ERR couponmq: ", 0 }, /* the scripts check everything before they write */
};

#define NOT_RUN_N (sizeof(not_run) / sizeof(not_run[0]))

static size_t not_run_find(const char *error)
{
	size_t i = 0;

	while (i < NOT_RUN_N && strncmp(error, not_run[i].prefix, strlen(not_run[i].prefix)) != 0)
		i++;
	return i;
}

int redis_error_is_of_server(const char *error)
{
	size_t i = not_run_find(error);

	return i < NOT_RUN_N && not_run[i].is_of_server;
}

int redis_error_means_not_run(const char *error)
{
	return not_run_find(error) < NOT_RUN_N;
}

int64_t redis_reply_number(const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_INTEGER)
		return reply->integer;
	return reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
}

void redis_reply_word(const redisReply *reply, char word[REDIS_WORD_SIZE])
{
	word[0] = '\0';
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0)
		reply = reply->element[0];
	if (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS)
		snprintf(word, REDIS_WORD_SIZE, "%s", reply->str);
}

int redis_reply_time_ms(const redisReply *reply, int64_t *time_ms)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return -1;
	*time_ms = redis_reply_number(reply->element[0]) * 1000 +
		   redis_reply_number(reply->element[1]) / 1000;
	return 0;
}

/* The value of a line of INFO, or NULL. */
static const char *info_find(const redisReply *reply, const char *line)
{
	const char *at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, line) : NULL;

	return at ? at + strlen(line) : NULL;
}

int redis_reply_process(const redisReply *reply, char run_id[REDIS_RUN_ID_SIZE], int64_t *uptime_s)
{
	const char *id = info_find(reply, "\nrun_id:");
	const char *uptime = info_find(reply, "\nuptime_in_seconds:");

	if (!id || !uptime || strspn(id, "0123456789abcdef") != REDIS_RUN_ID_SIZE - 1)
		return -1;
	memcpy(run_id, id, REDIS_RUN_ID_SIZE - 1);
	run_id[REDIS_RUN_ID_SIZE - 1] = '\0';
	*uptime_s = strtoll(uptime, NULL, 10);
	return 0;
}

int redis_reply_writes(const redisReply *reply, int64_t *writes)
{
	const char *changes = info_find(reply, "\nrdb_changes_since_last_save:");

	if (!changes)
		return -1;
	*writes = strtoll(changes, NULL, 10);
	return 0;
}

const char *redis_reply_version(const redisReply *reply, char version[REDIS_VERSION_SIZE])
{
	const char *valkey = info_find(reply, "\nvalkey_version:");
	const char *redis = info_find(reply, "\nredis_version:");
	const char *at = valkey ? valkey : redis ? redis : "";

	snprintf(version, REDIS_VERSION_SIZE, "%.*s", (int)strcspn(at, "\r\n"), at);
	return valkey ? "Valkey" : "Redis";
}

int redis_reply_is_scan(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
	       reply->element[0]->type == REDIS_REPLY_STRING &&
	       reply->element[1]->type == REDIS_REPLY_ARRAY;
}

int redis_reply_high(const redisReply *name, const redisReply *value, int64_t *generation,
		     int64_t *high)
{
	static const char prefix[] = "high:";

	if (strncmp(name->str, prefix, strlen(prefix)) != 0)
		return 0;
	return number_parse(name->str + strlen(prefix), INT32_MAX, generation) ||
			       number_parse(value->str, INT64_MAX, high)
		       ? -1
		       : 1;
}
