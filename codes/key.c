#include "codes/key.h"

#include "common/check.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#define ALLOWED "allowed is VERSION HEX, with a version from 1 to 32767 and 64 hexadecimal digits"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static const char *blanks_skip(const char *p, const char *end)
{
	while (p < end && is_blank(*p))
		p++;
	return p;
}

/* The version at the beginning; NULL unless it is one. */
static const char *version_read(const char *p, const char *end, int *version)
{
	*version = 0;
	for (; p < end && isdigit((unsigned char)*p); p++) {
		*version = *version * 10 + (*p - '0');
		if (*version > CODE_KEY_VERSION_MAX)
			return NULL;
	}
	return *version > 0 && p < end && is_blank(*p) ? p : NULL;
}

static int line_read(struct code_key *key, const char *p, const char *end)
{
	p = version_read(p, end, &key->version);
	if (!p)
		return -1;
	p = blanks_skip(p, end);
	if (end - p < 2 * CODE_KEY_BYTES)
		return -1;
	for (size_t i = 0; i < CODE_KEY_BYTES; i++, p += 2) {
		int high = hex_digit(p[0]), low = hex_digit(p[1]);

		if (high < 0 || low < 0)
			return -1;
		key->bytes[i] = (uint8_t)(high << 4 | low);
	}
	return blanks_skip(p, end) == end ? 0 : -1;
}

/* Adds the key of the line. NULL, or what is wrong. */
static const char *line_add(struct code_keys *keys, const char *p, const char *end)
{
	struct code_key *key = &keys->list[keys->n];

	if (keys->n == CODE_KEYS_MAX)
		return "it is one too many: allowed are 64 keys";
	if (line_read(key, p, end))
		return "it is no key: " ALLOWED;
	for (size_t i = 0; i < keys->n; i++) {
		if (keys->list[i].version == key->version)
			return "its version is that of a line before: allowed is each once";
		if (CRYPTO_memcmp(keys->list[i].bytes, key->bytes, CODE_KEY_BYTES) == 0)
			return "its key is that of a line before: allowed is each once";
	}
	keys->n++;
	return NULL;
}

int code_keys_parse(struct code_keys *keys, const char *text, size_t len, char why[CODE_WHY_SIZE])
{
	const char *end = text + len, *wrong;
	int line = 1;

	keys->n = 0;
	for (const char *p = text, *next; p < end; p = next + 1, line++) {
		next = memchr(p, '\n', (size_t)(end - p));
		next = next ? next : end;
		p = blanks_skip(p, next);
		if (p == next || *p == '#')
			continue;
		wrong = line_add(keys, p, next);
		if (wrong) {
			snprintf(why, CODE_WHY_SIZE, "line %d: %s", line, wrong);
			code_keys_wipe(keys);
			return -1;
		}
	}
	if (keys->n > 0)
		return 0;
	snprintf(why, CODE_WHY_SIZE, "there is no key: " ALLOWED);
	return -1;
}

void code_keys_wipe(struct code_keys *keys)
{
	OPENSSL_cleanse(keys, sizeof(*keys));
}

const struct code_key *code_keys_find(const struct code_keys *keys, int version)
{
	for (size_t i = 0; i < keys->n; i++)
		if (keys->list[i].version == version)
			return &keys->list[i];
	return NULL;
}

const struct code_key *code_keys_newest(const struct code_keys *keys)
{
	const struct code_key *newest = NULL;

	for (size_t i = 0; i < keys->n; i++)
		if (!newest || keys->list[i].version > newest->version)
			newest = &keys->list[i];
	return newest;
}

char *code_key_fingerprint(const struct code_key *key, char out[CODE_FINGERPRINT_SIZE])
{
	static const unsigned char what[] = "couponmq fingerprint of a key of codes";
	unsigned char mac[EVP_MAX_MD_SIZE];
	unsigned len;

	check(HMAC(EVP_sha256(), key->bytes, CODE_KEY_BYTES, what, sizeof(what) - 1, mac, &len) !=
	      NULL);
	for (size_t i = 0; i < (CODE_FINGERPRINT_SIZE - 1) / 2; i++)
		snprintf(out + 2 * i, 3, "%02x", mac[i]);
	return out;
}
