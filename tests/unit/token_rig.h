/* Issuers of tokens: keys that libcrypto makes, as a key set, and what they sign. */
#pragma once

#include "gateway/auth/token.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum issuer { EC, OKP, RSA_2048, OCT, ISSUERS };

static const struct issuer_kind {
	const char *kid, *alg;
} issuers[ISSUERS] = {
	[EC] = { "ec-1", "ES256" },
	[OKP] = { "okp-1", "EdDSA" },
	[RSA_2048] = { "rsa-1", "RS256" },
	[OCT] = { "oct-1", "HS256" },
};

static EVP_PKEY *issuer_keys[ISSUERS];
static unsigned char oct_key[32] = "0123456789abcdef0123456789abcde";

#define TEXT_SIZE 8192

/* base64url without padding, in one of some buffers that are used in turn. */
static const char *base64(const void *bytes, size_t len)
{
	static char texts[8][TEXT_SIZE];
	static size_t next;
	char *text = texts[next++ % 8];

	return sodium_bin2base64(text, TEXT_SIZE, bytes, len,
				 sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

static const char *bn_base64(const EVP_PKEY *pkey, const char *param)
{
	unsigned char bytes[1024];
	BIGNUM *number = NULL;
	int len;

	assert_int_equal(EVP_PKEY_get_bn_param(pkey, param, &number), 1);
	len = BN_bn2bin(number, bytes);
	BN_free(number);
	return base64(bytes, (size_t)len);
}

static void issuers_make(void)
{
	if (issuer_keys[EC])
		return;
	issuer_keys[EC] = EVP_EC_gen("P-256");
	issuer_keys[OKP] = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	issuer_keys[RSA_2048] = EVP_RSA_gen(2048);
}

static void issuers_free(void)
{
	for (int i = 0; i < ISSUERS; i++) {
		EVP_PKEY_free(issuer_keys[i]);
		issuer_keys[i] = NULL;
	}
}

/* The set of all keys but one (ISSUERS: of all). */
static struct token_keys *keys_make(enum issuer without)
{
	char text[TEXT_SIZE] = "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-384\",\"kid\":\"other\"}",
	     why[KEY_FILE_WHY_SIZE];
	unsigned char point[65], x[32];
	size_t len = sizeof(x), n = strlen(text);
	struct token_keys *keys;

	issuers_make();
	assert_int_equal(EVP_PKEY_get_octet_string_param(issuer_keys[EC], OSSL_PKEY_PARAM_PUB_KEY,
							 point, sizeof(point), NULL),
			 1);
	assert_int_equal(EVP_PKEY_get_raw_public_key(issuer_keys[OKP], x, &len), 1);
	if (without != EC)
		n += (size_t)snprintf(text + n, TEXT_SIZE - n,
				      ",{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"ec-1\","
				      "\"x\":\"%s\",\"y\":\"%s\"}",
				      base64(point + 1, 32), base64(point + 33, 32));
	if (without != OKP)
		n += (size_t)snprintf(text + n, TEXT_SIZE - n,
				      ",{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"okp-1\","
				      "\"x\":\"%s\"}",
				      base64(x, 32));
	if (without != RSA_2048)
		n += (size_t)snprintf(text + n, TEXT_SIZE - n,
				      ",{\"kty\":\"RSA\",\"kid\":\"rsa-1\",\"n\":\"%s\","
				      "\"e\":\"AQAB\"}",
				      bn_base64(issuer_keys[RSA_2048], OSSL_PKEY_PARAM_RSA_N));
	if (without != OCT)
		n += (size_t)snprintf(text + n, TEXT_SIZE - n,
				      ",{\"kty\":\"oct\",\"kid\":\"oct-1\",\"k\":\"%s\"}",
				      base64(oct_key, sizeof(oct_key)));
	n += (size_t)snprintf(text + n, TEXT_SIZE - n, "]}");
	keys = token_keys_parse(text, n, 1, why);
	if (!keys)
		fail_msg("%s", why);
	return keys;
}

/* The signature of an issuer, in the form of RFC 7518; its length, up to 1024. */
static size_t issuer_sign(enum issuer issuer, const char *text, unsigned char *out)
{
	const unsigned char *bytes = (const unsigned char *)text, *at = out;
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	size_t len = 1024;
	unsigned mac_len;
	ECDSA_SIG *pair;

	if (issuer == OCT) {
		EVP_MD_CTX_free(context);
		HMAC(EVP_sha256(), oct_key, sizeof(oct_key), bytes, strlen(text), out, &mac_len);
		return mac_len;
	}
	assert_int_equal(EVP_DigestSignInit(context, NULL, issuer == OKP ? NULL : EVP_sha256(),
					    NULL, issuer_keys[issuer]),
			 1);
	assert_int_equal(EVP_DigestSign(context, out, &len, bytes, strlen(text)), 1);
	EVP_MD_CTX_free(context);
	if (issuer != EC)
		return len;
	pair = d2i_ECDSA_SIG(NULL, &at, (long)len);
	assert_non_null(pair);
	BN_bn2binpad(ECDSA_SIG_get0_r(pair), out, 32);
	BN_bn2binpad(ECDSA_SIG_get0_s(pair), out + 32, 32);
	ECDSA_SIG_free(pair);
	return 64;
}

/* The token with these parts, each as it is given, in a buffer that the next call uses. */
static inline char *token_of(enum issuer issuer, const char *header, const char *payload)
{
	static char text[TEXT_SIZE];
	unsigned char signature[1024];
	size_t n, len;

	n = (size_t)snprintf(text, sizeof(text), "%s.%s", base64(header, strlen(header)),
			     base64(payload, strlen(payload)));
	len = issuer_sign(issuer, text, signature);
	snprintf(text + n, sizeof(text) - n, ".%s", base64(signature, len));
	return text;
}

/* A token with the header that the issuer's tokens have. */
static char *token_with(enum issuer issuer, const char *payload)
{
	char header[200];

	issuers_make();
	snprintf(header, sizeof(header), "{\"alg\":\"%s\",\"kid\":\"%s\",\"typ\":\"JWT\"}",
		 issuers[issuer].alg, issuers[issuer].kid);
	return token_of(issuer, header, payload);
}

#define NOW_MS 1800000000000 /* 2027-01-15 */
#define LEEWAY_MS 30000
#define CLAIMS(rest) "{\"iss\":\"https://shop.example\",\"aud\":\"couponmq\"" rest "}"
#define GOOD CLAIMS(",\"sub\":\"42\",\"exp\":1800000600")

static struct tokens *tokens;
static const struct token *token;

static int setup(void **state)
{
	const struct token_terms terms = { .issuer = "https://shop.example",
					   .audience = "couponmq",
					   .leeway_ms = LEEWAY_MS };

	(void)state;
	tokens = tokens_new(&terms);
	tokens_keys_set(tokens, keys_make(ISSUERS));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tokens_free(tokens);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	issuers_free();
	return 0;
}

/* From memory that ends with the text, so that a sanitizer detects reads beyond it. */
static enum token_verdict look_at(const char *text, size_t len, int64_t now_ms)
{
	char *copy = malloc(len ? len : 1);
	enum token_verdict verdict;

	memcpy(copy, text, len);
	verdict = tokens_verify(tokens, copy, len, now_ms, &token);
	free(copy);
	assert_int_equal(verdict == TOKEN_GOOD, token != NULL);
	return verdict;
}

static void expect_at(const char *text, int64_t now_ms, enum token_verdict wanted)
{
	enum token_verdict verdict = look_at(text, strlen(text), now_ms);

	if (verdict != wanted)
		fail_msg("%s is %s, not %s", text, token_verdict_kind(verdict),
			 token_verdict_kind(wanted));
}

static void expect(const char *text, enum token_verdict wanted)
{
	expect_at(text, NOW_MS, wanted);
}
