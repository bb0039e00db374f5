#include "common/api_keys.h"

#include "common/array.h"
#include "common/check.h"
#include "common/hash.h"
#include "common/message/json.h"
#include "common/message/number.h"
#include "common/postgres/postgres_session.h"
#include "embed.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_BYTES_MAX 16384
#define SECRET_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

struct key_entry {
	struct api_key key; /* first: a grant leads back to its entry */
	unsigned char sha256[KEY_HASH_SIZE];
	unsigned char previous[KEY_HASH_SIZE]; /* of the secret before */
	int64_t previous_until_ms;             /* INT64_MIN: there is none */
	size_t use;
	UT_hash_handle hh;
};

struct keys {
	struct json_arena *arena;
	struct key_entry *entries;
	struct key_entry none; /* is compared with where there is no such key */
	size_t live_n, revoked_n;
};

static const char *const role_names[KEY_ROLES_N] = {
#define ROLE(name, text) [KEY_ROLE_PLACE_##name] = text,
	KEY_ROLES(ROLE)
#undef ROLE
};

const char *key_verdict_kind(enum key_verdict verdict)
{
	static const char *const kinds[] = {
#define VERDICT(name, kind) [name] = kind,
		KEY_VERDICTS(VERDICT)
#undef VERDICT
	};

	return kinds[verdict];
}

struct keys *keys_new(void)
{
	struct keys *keys = checked(calloc(1, sizeof(*keys)));

	keys->arena = json_arena_new();
	keys->none.previous_until_ms = INT64_MIN;
	return keys;
}

/* The coupons and the budgets of a key that is not for everything. */
static void lists_free(struct api_key *key)
{
	free((void *)key->coupons);
	free((void *)key->budgets);
	key->coupons = NULL;
	key->budgets = NULL;
	key->coupons_n = key->budgets_n = 0;
}

void keys_free(struct keys *keys)
{
	struct key_entry *entry, *next;

	if (!keys)
		return;
	HASH_ITER (hh, keys->entries, entry, next) {
		HASH_DEL(keys->entries, entry);
		lists_free(&entry->key);
		OPENSSL_cleanse(entry, sizeof(*entry));
		free(entry);
	}
	json_arena_free(keys->arena);
	free(keys);
}

/* ---- one record */

/* The string of a member that is nothing but these bytes; NULL: it is not. */
static const char *text_take(const cJSON *object, const char *name, const char *bytes, size_t least,
			     size_t most)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
	size_t len = text ? strlen(text) : 0;

	return text && len >= least && len <= most && strspn(text, bytes) == len ? text : NULL;
}

/* 0, or -1. Digits in lower case, as PostgreSQL writes them. */
static int hash_take(const cJSON *object, unsigned char hash[KEY_HASH_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	const char *text = text_take(object, "sha256", digits, 2 * KEY_HASH_SIZE,
				     2 * KEY_HASH_SIZE);

	for (size_t i = 0; text && i < KEY_HASH_SIZE; i++)
		hash[i] = (unsigned char)((strchr(digits, text[2 * i]) - digits) << 4 |
					  (strchr(digits, text[2 * i + 1]) - digits));
	return text ? 0 : -1;
}

/* A number; `absent` for null, which must be there. 0, or -1. */
static int number_take(const cJSON *object, const char *name, int64_t least, int64_t most,
		       int64_t absent, int64_t *value)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

	*value = absent;
	return cJSON_IsNull(item) ? 0 : json_integer(item, least, most, value);
}

/* At least one, each of those that there are. 0, or -1. */
static int roles_take(const cJSON *object, unsigned *set)
{
	const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, "roles"), *item;

	*set = 0;
	if (!cJSON_IsArray(array))
		return -1;
	cJSON_ArrayForEach(item, array)
	{
		const char *name = cJSON_GetStringValue(item);
		int i = 0;

		while (name && i < KEY_ROLES_N && strcmp(role_names[i], name) != 0)
			i++;
		if (!name || i == KEY_ROLES_N)
			return -1;
		*set |= 1u << i;
	}
	return *set ? 0 : -1;
}

