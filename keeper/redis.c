#include "keeper/redis.h"

#include "common/check.h"
#include "common/log.h"
#include "common/redis/url.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_COMMANDS 4 /* for one coupon */
#define LOOK_FIELDS 11  /* of its hash */
#define NUMBER_SIZE 24

struct keeper_redis {
	struct redis_url url;
	redisContext *context;
};

struct keeper_redis *keeper_redis_new(const char *url)
{
	struct keeper_redis *redis = calloc(1, sizeof(*redis));

	check(redis != NULL && redis_url_parse(&redis->url, url) == 0);
	return redis;
}

void keeper_redis_free(struct keeper_redis *redis)
{
	if (!redis)
		return;
	keeper_redis_drop(redis);
	redis_url_fini(&redis->url);
	free(redis);
}

void keeper_redis_drop(struct keeper_redis *redis)
{
	if (redis->context)
		redisFree(redis->context);
	redis->context = NULL;
}

int keeper_redis_connected(const struct keeper_redis *redis)
{
	return redis->context != NULL;
}

static redisReply *reply_checked(struct keeper_redis *redis, redisReply *reply)
{
	if (!reply) {
		log_warn("keeper_redis_lost", LOG_S("why", redis->context->errstr));
		keeper_redis_drop(redis);
		return NULL;
	}
	if (reply->type == REDIS_REPLY_ERROR) {
		log_warn("keeper_redis_error", LOG_S("why", reply->str));
		freeReplyObject(reply);
		return NULL;
	}
	return reply;
}

redisReply *keeper_redis_call(struct keeper_redis *redis, int argc, const char **argv,
			      const size_t *lens)
{
	if (!redis->context)
		return NULL;
	return reply_checked(redis, redisCommandArgv(redis->context, argc, argv, lens));
}

static int log_in(struct keeper_redis *redis)
{
	const char *auth[3] = { "AUTH" };
	char number[16];
	const char *select[2] = { "SELECT", number };
	redisReply *reply;
	int argc = 1;

	if (redis->url.password) {
		if (redis->url.user)
			auth[argc++] = redis->url.user;
		auth[argc++] = redis->url.password;
		reply = keeper_redis_call(redis, argc, auth, NULL);
		if (!reply)
			return -1;
		freeReplyObject(reply);
	}
	snprintf(number, sizeof(number), "%d", redis->url.database);
	reply = keeper_redis_call(redis, 2, select, NULL);
	if (!reply)
		return -1;
	freeReplyObject(reply);
	return 0;
}

int keeper_redis_open(struct keeper_redis *redis)
{
	struct timeval timeout = { .tv_sec = KEEPER_REDIS_TIMEOUT_MS / 1000,
				   .tv_usec = KEEPER_REDIS_TIMEOUT_MS % 1000 * 1000 };

	if (redis->context)
		return 0;
	redis->context = redisConnectWithTimeout(redis->url.host, redis->url.port, timeout);
	check(redis->context != NULL);
	if (redis->context->err) {
		log_warn("keeper_redis_unreachable", LOG_S("why", redis->context->errstr));
		keeper_redis_drop(redis);
		return -1;
	}
	redisSetTimeout(redis->context, timeout);
	if (log_in(redis)) {
		keeper_redis_drop(redis);
		return -1;
	}
	return 0;
}

char *keeper_key(int64_t coupon, const char *suffix, char out[KEEPER_KEY_SIZE])
{
	snprintf(out, KEEPER_KEY_SIZE, "coupon:{%" PRId64 "}%s", coupon, suffix);
	return out;
}

redisReply *keeper_redis_eval(struct keeper_redis *redis, const char *script, int keys_n,
			      const char *const *keys, int argc, const char **argv)
{
	const char *all[3 + KEEPER_KEYS_MAX + KEEPER_ARGS_MAX] = { "EVAL", script };
	char keys_text[NUMBER_SIZE];

	check(keys_n <= KEEPER_KEYS_MAX && argc <= KEEPER_ARGS_MAX);
	snprintf(keys_text, sizeof(keys_text), "%d", keys_n);
	all[2] = keys_text;
	memcpy(all + 3, keys, (size_t)keys_n * sizeof(*keys));
	if (argc > 0)
		memcpy(all + 3 + keys_n, argv, (size_t)argc * sizeof(*argv));
	return keeper_redis_call(redis, 3 + keys_n + argc, all, NULL);
}

