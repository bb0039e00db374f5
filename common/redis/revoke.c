#include "common/redis/revoke.h"

#include "common/check.h"
#include "common/message/number.h"
#include "embed.h"

#include <string.h>

#define HEAD_ARGS 5

enum redis_revoked redis_revoke(struct redis_client *redis,
				const struct redis_revocation *revocation, int is_last, size_t n,
				const char *const *codes, int64_t *seq)
{
	char generation[NUMBER_SIZE], from[NUMBER_SIZE], to[NUMBER_SIZE], word[REDIS_WORD_SIZE];
	const char *argv[HEAD_ARGS + REDIS_REVOKE_CODES_MAX] = {
		revocation->run_id, number_text(revocation->generation, generation),
		number_text(revocation->from, from), number_text(revocation->to, to),
		is_last ? "1" : "0"
	};
	redisReply *reply;

	check(n <= REDIS_REVOKE_CODES_MAX);
	for (size_t i = 0; i < n; i++)
		argv[HEAD_ARGS + i] = codes[i];
	reply = redis_client_coupon_eval(redis, lua_revoke, revocation->coupon,
					 COUPON_KEY_COUPON | COUPON_KEY_CODES, HEAD_ARGS + (int)n,
					 argv);
	if (reply && reply->type == REDIS_REPLY_ARRAY) {
		*seq = reply->elements == 3 ? reply->element[2]->integer : -1;
		freeReplyObject(reply);
		return REDIS_REVOKED_DONE;
	}
	redis_word_take(reply, word);
	if (strcmp(word, "missing") == 0)
		return REDIS_REVOKED_MISSING;
	return strcmp(word, "behind") == 0 ? REDIS_REVOKED_BEHIND : REDIS_REVOKED_FAILED;
}

size_t redis_code_user(const redisReply *value)
{
	const char *space;

	if (value->type != REDIS_REPLY_STRING)
		return 0;
	space = memchr(value->str, ' ', value->len);
	return space ? (size_t)(space - value->str) : value->len;
}

int redis_code_is_revoked(const redisReply *value)
{
	return value->type == REDIS_REPLY_STRING &&
	       (value->len == 0 || value->str[value->len - 1] == ' ');
}