/* The coupons and the budgets. 0, or -1; what was taken belongs to the key in either case. */
static int lists_take(const cJSON *object, struct api_key *key)
{
	const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, "coupons"), *item;
	char(*budgets)[KEY_NAME_MAX + 1];
	const char *error;
	int64_t *coupons;
	int count;

	if (!cJSON_IsNull(array)) {
		count = cJSON_IsArray(array) ? cJSON_GetArraySize(array) : 0;
		if (count < 1 || count > KEY_COUPONS_MAX)
			return -1;
		key->coupons = coupons = checked(calloc((size_t)count, sizeof(*coupons)));
		cJSON_ArrayForEach(item, array)
		{
			if (!cJSON_IsString(item) ||
			    json_id(item, &coupons[key->coupons_n++], &error))
				return -1;
		}
		key->coupons_n = numbers_unique(coupons, key->coupons_n);
	}

	array = cJSON_GetObjectItemCaseSensitive(object, "budgets");
	if (!array || cJSON_IsNull(array))
		return 0;
	count = cJSON_IsArray(array) ? cJSON_GetArraySize(array) : 0;
	if (count < 1 || count > KEY_BUDGETS_MAX || !key->coupons)
		return -1;
	key->budgets = budgets = checked(calloc((size_t)count, sizeof(*budgets)));
	cJSON_ArrayForEach(item, array)
	{
		const char *name = cJSON_GetStringValue(item);

		if (!name || !*name || strlen(name) > KEY_NAME_MAX ||
		    strspn(name, KEY_NAME_BYTES) != strlen(name))
			return -1;
		strcpy(budgets[key->budgets_n++], name);
	}
	return 0;
}

/* 0, and the lists of the entry's key are the caller's, or -1. */
static int record_parse(struct keys *keys, const char *text, size_t len, struct key_entry *entry)
{
	struct api_key *key = &entry->key;
	const cJSON *root, *revoked, *previous;
	const char *error, *id, *name;

	memset(entry, 0, sizeof(*entry));
	root = len <= RECORD_BYTES_MAX ? json_parse(keys->arena, text, len, &error) : NULL;
	if (!cJSON_IsObject(root))
		return -1;
	id = text_take(root, "id", KEY_ID_DIGITS, KEY_ID_LEN, KEY_ID_LEN);
	name = text_take(root, "name", KEY_NAME_BYTES, 1, KEY_NAME_MAX);
	revoked = cJSON_GetObjectItemCaseSensitive(root, "revoked");
	if (!id || !name || !cJSON_IsBool(revoked) ||
	    json_integer(cJSON_GetObjectItemCaseSensitive(root, "version"), 1, JSON_INTEGER_MAX,
			 &key->version) ||
	    roles_take(root, &key->roles) ||
	    number_take(root, "expires_ms", 0, JSON_INTEGER_MAX, INT64_MAX, &key->expires_ms) ||
	    number_take(root, "rate", 1, KEY_RATE_MAX, 0, &key->rate) ||
	    hash_take(root, entry->sha256))
		return -1;

	previous = cJSON_GetObjectItemCaseSensitive(root, "previous");
	entry->previous_until_ms = INT64_MIN;
	if (!cJSON_IsNull(previous) &&
	    (!cJSON_IsObject(previous) || hash_take(previous, entry->previous) ||
	     json_integer(cJSON_GetObjectItemCaseSensitive(previous, "until_ms"), 0,
			  JSON_INTEGER_MAX, &entry->previous_until_ms)))
		return -1;

	if (lists_take(root, key)) {
		lists_free(key);
		return -1;
	}
	strcpy(key->id, id);
	strcpy(key->name, name);
	key->is_revoked = cJSON_IsTrue(revoked);
	return 0;
}

/* ---- the table */

static struct key_entry *entry_get(const struct keys *keys, const char *id, size_t len)
{
	struct key_entry *entry = NULL;

	if (len == KEY_ID_LEN)
		HASH_FIND(hh, keys->entries, id, len, entry);
	return entry;
}

/* Whether the record says more of the key: revoked wins, then the higher version. */
static int is_newer(const struct api_key *key, const struct api_key *than)
{
	if (key->is_revoked != than->is_revoked)
		return key->is_revoked;
	return key->version > than->version;
}

static void entry_count(struct keys *keys, const struct api_key *key, int by)
{
	*(key->is_revoked ? &keys->revoked_n : &keys->live_n) += (size_t)by;
}

