#include "events/signature.h"

#include "common/check.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MADE_BYTES 32
#define FINGERPRINT_OF "couponmq webhook secret"

int secret_parse(struct secret *secret, const char *text, size_t len)
{
	unsigned char bytes[SECRET_TEXT_SIZE], again[SECRET_TEXT_SIZE + 4];
	size_t prefix = strlen(SECRET_PREFIX);
	int n, padding = 0, rc = -1;

	if (len <= prefix || len >= SECRET_TEXT_SIZE || memcmp(text, SECRET_PREFIX, prefix) != 0)
		return -1;
	text += prefix;
	len -= prefix;
	n = EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)len);
	while (padding < 2 && (size_t)padding < len && text[len - 1 - (size_t)padding] == '=')
		padding++;
	n -= padding;
	/* Written again it must be the same: OpenSSL ignores spaces around it. */
	if (n >= SECRET_BYTES_LEAST && n <= SECRET_BYTES_MOST &&
	    (size_t)EVP_EncodeBlock(again, bytes, n) == len && memcmp(again, text, len) == 0) {
		memcpy(secret->bytes, bytes, (size_t)n);
		secret->n = (size_t)n;
		rc = 0;
	}
	OPENSSL_cleanse(bytes, sizeof(bytes));
	OPENSSL_cleanse(again, sizeof(again));
	return rc;
}

void secret_make(char text[SECRET_TEXT_SIZE])
{
	unsigned char bytes[MADE_BYTES];

	check(getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes));
	strcpy(text, SECRET_PREFIX);
	EVP_EncodeBlock((unsigned char *)text + strlen(SECRET_PREFIX), bytes, sizeof(bytes));
	OPENSSL_cleanse(bytes, sizeof(bytes));
}

char *secret_fingerprint(const struct secret *secret, char out[SECRET_FINGERPRINT_SIZE])
{
	unsigned char mac[EVP_MAX_MD_SIZE];

	check(HMAC(EVP_sha256(), secret->bytes, (int)secret->n,
		   (const unsigned char *)FINGERPRINT_OF, strlen(FINGERPRINT_OF), mac,
		   NULL) != NULL);
	for (size_t i = 0; i < (SECRET_FINGERPRINT_SIZE - 1) / 2; i++)
		snprintf(out + 2 * i, 3, "%02x", mac[i]);
	return out;
}

static size_t one_write(const struct secret *secret, const char *content, size_t len, char *out)
{
	unsigned char mac[EVP_MAX_MD_SIZE];
	unsigned n;

	check(HMAC(EVP_sha256(), secret->bytes, (int)secret->n, (const unsigned char *)content, len,
		   mac, &n) != NULL);
	memcpy(out, "v1,", 3);
	return 3 + (size_t)EVP_EncodeBlock((unsigned char *)out + 3, mac, (int)n);
}

int signature_write(const struct signed_message *message, const char *secrets,
		    char out[SIGNATURES_SIZE])
{
	char *content, *at = out;
	int len, n = 0, rc = 0;

	len = asprintf(&content, "%s.%" PRId64 ".%s", message->id, message->at_s, message->body);
	check(len >= 0);
	for (; *secrets && rc == 0; n++) {
		size_t secret_len = strcspn(secrets, " ");
		struct secret secret;

		if (n == SIGNATURES_MAX || secret_parse(&secret, secrets, secret_len)) {
			rc = -1;
			break;
		}
		if (n > 0)
			*at++ = ' ';
		at += one_write(&secret, content, (size_t)len, at);
		OPENSSL_cleanse(&secret, sizeof(secret));
		secrets += secret_len + (secrets[secret_len] == ' ');
	}
	*at = '\0';
	free(content);
	return n > 0 ? rc : -1;
}
