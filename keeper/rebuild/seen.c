#include "keeper/rebuild/seen.h"

#include "embed.h"

#include <string.h>

/* Generations of coupons and their highest numbers. */
struct seen {
	int64_t coupon; /* of the next ones */
	struct postgres_array coupons, generations, seqs;
};

static void seen_add(struct seen *seen, int64_t generation, int64_t seq)
{
	if (seq == 0)
		return;
	postgres_array_add_number(&seen->coupons, seen->coupon);
	postgres_array_add_number(&seen->generations, generation);
	postgres_array_add_number(&seen->seqs, seq);
}

static void texts_add(struct seen *seen, const char *generation_text, const char *seq_text)
{
	int64_t generation, seq;

	if (number_parse(generation_text, INT32_MAX, &generation) == 0 &&
	    number_parse(seq_text, INT64_MAX, &seq) == 0)
		seen_add(seen, generation, seq);
}

/* The coupon's own generation and number, and those before it. */
static void coupon_take(struct seen *seen, const redisReply *fields)
{
	const char *generation = "", *seq = "";
	int64_t older, high;

	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		const char *name = fields->element[i]->str, *value = fields->element[i + 1]->str;

		if (strcmp(name, "generation") == 0)
			generation = value;
		else if (strcmp(name, "seq") == 0)
			seq = value;
		else if (redis_reply_high(fields->element[i], fields->element[i + 1], &older,
					  &high) > 0)
			seen_add(seen, older, high);
	}
	texts_add(seen, generation, seq);
}

static void reported_take(struct seen *seen, const redisReply *fields)
{
	for (size_t i = 0; i + 1 < fields->elements; i += 2)
		texts_add(seen, fields->element[i]->str, fields->element[i + 1]->str);
}

static void hash_append(struct keeper_context *context, int64_t coupon, enum coupon_key which)
{
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL", coupon_key(coupon, which, key) };

	redis_client_append(context->redis, 2, hgetall);
}

/* place.lua reports a key that Redis refuses. */
static void hash_take(struct keeper_context *context, struct seen *seen,
		      void (*take)(struct seen *seen, const redisReply *fields))
{
	redisReply *reply = redis_client_next(context->redis);

	if (reply && reply->type == REDIS_REPLY_ARRAY)
		take(seen, reply);
	if (reply)
		freeReplyObject(reply);
}

static int seen_keep(struct keeper_context *context, const struct seen *seen)
{
	const struct postgres_argument arguments[] = { postgres_array(&seen->coupons),
						       postgres_array(&seen->generations),
						       postgres_array(&seen->seqs),
						       postgres_number(context->fence) };

	return seen->seqs.n == 0 ? 0
				 : keeper_database_run(context->database, sql_query_rebuild_seen, 4,
						       arguments);
}

int rebuild_seen(struct keeper_context *context, const int64_t *coupons, size_t n)
{
	struct seen seen = { .coupons.type = POSTGRES_INT8,
			     .generations.type = POSTGRES_INT4,
			     .seqs.type = POSTGRES_INT8 };
	int rc;

	for (size_t i = 0; i < n; i++) {
		hash_append(context, coupons[i], COUPON_KEY_COUPON);
		hash_append(context, coupons[i], COUPON_KEY_SEEN);
	}
	for (size_t i = 0; i < n; i++) {
		seen.coupon = coupons[i];
		hash_take(context, &seen, coupon_take);
		hash_take(context, &seen, reported_take);
	}
	rc = redis_client_is_open(context->redis) ? seen_keep(context, &seen) : -1;
	postgres_array_fini(&seen.coupons);
	postgres_array_fini(&seen.generations);
	postgres_array_fini(&seen.seqs);
	return rc;
}