redisReply *keeper_redis_coupon_eval(struct keeper_redis *redis, const char *script, int64_t coupon,
				     int argc, const char **argv)
{
	char keys[3][KEEPER_KEY_SIZE];

	return keeper_redis_eval(redis, script, 3,
				 (const char *[]){ keeper_key(coupon, "", keys[0]),
						   keeper_key(coupon, ":users", keys[1]),
						   keeper_key(coupon, ":outbox", keys[2]) },
				 argc, argv);
}

void keeper_word_take(redisReply *reply, char word[KEEPER_WORD_SIZE])
{
	const redisReply *first = reply;

	word[0] = '\0';
	if (!reply)
		return;
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0)
		first = reply->element[0];
	if (first->type == REDIS_REPLY_STRING || first->type == REDIS_REPLY_STATUS)
		snprintf(word, KEEPER_WORD_SIZE, "%s", first->str);
	freeReplyObject(reply);
}

int keeper_redis_run_id(struct keeper_redis *redis, char run_id[KEEPER_RUN_ID_SIZE],
			int64_t *uptime_s)
{
	const char *info[] = { "INFO", "server" };
	redisReply *reply = keeper_redis_call(redis, 2, info, NULL);
	const char *at, *uptime;
	int rc = -1;

	if (!reply)
		return -1;
	at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, "\nrun_id:") : NULL;
	uptime = at ? strstr(reply->str, "\nuptime_in_seconds:") : NULL;
	if (uptime && strcspn(at + 8, "\r\n") == KEEPER_RUN_ID_SIZE - 1) {
		snprintf(run_id, KEEPER_RUN_ID_SIZE, "%s", at + 8);
		*uptime_s = strtoll(uptime + 19, NULL, 10);
		rc = 0;
	}
	freeReplyObject(reply);
	return rc;
}

int keeper_redis_time_ms(struct keeper_redis *redis, int64_t *now_ms)
{
	const char *time[] = { "TIME" };
	redisReply *reply = keeper_redis_call(redis, 1, time, NULL);
	int rc = -1;

	if (!reply)
		return -1;
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2) {
		*now_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
			  strtoll(reply->element[1]->str, NULL, 10) / 1000;
		rc = 0;
	}
	freeReplyObject(reply);
	return rc;
}

static void look_ask(struct keeper_redis *redis, const struct coupon_row *row)
{
	char keys[4][KEEPER_KEY_SIZE], generation[NUMBER_SIZE];
	const char *terms[] = { "HMGET",      keeper_key(row->id, "", keys[0]),
				"run_id",     "version",
				"generation", "fence",
				"seq",        "total",
				"stock",      "reserved",
				"lost",       "placeholder",
				"rebuild" };
	const char *users[] = { "EXISTS", keeper_key(row->id, ":users", keys[1]) };
	const char *outbox[] = { "HLEN", keeper_key(row->id, ":outbox", keys[2]) };
	const char *told[] = { "HGET", keeper_key(row->id, ":seen", keys[3]), generation };

	snprintf(generation, sizeof(generation), "%" PRId64, row->generation);
	redisAppendCommandArgv(redis->context, LOOK_FIELDS + 2, terms, NULL);
	redisAppendCommandArgv(redis->context, 2, users, NULL);
	redisAppendCommandArgv(redis->context, 2, outbox, NULL);
	redisAppendCommandArgv(redis->context, 3, told, NULL);
}

