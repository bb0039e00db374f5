#include "codes/code_key.h"

#include "common/check.h"
#include "common/program/key_file.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(CODE_WHY_SIZE == KEY_FILE_WHY_SIZE, "one sentence fits the other");

#define BLANKS " \t\r"
#define ALLOWED "allowed is VERSION HEX, with a version from 1 to 32767 and 64 hexadecimal digits"

/* Adds the key of the line. NULL, or what is wrong. */
static const char *line_add(struct code_keys *keys, const char *p, const char *end)
{
	static const char malformed[] = "it is not a key: " ALLOWED;
	struct code_key *key = &keys->list[keys->n];
	char *digits_end = NULL;
	long version = isdigit((unsigned char)*p) ? strtol(p, &digits_end, 10) : 0;
	size_t bytes_n;

	if (keys->n == CODE_KEYS_MAX)
		return "it is one too many: allowed are 64 keys";
	if (version < 1 || version > CODE_KEY_VERSION_MAX || strspn(digits_end, BLANKS) == 0)
		return malformed;
	key->version = (int)version;
	p = digits_end + strspn(digits_end, BLANKS);
	if (sodium_hex2bin(key->bytes, CODE_KEY_BYTES, p, (size_t)(end - p), NULL, &bytes_n, &p) ||
	    bytes_n != CODE_KEY_BYTES || p + strspn(p, BLANKS) != end)
		return malformed;
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
		p += strspn(p, BLANKS);
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
	return sodium_bin2hex(out, CODE_FINGERPRINT_SIZE, mac, (CODE_FINGERPRINT_SIZE - 1) / 2);
}

int code_key_file_read(struct code_keys *keys, const char *path, char why[CODE_WHY_SIZE])
{
	char line[CODE_WHY_SIZE];
	struct key_file file;
	int failed = key_file_read(&file, path, CODE_KEY_FILE_BYTES_MAX, why);

	if (failed)
		return failed;
	if (!file.is_secret)
		failed = key_file_why(path, KEY_FILE_OTHERS, why);
	else if ((failed = code_keys_parse(keys, file.text, file.len, line)) != 0)
		snprintf(why, CODE_WHY_SIZE, "the file of keys \"%.300s\": %.150s", path, line);
	key_file_wipe(&file);
	return failed;
}
