/*
 * The coupons that Redis holds, and their terms. Redis has these twice: the whole row of the
 * coupon, as the keeper copied it, and those by which it decides. Either may be newer: couponctl
 * changes the latter by itself, and a draft has the former only.
 */
#include "common/array.h"
#include "common/check.h"
#include "common/message/number.h"
#include "ctl/recover/recover.h"
#include "ctl/store.h"
#include "embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "coupon:{"
#define ALWAYS "0:9007199254740991" /* the hold is right at any time */

struct ids {
	int64_t *list;
	size_t n, size;
};

static void ids_take(struct ids *ids, const redisReply *keys)
{
	for (size_t i = 0; i < keys->elements; i++) {
		const char *first = keys->element[i]->str + strlen(PREFIX);
		const char *end = strchr(first, '}');
		int64_t id;

		if (!end || id_parse(first, (size_t)(end - first), &id))
			continue;
		ids->list = array_room(ids->list, ids->n, &ids->size, sizeof(id));
		ids->list[ids->n++] = id;
	}
}

size_t coupons_find(struct redis_client *redis, int64_t **list)
{
	char cursor[REDIS_CURSOR_SIZE] = "0";
	const char *scan[] = { "SCAN", cursor, "MATCH", PREFIX "*", "COUNT", "1000" };
	struct ids ids = { 0 };

	do {
		redisReply *reply = redis_client_call(redis, 6, scan);

		store_redis_check(redis, reply != NULL);
		snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
		ids_take(&ids, reply->element[1]);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
	*list = ids.list;
	return numbers_unique(ids.list, ids.n);
}

void recover_coupon_read(struct recover_coupon *coupon, struct recover *recover, int64_t id)
{
	redisReply *hash = coupon_call(recover->redis, id, "HGETALL", COUPON_KEY_COUPON, NULL);

	store_redis_check(recover->redis, hash != NULL);
	*coupon = (struct recover_coupon){ .recover = recover, .id = id };
	(void)redis_coupon_parse(&coupon->hash, hash, NULL, NULL);
	coupon->has_hash = hash->elements > 0 && !coupon->hash.placeholder;
	if (coupon->has_hash)
		(void)generations_raise(&coupon->generations, hash, NULL);
	freeReplyObject(hash);
}

void recover_coupon_fini(struct recover_coupon *coupon)
{
	generations_fini(&coupon->generations);
	free(coupon->settled.list);
	free(coupon->outbox.list);
}

static void persist(const struct recover_coupon *coupon)
{
	struct redis_client *redis = coupon->recover->redis;

	for (unsigned which = 1; which <= COUPON_KEYS_ALL; which <<= 1) {
		redisReply *reply = coupon_call(redis, coupon->id, "PERSIST",
						(enum coupon_key)which, NULL);

		store_redis_check(redis, reply != NULL);
		freeReplyObject(reply);
	}
}

/* With the fence that the coupon has: it is no keeper's. */
void recover_coupon_hold(const struct recover_coupon *coupon)
{
	struct redis_client *redis = coupon->recover->redis;
	char fence[3 * NUMBER_SIZE], generation[NUMBER_SIZE];
	const char *argv[] = { fence, generation };
	redisReply *reply;

	persist(coupon);
	if (coupon->hash.generation == 0)
		return;
	snprintf(fence, sizeof(fence), "%lld:" ALWAYS, (long long)coupon->hash.fence);
	number_text(coupon->hash.generation, generation);
	reply = redis_client_coupon_eval(redis, lua_hold, coupon->id, COUPON_KEYS_ISSUE, 2, argv);
	store_redis_check(redis, reply != NULL);
	freeReplyObject(reply);
}

void recover_coupon_delete(const struct recover_coupon *coupon)
{
	struct redis_client *redis = coupon->recover->redis;
	const char *unlink[1 + COUPON_KEYS_MAX] = { "UNLINK" };
	struct coupon_keys keys;
	int64_t n;

	coupon_keys_make(&keys, coupon->id, COUPON_KEYS_ALL);
	for (int i = 0; i < keys.n; i++)
		unlink[1 + i] = keys.names[i];
	store_redis_check(redis, redis_client_integer(redis, 1 + keys.n, unlink, &n) == 0);
}

int64_t recover_coupon_users(const struct recover_coupon *coupon)
{
	struct redis_client *redis = coupon->recover->redis;
	redisReply *reply = coupon_call(redis, coupon->id, "HLEN", COUPON_KEY_USERS, NULL);
	int64_t n;

	store_redis_check(redis, reply != NULL);
	n = redis_reply_number(reply);
	freeReplyObject(reply);
	return n;
}

/* "VERSION JSON". The reply, to be freed, with the JSON in `*json`; NULL there: it has none. */
static redisReply *row_read(const struct recover_coupon *coupon, char **json)
{
	struct redis_client *redis = coupon->recover->redis;
	redisReply *reply = coupon_call(redis, coupon->id, "GET", COUPON_KEY_TERMS, NULL);

	store_redis_check(redis, reply != NULL);
	*json = reply->type == REDIS_REPLY_STRING ? strchr(reply->str, ' ') : NULL;
	return reply;
}

/* What a statement has done; it has no row when it did nothing. */
static void result_note(const PGresult *result, int *is_new, int *is_changed, char version[32])
{
	if (PQntuples(result) == 0)
		return;
	if (strcmp(db_text(result, 0, "is_new"), "t") == 0)
		*is_new = 1;
	else
		*is_changed = 1;
	snprintf(version, 32, "version %s", db_text(result, 0, "version"));
}

void terms_restore(struct recover_coupon *coupon)
{
	struct recover *recover = coupon->recover;
	const struct redis_coupon *hash = &coupon->hash;
	int is_new = 0, is_changed = 0, is_guess;
	char version[32] = "", *json;
	redisReply *reply = row_read(coupon, &json);
	PGresult *result;

	if (json) {
		result = db_ask(recover->db, sql_query_recover_terms, postgres_number(coupon->id),
				postgres_text(json + 1));
		result_note(result, &is_new, &is_changed, version);
		PQclear(result);
	}
	freeReplyObject(reply);
	is_guess = !is_new;
	if (coupon->has_hash) {
		result = db_ask(recover->db, sql_query_recover_terms_hash,
				postgres_number(coupon->id), postgres_text(hash->status),
				postgres_number(hash->total), postgres_number(hash->limit),
				postgres_number(hash->begin_ms), postgres_number(hash->end_ms),
				postgres_number(hash->version));
		result_note(result, &is_new, &is_changed, version);
		PQclear(result);
	}
	recover->counts.created += is_new;
	recover->counts.changed += !is_new && is_changed;
	if (is_new && is_guess)
		report_coupon(recover, "created", coupon->id,
			      "but its name and its validity are not known: check both");
	else if (is_new || is_changed)
		report_coupon(recover, is_new ? "created" : "changed", coupon->id, version);
}

void terms_keep(struct recover_coupon *coupon)
{
	int64_t version = coupon->hash.version, copied;
	char *json;
	redisReply *reply = row_read(coupon, &json);

	if (json) {
		*json = '\0';
		if (number_parse(reply->str, INT32_MAX, &copied) == 0 && copied > version)
			version = copied;
	}
	freeReplyObject(reply);
	db_do(coupon->recover->db, sql_query_coupon_version_raise, postgres_number(coupon->id),
	      postgres_number(version + 1));
}
