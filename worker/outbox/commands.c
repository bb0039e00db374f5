#include "worker/outbox/commands.h"

#include "common/message/number.h"
#include "embed.h"

#include <stdio.h>
#include <string.h>

#define BATCHES_MAX 64                       /* of one command, as of lua/settled.lua */
#define BATCH_SIZE (ULID_SIZE + NUMBER_SIZE) /* 'BATCH:AT' */

/* Returns whether there were any. */
static int changes_append(struct redis_client *redis, const struct changes *changes)
{
	char texts[CHANGES_STRIPES][2][NUMBER_SIZE];
	const char *argv[6 + 2 * CHANGES_STRIPES] = { "EVAL",      lua_changes,           "1",
						      CHANGES_KEY, changes->installation, "" };
	int argc = 6;

	for (int i = 0; i < CHANGES_STRIPES; i++) {
		if (changes->num[i] == 0)
			continue;
		argv[argc++] = number_text(i, texts[i][0]);
		argv[argc++] = number_text(changes->num[i], texts[i][1]);
	}
	if (argc > 6)
		redis_client_append(redis, argc, argv);
	return argc > 6;
}

int commands_prepare(struct redis_client *redis, const struct changes *changes,
		     char sha[COMMANDS_SHA_SIZE])
{
	const char *load[] = { "SCRIPT", "LOAD", lua_settled };
	char word[REDIS_WORD_SIZE];
	redisReply *reply;
	int has_changes, rc;

	redis_client_append(redis, 3, load);
	has_changes = changes_append(redis, changes);
	reply = redis_client_next(redis);
	rc = reply && reply->type == REDIS_REPLY_STRING && reply->len < COMMANDS_SHA_SIZE ? 0 : -1;
	if (rc == 0)
		memcpy(sha, reply->str, (size_t)reply->len + 1);
	if (reply)
		freeReplyObject(reply);
	if (!has_changes)
		return rc;
	redis_word_take(redis_client_next(redis), word);
	return changes_replied(word) == RELATION_OWN ? rc : -1;
}

/* A settled batch as arguments of lua/settled.lua. */
static size_t settled_put(const struct entry *entry, char batch[BATCH_SIZE], const char **argv)
{
	char ulid[ULID_SIZE], number[NUMBER_SIZE];

	snprintf(batch, BATCH_SIZE, "%s:%s", ulid_format(&entry->batch, ulid),
		 number_text(entry->at_ms, number));
	argv[0] = batch;
	for (size_t i = 0; i < entry->rejected_n; i++)
		argv[1 + i] = entry->rejected[i];
	return 1 + entry->rejected_n;
}

size_t commands_append_settled(struct redis_client *redis, const char *sha, const struct entry **at)
{
	char batches[BATCHES_MAX][BATCH_SIZE];
	const char *argv[REDIS_CLIENT_ARGS_MAX];
	int64_t coupon = (*at)->coupon;
	size_t n = 0, argc = 0;

	for (; *at && (*at)->coupon == coupon && n < BATCHES_MAX; n++) {
		if (argc + 1 + (*at)->rejected_n > REDIS_CLIENT_ARGS_MAX)
			break;
		argc += settled_put(*at, batches[n], argv + argc);
		*at = STAILQ_NEXT(*at, next);
	}
	redis_client_append_coupon_evalsha(redis, sha, coupon, COUPON_KEYS_SETTLED, (int)argc,
					   argv);
	return n;
}

size_t commands_append_dead(struct redis_client *redis, const struct entry **at)
{
	char key[COUPON_KEY_SIZE], seconds[NUMBER_SIZE], batches[BATCHES_MAX][ULID_SIZE];
	int64_t coupon = (*at)->coupon;
	const char *sadd[2 + BATCHES_MAX] = { "SADD", coupon_key(coupon, COUPON_KEY_DEAD, key) };
	const char *expire[] = { "EXPIRE", key, number_text(COMMANDS_DEAD_S, seconds) };
	size_t n = 0;

	for (; *at && (*at)->coupon == coupon && n < BATCHES_MAX; n++) {
		sadd[2 + n] = ulid_format(&(*at)->batch, batches[n]);
		*at = STAILQ_NEXT(*at, next);
	}
	redis_client_append(redis, (int)(2 + n), sadd);
	redis_client_append(redis, 3, expire);
	return n;
}

int64_t commands_reply_settled(struct redis_client *redis)
{
	redisReply *reply = redis_client_next(redis);
	int64_t number = reply ? redis_reply_number(reply) : -1;

	if (reply)
		freeReplyObject(reply);
	return number;
}

int64_t commands_reply_dead(struct redis_client *redis)
{
	int64_t number = commands_reply_settled(redis);
	redisReply *expiry = redis_client_next(redis);

	if (expiry)
		freeReplyObject(expiry);
	return number;
}
