#include "ctl/redis.h"

#include "common/check.h"
#include "common/id.h"
#include "common/log.h"
#include "common/redis/url.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_SIZE 24

struct cache {
	redisContext *context;
	char error[CACHE_ERROR_SIZE];
};

struct coupon_keys {
	char coupon[CACHE_KEY_SIZE], users[CACHE_KEY_SIZE], outbox[CACHE_KEY_SIZE];
};

const char *cache_key(int64_t coupon, const char *suffix, char out[CACHE_KEY_SIZE])
{
	snprintf(out, CACHE_KEY_SIZE, "coupon:{%lld}%s", (long long)coupon, suffix);
	return out;
}

static void keys_make(struct coupon_keys *keys, int64_t coupon)
{
	cache_key(coupon, "", keys->coupon);
	cache_key(coupon, ":users", keys->users);
	cache_key(coupon, ":outbox", keys->outbox);
}

static const char *number_text(int64_t number, char out[NUMBER_SIZE])
{
	snprintf(out, NUMBER_SIZE, "%lld", (long long)number);
	return out;
}

/* What came, or NULL with the sentence. */
static redisReply *reply_check(struct cache *cache, redisReply *reply)
{
	if (!reply) {
		snprintf(cache->error, sizeof(cache->error), "%s",
			 cache->context->err ? cache->context->errstr : "no answer");
		return NULL;
	}
	if (reply->type == REDIS_REPLY_ERROR) {
		snprintf(cache->error, sizeof(cache->error), "%s", reply->str);
		freeReplyObject(reply);
		return NULL;
	}
	return reply;
}

redisReply *cache_command(struct cache *cache, int argc, const char **argv)
{
	return reply_check(cache, redisCommandArgv(cache->context, argc, argv, NULL));
}

static redisReply *reply_next(struct cache *cache)
{
	void *reply = NULL;

	return reply_check(cache, redisGetReply(cache->context, &reply) == REDIS_OK ? reply : NULL);
}

static void words_append(struct cache *cache, const struct cache_words *command)
{
	int argc = 0;

	while (command->words[argc])
		argc++;
	/* It can fail for want of memory only, and then the answer fails too. */
	redisAppendCommandArgv(cache->context, argc, (const char **)command->words, NULL);
}

redisReply *cache_transaction(struct cache *cache, const struct cache_words *commands, size_t n)
{
	redisReply *reply;
	int ok = 1;

	words_append(cache, &(struct cache_words){ { "MULTI" } });
	for (size_t i = 0; i < n; i++)
		words_append(cache, &commands[i]);
	words_append(cache, &(struct cache_words){ { "EXEC" } });
	for (size_t i = 0; i < n + 1 && ok; i++) {
		reply = reply_next(cache);
		ok = reply != NULL;
		if (ok)
			freeReplyObject(reply);
	}
	if (!ok)
		return NULL; /* what is left of the answers is of no use: this connection ends */
	reply = reply_next(cache);
	if (reply && (reply->type != REDIS_REPLY_ARRAY || reply->elements != n)) {
		snprintf(cache->error, sizeof(cache->error), "EXEC answered something else");
		freeReplyObject(reply);
		return NULL;
	}
	return reply;
}

/* A command whose answer does not matter. 0, or -1. */
static int command_run(struct cache *cache, int argc, const char **argv)
{
	redisReply *reply = cache_command(cache, argc, argv);

	if (!reply)
		return -1;
	freeReplyObject(reply);
	return 0;
}

static int login(struct cache *cache, const struct redis_url *url)
{
	char database[NUMBER_SIZE];

	if (url->password && url->user &&
	    command_run(cache, 3, (const char *[]){ "AUTH", url->user, url->password }))
		return -1;
	if (url->password && !url->user &&
	    command_run(cache, 2, (const char *[]){ "AUTH", url->password }))
		return -1;
	if (url->database == 0)
		return 0;
	return command_run(cache, 2,
			   (const char *[]){ "SELECT", number_text(url->database, database) });
}

struct cache *cache_open(const char *url_text, char error[CACHE_ERROR_SIZE])
{
	const struct timeval timeout = { CACHE_TIMEOUT_MS / 1000, CACHE_TIMEOUT_MS % 1000 * 1000 };
	struct cache *cache = calloc(1, sizeof(*cache));
	struct redis_url url;
	int rc = -1;

	check(cache != NULL);
	if (redis_url_parse(&url, url_text))
		log_fatal("REDIS_URL is malformed: allowed is "
			  "redis://[user:password@]host[:port][/database]");
	cache->context = redisConnectWithTimeout(url.host, url.port, timeout);
	if (!cache->context || cache->context->err)
		snprintf(cache->error, sizeof(cache->error), "%s",
			 cache->context ? cache->context->errstr : "out of memory");
	else if (redisSetTimeout(cache->context, timeout) == REDIS_OK)
		rc = login(cache, &url);
	redis_url_fini(&url);
	if (rc == 0)
		return cache;
	snprintf(error, CACHE_ERROR_SIZE, "%s", cache->error);
	cache_close(cache);
	return NULL;
}

void cache_close(struct cache *cache)
{
	if (!cache)
		return;
	if (cache->context)
		redisFree(cache->context);
	free(cache);
}

const char *cache_error(const struct cache *cache)
{
	return cache->error;
}

