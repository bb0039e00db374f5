/*
 * API keys: lines of records, and at last a text that is presented. What is taken is within its
 * bounds, taken again it changes nothing, and in another order the same keys are revoked; a text is
 * good only if a record has its hash.
 */
#include "tests/fuzz/fuzz.h"

#include "common/api_keys.h"

#include <openssl/sha.h>
#include <stdlib.h>

#define LINES_MAX 64

struct line {
	const char *at;
	size_t len;
};

static size_t lines_split(const char *text, size_t size, struct line lines[LINES_MAX])
{
	size_t n = 0;

	while (n < LINES_MAX) {
		const char *end = memchr(text, '\n', size);
		size_t len = end ? (size_t)(end - text) : size;

		lines[n++] = (struct line){ .at = text, .len = len };
		if (!end)
			break;
		text += len + 1;
		size -= len + 1;
	}
	return n;
}

static void key_check(const struct api_key *key)
{
	size_t len = strlen(key->name);

	check(key_id_valid(key->id, strlen(key->id)) && key->version > 0 && key->generation > 0);
	check(len > 0 && len <= KEY_NAME_MAX && strspn(key->name, KEY_NAME_BYTES) == len);
	check(key->is_revoked ? key->roles == 0 && !key->coupons : key->roles > 0);
	check(key->roles < 1u << KEY_ROLES_N && key->rate >= 0 && key->rate <= KEY_RATE_MAX);
	check(key->expires_ms >= 0 && key->coupons_n <= KEY_COUPONS_MAX);
	check((key->coupons != NULL) == (key->coupons_n > 0));
	for (size_t i = 0; i < key->coupons_n; i++) {
		check(key->coupons[i] > (i ? key->coupons[i - 1] : 0));
		check(key_has_coupon(key, key->coupons[i]));
	}
}

/* Looks up any ten bytes that are the id of a key. */
static void keys_check(const struct keys *keys, const struct keys *others, const char *text,
		       size_t size)
{
	for (size_t i = 0; i + KEY_ID_LEN <= size; i++) {
		const struct api_key *key = keys_get(keys, text + i, KEY_ID_LEN),
				     *other = keys_get(others, text + i, KEY_ID_LEN);

		check((key != NULL) == (other != NULL));
		if (!key)
			continue;
		key_check(key);
		check(memcmp(key->id, text + i, KEY_ID_LEN) == 0);
		check(key->is_revoked == other->is_revoked && key->version == other->version);
	}
}

/* A text that is good has its hash in a record, which may be written with escapes. */
static void text_check(const struct keys *keys, const struct line *line, const char *text,
		       size_t size)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char hash[KEY_HASH_SIZE];
	char hex[2 * KEY_HASH_SIZE];
	struct key_grant grant;
	enum key_verdict verdict = keys_find(keys, line->at, line->len, 0, &grant);

	check((verdict == KEY_GOOD) == (grant.key != NULL));
	if (verdict != KEY_GOOD)
		return;
	SHA256((const unsigned char *)line->at, line->len, hash);
	for (size_t i = 0; i < KEY_HASH_SIZE; i++) {
		hex[2 * i] = digits[hash[i] >> 4];
		hex[2 * i + 1] = digits[hash[i] & 15];
	}
	check(memchr(text, '\\', size) || memmem(text, size, hex, sizeof(hex)));
	check(!grant.key->is_revoked && key_grant_check(&grant, 0) == KEY_GOOD);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct keys *keys = keys_new(), *others = keys_new();
	const char *text = (const char *)data;
	struct line lines[LINES_MAX];
	size_t n = lines_split(text, size, lines);

	for (size_t i = 0; i < n; i++) {
		enum keys_merged merged = keys_merge(keys, lines[i].at, lines[i].len);

		check(keys_merge(keys, lines[i].at, lines[i].len) ==
		      (merged == KEYS_CHANGED ? KEYS_KNOWN : merged));
	}
	for (size_t i = n; i > 0; i--)
		keys_merge(others, lines[i - 1].at, lines[i - 1].len);
	keys_check(keys, others, text, size);
	text_check(keys, &lines[n - 1], text, size);
	keys_free(keys);
	keys_free(others);
	return 0;
}
