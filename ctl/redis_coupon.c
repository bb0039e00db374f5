#include "ctl/redis_coupon.h"

#include "common/check.h"
#include "common/message/number.h"
#include "embed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void text_read(const redisReply *reply, char *out, size_t size)
{
	snprintf(out, size, "%s", reply->type == REDIS_REPLY_STRING ? reply->str : "");
}

int redis_coupon_read(struct redis_client *redis, int64_t coupon, struct redis_coupon *read)
{
	int64_t *const numbers[] = { &read->total,      &read->stock,  &read->reserved,
				     &read->begin_ms,   &read->end_ms, &read->limit,
				     &read->generation, &read->seq,    &read->version,
				     &read->lost };
	char key[COUPON_KEY_SIZE];
	const char *hmget[] = { "HMGET",      coupon_key(coupon, COUPON_KEY_COUPON, key),
				"status",     "run_id",
				"total",      "stock",
				"reserved",   "begin",
				"end",        "limit",
				"generation", "seq",
				"version",    "lost" };
	redisReply *reply = redis_client_call(redis, 14, hmget);
	int known = 0;

	memset(read, 0, sizeof(*read));
	if (!reply)
		return -1;
	for (size_t i = 0; i < reply->elements; i++) {
		known |= reply->element[i]->type == REDIS_REPLY_STRING;
		if (i >= 2)
			*numbers[i - 2] = redis_reply_number(reply->element[i]);
	}
	text_read(reply->element[0], read->status, sizeof(read->status));
	text_read(reply->element[1], read->run_id, sizeof(read->run_id));
	freeReplyObject(reply);
	return known;
}

int redis_coupon_is_verified(struct redis_client *redis, const struct redis_coupon *read)
{
	char run_id[REDIS_RUN_ID_SIZE];
	int64_t uptime_s;

	return redis_client_process(redis, run_id, &uptime_s) == 0 &&
	       strcmp(read->run_id, run_id) == 0;
}

int redis_coupon_filled(struct redis_client *redis, int64_t coupon, struct redis_filled *filled)
{
	char key[COUPON_KEY_SIZE];
	const char *get[] = { "GET", coupon_key(coupon, COUPON_KEY_FILLED, key) };
	redisReply *reply = redis_client_call(redis, 2, get);
	int is_there = reply && reply->type == REDIS_REPLY_STRING &&
		       sscanf(reply->str, "%" SCNd64 " %" SCNd64 " %" SCNd64, &filled->filled,
			      &filled->rows, &filled->ms) == 3;

	if (reply)
		freeReplyObject(reply);
	return is_there;
}

int64_t redis_filled_left_s(const struct redis_filled *filled)
{
	int64_t left = filled->rows > filled->filled ? filled->rows - filled->filled : 0;

	if (filled->filled <= 0)
		return 0;
	return (int64_t)((double)filled->ms / 1000 * (double)left / (double)filled->filled + 0.5);
}

static enum terms_result terms_result_of(const redisReply *reply, int64_t *taken)
{
	char word[REDIS_WORD_SIZE];

	redis_reply_word(reply, word);
	if (strcmp(word, "applied") == 0)
		return TERMS_APPLIED;
	if (strcmp(word, "current") == 0)
		return TERMS_CURRENT;
	if (strcmp(word, "missing") == 0)
		return TERMS_MISSING;
	check(strcmp(word, "taken") == 0 && reply->elements == 2);
	*taken = redis_reply_number(reply->element[1]);
	return TERMS_TAKEN;
}

enum terms_result redis_coupon_terms(struct redis_client *redis, int64_t coupon,
				     const struct terms *terms, int64_t *taken)
{
	const char *status = strcmp(terms->status, "published") == 0 ? "open" : terms->status;
	char version[NUMBER_SIZE], total[NUMBER_SIZE], begin[NUMBER_SIZE], end[NUMBER_SIZE],
		limit[NUMBER_SIZE];
	const char *argv[] = {
		number_text(terms->version, version), status,
		number_text(terms->total, total),     number_text(terms->begin_ms, begin),
		number_text(terms->end_ms, end),      number_text(terms->limit, limit)
	};
	redisReply *reply = redis_client_coupon_eval(redis, lua_terms, coupon, COUPON_KEYS_ISSUE, 6,
						     argv);
	enum terms_result result;

	if (!reply)
		return TERMS_FAILED;
	result = terms_result_of(reply, taken);
	freeReplyObject(reply);
	return result;
}
