#include "ctl/recover/coupons.h"

#include "common/check.h"
#include "common/message/number.h"
#include "ctl/recover/context.h"
#include "ctl/recover/report.h"
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
		if (ids->n == ids->size) {
			ids->size = ids->size ? 2 * ids->size : 256;
			ids->list = realloc(ids->list, ids->size * sizeof(*ids->list));
			check(ids->list != NULL);
		}
		ids->list[ids->n++] = id;
	}
}

static int id_compare(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static size_t ids_unique(struct ids *ids)
{
	size_t n = 0;

	if (ids->n > 1)
		qsort(ids->list, ids->n, sizeof(*ids->list), id_compare);
	for (size_t i = 0; i < ids->n; i++)
		if (n == 0 || ids->list[n - 1] != ids->list[i])
			ids->list[n++] = ids->list[i];
	return n;
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
	return ids_unique(&ids);
}

static void high_add(struct recover_coupon *coupon, int64_t generation, int64_t high)
{
	postgres_array_add_number(&coupon->generations, generation);
	postgres_array_add_number(&coupon->highs, high);
}

static void field_take(struct recover_coupon *coupon, const char *name, const char *value)
{
	const struct {
		const char *name;
		int64_t *number;
	} numbers[] = {
		{ "generation", &coupon->generation }, { "seq", &coupon->seq },
		{ "reserved", &coupon->reserved },     { "fence", &coupon->fence },
		{ "version", &coupon->version },       { "total", &coupon->total },
		{ "begin", &coupon->begin_ms },        { "end", &coupon->end_ms },
		{ "limit", &coupon->limit },           { "revocation", &coupon->revocation },
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (strcmp(name, numbers[i].name) == 0)
			(void)number_parse(value, INT64_MAX, numbers[i].number);
	if (strcmp(name, "status") == 0)
		snprintf(coupon->status, sizeof(coupon->status), "%s", value);
	if (strcmp(name, "placeholder") == 0)
		coupon->has_hash = 0;
}

void recover_coupon_read(struct recover_coupon *coupon, struct recover *recover, int64_t id)
{
	char key[COUPON_KEY_SIZE];
	const char *hgetall[] = { "HGETALL", coupon_key(id, COUPON_KEY_COUPON, key) };
	redisReply *fields = redis_client_call(recover->redis, 2, hgetall);

	store_redis_check(recover->redis, fields != NULL);
	*coupon = (struct recover_coupon){ .recover = recover,
					   .id = id,
					   .has_hash = fields->elements > 0,
					   .generations.type = POSTGRES_INT4,
					   .highs.type = POSTGRES_INT8 };
	for (size_t i = 0; i + 1 < fields->elements; i += 2) {
		const redisReply *name = fields->element[i], *value = fields->element[i + 1];
		int64_t generation, high;

		field_take(coupon, name->str, value->str);
		if (redis_reply_high(name, value, &generation, &high) > 0)
			high_add(coupon, generation, high);
	}
	freeReplyObject(fields);
	if (coupon->has_hash && coupon->generation > 0)
		high_add(coupon, coupon->generation, coupon->seq);
}

void recover_coupon_fini(struct recover_coupon *coupon)
{
	postgres_array_fini(&coupon->generations);
	postgres_array_fini(&coupon->highs);
	free(coupon->settled.list);
	free(coupon->outbox.list);
}

static void persist(const struct recover_coupon *coupon)
{
	struct redis_client *redis = coupon->recover->redis;
	struct coupon_keys keys;

	coupon_keys_make(&keys, coupon->id, COUPON_KEYS_ALL);
	for (int i = 0; i < keys.n; i++) {
		int64_t had;

		store_redis_check(redis,
				  redis_client_integer(redis, 2,
						       (const char *[]){ "PERSIST", keys.names[i] },
						       &had) == 0);
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
	if (coupon->generation == 0)
		return;
	snprintf(fence, sizeof(fence), "%lld:" ALWAYS, (long long)coupon->fence);
	number_text(coupon->generation, generation);
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
	char key[COUPON_KEY_SIZE];
	const char *hlen[] = { "HLEN", coupon_key(coupon->id, COUPON_KEY_USERS, key) };
	int64_t n;

	store_redis_check(redis, redis_client_integer(redis, 2, hlen, &n) == 0);
	return n;
}

/* "VERSION JSON". The reply, to be freed, with the JSON in `*json`; NULL there: it has none. */
static redisReply *row_read(const struct recover_coupon *coupon, const char **json)
{
	char key[COUPON_KEY_SIZE];
	const char *get[] = { "GET", coupon_key(coupon->id, COUPON_KEY_TERMS, key) };
	redisReply *reply = redis_client_call(coupon->recover->redis, 2, get);

	store_redis_check(coupon->recover->redis, reply != NULL);
	*json = reply->type == REDIS_REPLY_STRING ? strchr(reply->str, ' ') : NULL;
	return reply;
}

static PGresult *row_apply(const struct recover_coupon *coupon, const char *json)
{
	char id[DB_NUMBER_SIZE];

	return db_query(coupon->recover->db, sql_query_recover_terms, 2,
			(const char *[]){ db_number(coupon->id, id), json });
}

static PGresult *hash_apply(const struct recover_coupon *coupon)
{
	char numbers[6][DB_NUMBER_SIZE];
	const char *params[] = {
		db_number(coupon->id, numbers[0]),       coupon->status,
		db_number(coupon->total, numbers[1]),    db_number(coupon->limit, numbers[2]),
		db_number(coupon->begin_ms, numbers[3]), db_number(coupon->end_ms, numbers[4]),
		db_number(coupon->version, numbers[5]),
	};

	return db_query(coupon->recover->db, sql_query_recover_terms_hash, 7, params);
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
	int is_new = 0, is_changed = 0, is_guess;
	char version[32] = "";
	const char *json;
	redisReply *reply = row_read(coupon, &json);
	PGresult *result;

	if (json) {
		result = row_apply(coupon, json + 1);
		result_note(result, &is_new, &is_changed, version);
		PQclear(result);
	}
	freeReplyObject(reply);
	is_guess = !is_new;
	if (coupon->has_hash) {
		result = hash_apply(coupon);
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
	char id[DB_NUMBER_SIZE], version_text[DB_NUMBER_SIZE];
	const char *json;
	redisReply *reply = row_read(coupon, &json);
	int64_t version = coupon->version, copied;

	if (json) {
		reply->str[json - reply->str] = '\0';
		if (number_parse(reply->str, INT32_MAX, &copied) == 0 && copied > version)
			version = copied;
	}
	freeReplyObject(reply);
	PQclear(db_query(coupon->recover->db, sql_query_coupon_version_raise, 2,
			 (const char *[]){ db_number(coupon->id, id),
					   db_number(version + 1, version_text) }));
}