static void fields_take(redisReply *const *fields, struct coupon_look *look)
{
	int64_t *const numbers[LOOK_FIELDS] = {
		NULL,        &look->version,     &look->generation, &look->fence,
		&look->seq,  &look->total,       &look->stock,      &look->reserved,
		&look->lost, &look->placeholder, &look->flagged
	};

	look->present = fields[2]->type == REDIS_REPLY_STRING;
	if (fields[0]->type == REDIS_REPLY_STRING)
		snprintf(look->run_id, sizeof(look->run_id), "%s", fields[0]->str);
	for (int i = 1; i < LOOK_FIELDS; i++)
		*numbers[i] = fields[i]->type == REDIS_REPLY_STRING
				      ? strtoll(fields[i]->str, NULL, 10)
				      : 0;
}

static void look_take(const redisReply *reply, int command, struct coupon_look *look)
{
	if (command == 0 && reply->type == REDIS_REPLY_ARRAY && reply->elements == LOOK_FIELDS)
		fields_take(reply->element, look);
	else if (command == 1 && reply->type == REDIS_REPLY_INTEGER)
		look->users_present = reply->integer != 0;
	else if (command == 2 && reply->type == REDIS_REPLY_INTEGER)
		look->outbox_n = reply->integer;
	else if (command == 3 && reply->type == REDIS_REPLY_STRING)
		look->told = strtoll(reply->str, NULL, 10);
}

int keeper_redis_look(struct keeper_redis *redis, const struct coupon_row *rows, size_t n,
		      struct coupon_look *looks)
{
	if (!redis->context)
		return -1;
	memset(looks, 0, n * sizeof(*looks));
	for (size_t i = 0; i < n; i++)
		look_ask(redis, &rows[i]);
	for (size_t i = 0; i < n * LOOK_COMMANDS; i++) {
		void *reply = NULL;

		redisGetReply(redis->context, &reply);
		reply = reply_checked(redis, reply);
		if (!reply && !redis->context)
			return -1;
		/* One key of a wrong type must not stop the keeper for all other coupons. */
		if (!reply) {
			looks[i / LOOK_COMMANDS].broken = 1;
			continue;
		}
		look_take(reply, (int)(i % LOOK_COMMANDS), &looks[i / LOOK_COMMANDS]);
		freeReplyObject(reply);
	}
	return 0;
}

static int fence_is_old(const struct coupon_look *look, int64_t fence)
{
	return look->present && !look->broken && look->fence < fence;
}

int keeper_redis_fence(struct keeper_redis *redis, const struct coupon_row *rows, size_t n,
		       const struct coupon_look *looks, int64_t fence)
{
	char keys[3][KEEPER_KEY_SIZE], number[24];
	int fenced = 0;

	if (!redis->context)
		return -1;
	snprintf(number, sizeof(number), "%" PRId64, fence);
	for (size_t i = 0; i < n; i++) {
		const char *eval[] = { "EVAL",
				       lua_fence,
				       "3",
				       keeper_key(rows[i].id, "", keys[0]),
				       keeper_key(rows[i].id, ":users", keys[1]),
				       keeper_key(rows[i].id, ":outbox", keys[2]),
				       number };

		if (fence_is_old(&looks[i], fence))
			redisAppendCommandArgv(redis->context, 7, eval, NULL);
	}
	for (size_t i = 0; i < n; i++) {
		void *reply = NULL;

		if (!fence_is_old(&looks[i], fence))
			continue;
		redisGetReply(redis->context, &reply);
		reply = reply_checked(redis, reply);
		if (!reply && !redis->context)
			return -1;
		if (!reply)
			continue;
		fenced |= ((redisReply *)reply)->type == REDIS_REPLY_STRING &&
			  strcmp(((redisReply *)reply)->str, "fenced") == 0;
		freeReplyObject(reply);
	}
	return fenced;
}

int keeper_redis_known(struct keeper_redis *redis, int64_t coupon, int64_t *n)
{
	char key[KEEPER_KEY_SIZE];
	const char *scard[] = { "SCARD", keeper_key(coupon, ":known", key) };
	redisReply *reply = keeper_redis_call(redis, 2, scard, NULL);
	int rc = reply && reply->type == REDIS_REPLY_INTEGER ? 0 : -1;

	if (rc == 0)
		*n = reply->integer;
	if (reply)
		freeReplyObject(reply);
	return rc;
}
