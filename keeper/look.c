#include "keeper/look.h"

#include "common/message/number.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_COMMANDS 5 /* for one coupon */
#define LOOK_FIELDS 12  /* of its hash */

static void look_append(struct redis_client *redis, const struct coupon_row *row)
{
	char keys[5][COUPON_KEY_SIZE], generation[NUMBER_SIZE];
	const char *coupon[] = { "HMGET",      coupon_key(row->id, COUPON_KEY_COUPON, keys[0]),
				 "run_id",     "version",
				 "generation", "fence",
				 "seq",        "total",
				 "stock",      "reserved",
				 "lost",       "placeholder",
				 "rebuild",    "revocation" };
	const char *users[] = { "EXISTS", coupon_key(row->id, COUPON_KEY_USERS, keys[1]) };
	const char *outbox[] = { "HLEN", coupon_key(row->id, COUPON_KEY_OUTBOX, keys[2]) };
	const char *seen[] = { "HGET", coupon_key(row->id, COUPON_KEY_SEEN, keys[3]),
			       number_text(row->generation, generation) };
	const char *terms[] = { "GETRANGE", coupon_key(row->id, COUPON_KEY_TERMS, keys[4]), "0",
				"20" };

	redis_client_append(redis, LOOK_FIELDS + 2, coupon);
	redis_client_append(redis, 2, users);
	redis_client_append(redis, 2, outbox);
	redis_client_append(redis, 3, seen);
	redis_client_append(redis, 4, terms);
}

static void fields_take(redisReply *const *fields, struct coupon_look *look)
{
	int64_t *const numbers[LOOK_FIELDS] = {
		NULL,        &look->version,     &look->generation, &look->fence,
		&look->seq,  &look->total,       &look->stock,      &look->reserved,
		&look->lost, &look->placeholder, &look->flagged,    &look->revocation
	};

	look->present = fields[2]->type == REDIS_REPLY_STRING;
	if (fields[0]->type == REDIS_REPLY_STRING)
		snprintf(look->run_id, sizeof(look->run_id), "%s", fields[0]->str);
	for (int i = 1; i < LOOK_FIELDS; i++)
		*numbers[i] = redis_reply_number(fields[i]);
}

static void look_take(const redisReply *reply, int command, struct coupon_look *look)
{
	if (command == 0 && reply->type == REDIS_REPLY_ARRAY && reply->elements == LOOK_FIELDS)
		fields_take(reply->element, look);
	else if (command == 1)
		look->users_present = redis_reply_number(reply) != 0;
	else if (command == 2)
		look->outbox_n = redis_reply_number(reply);
	else if (command == 3)
		look->reported = redis_reply_number(reply);
	else if (command == 4 && reply->type == REDIS_REPLY_STRING)
		look->kept_version = strtoll(reply->str, NULL, 10);
}

int look_coupons(struct redis_client *redis, const struct coupon_row *rows, size_t n,
		 struct coupon_look *looks)
{
	memset(looks, 0, n * sizeof(*looks));
	for (size_t i = 0; i < n; i++)
		look_append(redis, &rows[i]);
	for (size_t i = 0; i < n * LOOK_COMMANDS; i++) {
		redisReply *reply = redis_client_next(redis);

		if (!reply && !redis_client_is_open(redis))
			return -1;
		/* A key of a wrong type must not stop the keeper for the other coupons. */
		if (!reply) {
			looks[i / LOOK_COMMANDS].broken = 1;
			continue;
		}
		look_take(reply, (int)(i % LOOK_COMMANDS), &looks[i / LOOK_COMMANDS]);
		freeReplyObject(reply);
	}
	return redis_client_is_open(redis) ? 0 : -1;
}

static int fence_is_old(const struct coupon_look *look, int64_t fence)
{
	return look->present && !look->broken && look->fence < fence;
}

int look_fence(struct redis_client *redis, const struct coupon_row *rows, size_t n,
	       const struct coupon_look *looks, int64_t fence, const char *fence_text)
{
	char word[REDIS_WORD_SIZE];
	const char *argv[] = { fence_text };
	int fenced = 0;

	for (size_t i = 0; i < n; i++)
		if (fence_is_old(&looks[i], fence))
			redis_client_append_coupon_eval(redis, lua_fence, rows[i].id,
							COUPON_KEYS_ISSUE, 1, argv);
	for (size_t i = 0; i < n; i++) {
		if (!fence_is_old(&looks[i], fence))
			continue;
		redis_word_take(redis_client_next(redis), word);
		fenced |= strcmp(word, "fenced") == 0;
	}
	return redis_client_is_open(redis) ? fenced : -1;
}

int look_known(struct redis_client *redis, int64_t coupon, int64_t *n)
{
	char key[COUPON_KEY_SIZE];
	const char *scard[] = { "SCARD", coupon_key(coupon, COUPON_KEY_KNOWN, key) };

	return redis_client_integer(redis, 2, scard, n);
}
