#include "webhook/signature.h"

#include "common/check.h"
#include "webhook/secret.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
