#include "keeper/rebuild/seen.h"

#include "common/check.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_MAX 2048
#define GENERATION_DIGITS 9
#define SEQ_DIGITS 16
#define HIGH "high:"

/* Generations and their highest numbers, as arrays for PostgreSQL. */
struct seen {
	char generations[SEEN_MAX * (GENERATION_DIGITS + 1) + 2];
	char seqs[SEEN_MAX * (SEQ_DIGITS + 1) + 2];
	size_t generations_len, seqs_len;
	int n;
};

static int is_number(const char *text, size_t digits)
{
	size_t len = strspn(text, "0123456789");

	return len > 0 && len <= digits && text[len] == '\0';
}

static void seen_add(struct seen *seen, const char *generation, const char *seq)
{
	char before = seen->n > 0 ? ',' : '{';

	if (seen->n == SEEN_MAX || !is_number(generation, GENERATION_DIGITS) ||
	    !is_number(seq, SEQ_DIGITS))
		return;
	seen->generations_len += (size_t)sprintf(seen->generations + seen->generations_len, "%c%s",
						 before, generation);
	seen->seqs_len += (size_t)sprintf(seen->seqs + seen->seqs_len, "%c%s", before, seq);
	seen->n++;
}

/* The coupon's own generation and number, and those before it. */
static void coupon_take(struct seen *seen, const redisReply *fields)
{
	const char *generation = "", *seq = "";

	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		const char *name = fields->element[i]->str, *value = fields->element[i + 1]->str;

		if (strcmp(name, "generation") == 0)
			generation = value;
		else if (strcmp(name, "seq") == 0)
			seq = value;
		else if (strncmp(name, HIGH, strlen(HIGH)) == 0)
			seen_add(seen, name + strlen(HIGH), value);
	}
	seen_add(seen, generation, seq);
}

static void told_take(struct seen *seen, const redisReply *fields)
{
	for (size_t i = 0; i + 1 < fields->elements; i += 2)
		seen_add(seen, fields->element[i]->str, fields->element[i + 1]->str);
}

/* 0, or -1 when Redis is away. What it refuses place.lua tells. */
static int hash_take(struct keeper_context *context, int64_t coupon, enum coupon_key which,
		     struct seen *seen, void (*take)(struct seen *seen, const redisReply *fields))
{
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL", coupon_key(coupon, which, key) };
	redisReply *reply = redis_client_call(context->redis, 2, hgetall);

	if (!reply)
		return redis_client_is_open(context->redis) ? 0 : -1;
	if (reply->type == REDIS_REPLY_ARRAY)
		take(seen, reply);
	freeReplyObject(reply);
	return 0;
}

static int seen_keep(struct keeper_context *context, int64_t coupon, struct seen *seen)
{
	char coupon_text[NUMBER_SIZE], fence[NUMBER_SIZE];
	const char *const values[] = { number_text(coupon, coupon_text), seen->generations,
				       seen->seqs, number_text(context->fence, fence) };
	PGresult *result;

	if (seen->n == 0)
		return 0;
	memcpy(seen->generations + seen->generations_len, "}", 2);
	memcpy(seen->seqs + seen->seqs_len, "}", 2);
	result = keeper_database_ask(context->database, sql_query_rebuild_seen, 4, values);
	PQclear(result);
	return result ? 0 : -1;
}

int rebuild_seen(struct keeper_context *context, int64_t coupon)
{
	struct seen *seen = calloc(1, sizeof(*seen));
	int rc;

	check(seen != NULL);
	rc = hash_take(context, coupon, COUPON_KEY_COUPON, seen, coupon_take) ||
			     hash_take(context, coupon, COUPON_KEY_SEEN, seen, told_take) ||
			     seen_keep(context, coupon, seen)
		     ? -1
		     : 0;
	free(seen);
	return rc;
}