/* Takes what the record has, and its lists. */
static void entry_change(struct key_entry *entry, const struct key_entry *record)
{
	uint64_t generation = entry->key.generation + 1;

	lists_free(&entry->key);
	entry->key = record->key;
	entry->key.generation = generation;
	entry->key.use = &entry->use;
	memcpy(entry->sha256, record->sha256, sizeof(entry->sha256));
	memcpy(entry->previous, record->previous, sizeof(entry->previous));
	entry->previous_until_ms = record->previous_until_ms;
	if (!entry->key.is_revoked)
		return;
	/* Many may be revoked over the years: without their lists. */
	lists_free(&entry->key);
	entry->key.roles = 0;
}

enum keys_merged keys_merge(struct keys *keys, const char *text, size_t len)
{
	struct key_entry record, *entry;

	if (record_parse(keys, text, len, &record))
		return KEYS_MALFORMED;
	entry = entry_get(keys, record.key.id, KEY_ID_LEN);
	if (entry && !is_newer(&record.key, &entry->key)) {
		lists_free(&record.key);
		return KEYS_KNOWN;
	}
	if (!entry && (record.key.is_revoked ? keys->revoked_n >= KEYS_REVOKED_MAX
					     : keys->live_n >= KEYS_LIVE_MAX)) {
		lists_free(&record.key);
		return KEYS_FULL;
	}
	if (entry) {
		entry_count(keys, &entry->key, -1);
		entry_change(entry, &record);
	} else {
		entry = checked(calloc(1, sizeof(*entry)));
		entry_change(entry, &record);
		HASH_ADD_KEYPTR(hh, keys->entries, entry->key.id, KEY_ID_LEN, entry);
	}
	entry_count(keys, &entry->key, 1);
	return KEYS_CHANGED;
}

const struct api_key *keys_get(const struct keys *keys, const char *id, size_t len)
{
	const struct key_entry *entry = entry_get(keys, id, len);

	return entry ? &entry->key : NULL;
}

int key_has_coupon(const struct api_key *key, int64_t coupon)
{
	if (key->is_revoked)
		return 0;
	return !key->coupons || bsearch(&coupon, key->coupons, key->coupons_n,
					sizeof(*key->coupons), number_compare) != NULL;
}

int key_has_budget(const struct api_key *key, const char *budget)
{
	for (size_t i = 0; i < key->budgets_n; i++)
		if (strcmp(key->budgets[i], budget) == 0)
			return 1;
	return !key->coupons && !key->is_revoked;
}

/* ---- what is presented */

/* The id in a text of the form of a key; NULL: it has another form. */
static const char *text_id(const char *text, size_t len)
{
	const char *id = text + strlen(KEY_PREFIX), *secret = id + KEY_ID_LEN + 1;

	if (len != KEY_TEXT_LEN || memcmp(text, KEY_PREFIX, strlen(KEY_PREFIX)) != 0 ||
	    id[KEY_ID_LEN] != '_' || !key_id_valid(id, KEY_ID_LEN))
		return NULL;
	for (int i = 0; i < KEY_SECRET_LEN; i++)
		if (!memchr(SECRET_BYTES, secret[i], strlen(SECRET_BYTES)))
			return NULL;
	return id;
}

/* The verdict on a key whose secret, or another proof, is right. */
static enum key_verdict entry_state(const struct key_entry *entry, int64_t now_ms)
{
	if (entry->key.is_revoked)
		return KEY_REVOKED;
	return now_ms < entry->key.expires_ms ? KEY_GOOD : KEY_EXPIRED;
}

/*
 * Compares the hash of what was presented with both of the entry, whatever it finds, and sets until
 * when it is good.
 */
static enum key_verdict entry_judge(const struct key_entry *entry, const unsigned char *sha256,
				    int64_t now_ms, int64_t *until_ms)
{
	int is_own = CRYPTO_memcmp(sha256, entry->sha256, KEY_HASH_SIZE) == 0;
	int is_previous = CRYPTO_memcmp(sha256, entry->previous, KEY_HASH_SIZE) == 0;

	is_previous = is_previous && now_ms < entry->previous_until_ms;
	*until_ms = entry->key.expires_ms;
	if (!is_own && entry->previous_until_ms < *until_ms)
		*until_ms = entry->previous_until_ms;
	if (!is_own && !is_previous)
		return KEY_WRONG;
	return entry_state(entry, now_ms);
}