static void text_read(const redisReply *reply, char *out, size_t size)
{
	snprintf(out, size, "%s", reply->type == REDIS_REPLY_STRING ? reply->str : "");
}

int cache_coupon_read(struct cache *cache, int64_t coupon, struct cache_coupon *read)
{
	int64_t *const numbers[] = { &read->total,      &read->stock,  &read->reserved,
				     &read->begin_ms,   &read->end_ms, &read->limit,
				     &read->generation, &read->seq,    &read->version,
				     &read->lost };
	struct coupon_keys keys;
	redisReply *reply;
	int known = 0;

	memset(read, 0, sizeof(*read));
	keys_make(&keys, coupon);
	reply = cache_command(cache, 14,
			      (const char *[]){ "HMGET", keys.coupon, "status", "run_id", "total",
						"stock", "reserved", "begin", "end", "limit",
						"generation", "seq", "version", "lost" });
	if (!reply)
		return -1;
	for (size_t i = 0; i < reply->elements; i++) {
		const redisReply *field = reply->element[i];

		known |= field->type == REDIS_REPLY_STRING;
		if (i >= 2 && field->type == REDIS_REPLY_STRING)
			*numbers[i - 2] = strtoll(field->str, NULL, 10);
	}
	text_read(reply->element[0], read->status, sizeof(read->status));
	text_read(reply->element[1], read->run_id, sizeof(read->run_id));
	freeReplyObject(reply);
	return known;
}

int cache_run_id(struct cache *cache, char run_id[CACHE_RUN_ID_SIZE])
{
	redisReply *reply = cache_command(cache, 2, (const char *[]){ "INFO", "server" });
	const char *at;
	int rc = -1;

	if (!reply)
		return -1;
	at = reply->str ? strstr(reply->str, "\nrun_id:") : NULL;
	if (at && strcspn(at + 8, "\r\n") == CACHE_RUN_ID_SIZE - 1) {
		memcpy(run_id, at + 8, CACHE_RUN_ID_SIZE - 1);
		run_id[CACHE_RUN_ID_SIZE - 1] = '\0';
		rc = 0;
	} else {
		snprintf(cache->error, sizeof(cache->error), "INFO names no run_id");
	}
	freeReplyObject(reply);
	return rc;
}

static enum terms_result terms_result_read(struct cache *cache, const redisReply *reply,
					   int64_t *taken)
{
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
	    reply->element[1]->type == REDIS_REPLY_INTEGER) {
		*taken = reply->element[1]->integer;
		return TERMS_TAKEN;
	}
	if (reply->str && strcmp(reply->str, "applied") == 0)
		return TERMS_APPLIED;
	if (reply->str && strcmp(reply->str, "current") == 0)
		return TERMS_CURRENT;
	if (reply->str && strcmp(reply->str, "missing") == 0)
		return TERMS_MISSING;
	snprintf(cache->error, sizeof(cache->error), "terms.lua answered something else");
	return TERMS_FAILED;
}

enum terms_result cache_terms(struct cache *cache, int64_t coupon, const struct terms *terms,
			      int64_t *taken)
{
	const char *status = strcmp(terms->status, "published") == 0 ? "open" : terms->status;
	char version[NUMBER_SIZE], total[NUMBER_SIZE], begin[NUMBER_SIZE], end[NUMBER_SIZE],
		limit[NUMBER_SIZE];
	struct coupon_keys keys;
	enum terms_result result;
	redisReply *reply;

	keys_make(&keys, coupon);
	reply = cache_command(cache, 12,
			      (const char *[]){ "EVAL", lua_terms, "3", keys.coupon, keys.users,
						keys.outbox, number_text(terms->version, version),
						status, number_text(terms->total, total),
						number_text(terms->begin_ms, begin),
						number_text(terms->end_ms, end),
						number_text(terms->limit, limit) });
	if (!reply)
		return TERMS_FAILED;
	result = terms_result_read(cache, reply, taken);
	freeReplyObject(reply);
	return result;
}

int64_t cache_outbox_length(struct cache *cache, int64_t coupon)
{
	struct coupon_keys keys;
	redisReply *reply;
	int64_t length;

	keys_make(&keys, coupon);
	reply = cache_command(cache, 2, (const char *[]){ "HLEN", keys.outbox });
	if (!reply)
		return -1;
	length = reply->integer;
	freeReplyObject(reply);
	return length;
}

redisReply *cache_scan(struct cache *cache, const char *key, const char *cursor, int count)
{
	char count_text[NUMBER_SIZE];
	redisReply *reply = cache_command(cache, 5,
					  (const char *[]){ "HSCAN", key, cursor, "COUNT",
							    number_text(count, count_text) });

	if (reply && (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
		      reply->element[0]->type != REDIS_REPLY_STRING ||
		      reply->element[1]->type != REDIS_REPLY_ARRAY)) {
		snprintf(cache->error, sizeof(cache->error), "HSCAN answered something else");
		freeReplyObject(reply);
		return NULL;
	}
	return reply;
}

redisReply *cache_users_scan(struct cache *cache, int64_t coupon, const char *cursor, int count)
{
	char key[CACHE_KEY_SIZE];

	return cache_scan(cache, cache_key(coupon, ":users", key), cursor, count);
}