enum key_verdict keys_find(const struct keys *keys, const char *text, size_t len, int64_t now_ms,
			   struct key_grant *grant)
{
	const char *id = text_id(text, len);
	const struct key_entry *entry = id ? entry_get(keys, id, KEY_ID_LEN) : NULL;
	enum key_verdict verdict;

	memset(grant, 0, sizeof(*grant));
	if (!id)
		return KEY_FORM;
	SHA256((const unsigned char *)text, len, grant->sha256);
	verdict = entry_judge(entry ? entry : &keys->none, grant->sha256, now_ms, &grant->until_ms);
	if (!entry)
		verdict = KEY_UNKNOWN;
	if (verdict == KEY_GOOD) {
		grant->key = &entry->key;
		grant->generation = entry->key.generation;
	}
	return verdict;
}

enum key_verdict keys_find_by_id(const struct keys *keys, const char *id, size_t len,
				 int64_t now_ms, struct key_grant *grant)
{
	const struct key_entry *entry = key_id_valid(id, len) ? entry_get(keys, id, len) : NULL;
	enum key_verdict verdict;

	memset(grant, 0, sizeof(*grant));
	if (!entry)
		return KEY_UNKNOWN;
	verdict = entry_state(entry, now_ms);
	if (verdict == KEY_GOOD) {
		grant->until_ms = entry->key.expires_ms;
		grant->key = &entry->key;
		grant->generation = entry->key.generation;
		grant->is_by_id = 1;
	}
	return verdict;
}

enum key_verdict key_grant_check(struct key_grant *grant, int64_t now_ms)
{
	const struct key_entry *entry = (const struct key_entry *)grant->key;
	enum key_verdict verdict;
	int64_t until_ms = grant->key->expires_ms;

	if (grant->generation == grant->key->generation && now_ms < grant->until_ms)
		return KEY_GOOD;
	verdict = grant->is_by_id ? entry_state(entry, now_ms)
				  : entry_judge(entry, grant->sha256, now_ms, &until_ms);
	/* One that has ended is judged again when it is asked for again. */
	if (verdict == KEY_GOOD) {
		grant->generation = grant->key->generation;
		grant->until_ms = until_ms;
	}
	return verdict;
}

/* ---- the copy in Redis */

int64_t key_copy_number(const redisReply *reply)
{
	int64_t version;

	if (!reply || reply->type != REDIS_REPLY_STRING ||
	    number_parse(reply->str, JSON_INTEGER_MAX, &version))
		return 0;
	return version;
}

int key_copy_version(struct redis_client *redis, int64_t *version)
{
	const char *hget[] = { "HGET", KEYS_KEY, KEYS_VERSION };
	redisReply *reply = redis_client_call(redis, 3, hget);

	*version = key_copy_number(reply);
	freeReplyObject(reply);
	return reply ? 0 : -1;
}

enum key_copied key_copy_write(struct redis_client *redis, const char *installation,
			       const PGresult *rows, int64_t *from, int64_t to)
{
	const char *keys[] = { KEYS_KEY, CHANGES_KEY }, *argv[3 + KEY_COPY_PAGE] = { installation };
	char from_text[NUMBER_SIZE], to_text[NUMBER_SIZE], word[REDIS_WORD_SIZE];
	int n = PQntuples(rows);

	check(n <= KEY_COPY_PAGE);
	/* Changes since `to` was read may be among them. */
	if (n > 0 && (n == KEY_COPY_PAGE || column_number(rows, n - 1, "version") > to))
		to = column_number(rows, n - 1, "version");
	argv[1] = number_text(*from, from_text);
	argv[2] = number_text(to, to_text);
	for (int i = 0; i < n; i++)
		argv[3 + i] = column_text(rows, i, "record");
	redis_word_take(redis_client_eval(redis, lua_keys, 2, keys, 3 + n, argv), word);
	*from = to;
	if (strcmp(word, "ok") == 0)
		return KEY_COPIED;
	if (strcmp(word, "foreign") == 0)
		return KEY_COPY_FOREIGN;
	return strcmp(word, "unadopted") == 0 ? KEY_COPY_UNADOPTED : KEY_COPY_FAILED;
}
