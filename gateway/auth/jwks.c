#include "gateway/auth/jwks.h"

#include "common/message/number.h"
#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/receive.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_BYTES 32 /* of P-256 */
#define ES256_BYTES (2 * FIELD_BYTES)
#define ES256_DER_MAX 72
#define RSA_BITS_LEAST 2048
#define RSA_BITS_MOST 8192
#define RSA_E_BITS_MOST 64
#define OCT_BYTES_LEAST 32
#define MEMBER_BYTES_MAX 1024 /* of n with 8192 bits, and of k */

void digest_make(const struct digest *digest, const void *bytes, size_t len,
		 uint8_t out[DIGEST_BYTES])
{
	check(EVP_DigestInit_ex2(digest->context, digest->sha256, NULL) == 1);
	check(EVP_DigestUpdate(digest->context, bytes, len) == 1);
	check(EVP_DigestFinal_ex(digest->context, out, NULL) == 1);
}

/* base64url without padding and with no bits left over: 0 and how many bytes, or -1. */
static int member_bytes(const cJSON *jwk, const char *name, uint8_t *out, size_t size, size_t *n)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(jwk, name));

	if (!text || !*text)
		return -1;
	return base64_read(text, strlen(text), sodium_base64_VARIANT_URLSAFE_NO_PADDING, out, size,
			   n);
}

/* The context that verifies by this public key; NULL: it is no key of this type. */
static EVP_PKEY_CTX *context_new(const EVP_MD *md, const char *type, OSSL_PARAM *params)
{
	EVP_PKEY_CTX *import = checked(EVP_PKEY_CTX_new_from_name(NULL, type, NULL));
	EVP_PKEY_CTX *context = NULL;
	EVP_PKEY *pkey = NULL;

	check(EVP_PKEY_fromdata_init(import) == 1);
	if (EVP_PKEY_fromdata(import, &pkey, EVP_PKEY_PUBLIC_KEY, params) == 1) {
		context = checked(EVP_PKEY_CTX_new_from_pkey(NULL, pkey, NULL));
		/* A point is of its curve, and a modulus is composite without small factors. */
		if (EVP_PKEY_public_check(context) != 1 || EVP_PKEY_verify_init(context) != 1 ||
		    EVP_PKEY_CTX_set_signature_md(context, md) != 1) {
			EVP_PKEY_CTX_free(context);
			context = NULL;
		}
	}
	EVP_PKEY_free(pkey);
	EVP_PKEY_CTX_free(import);
	ERR_clear_error(); /* what is left there is taken for the error of a TLS connection */
	return context;
}

static const char *ec_read(struct verifier *verifier, const struct digest *digest, const cJSON *jwk)
{
	uint8_t point[1 + ES256_BYTES] = { POINT_CONVERSION_UNCOMPRESSED };
	char group[] = "P-256";
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
		OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)),
		OSSL_PARAM_construct_end(),
	};
	size_t x, y;

	if (member_bytes(jwk, "x", point + 1, FIELD_BYTES, &x) ||
	    member_bytes(jwk, "y", point + 1 + FIELD_BYTES, FIELD_BYTES, &y) || x != FIELD_BYTES ||
	    y != FIELD_BYTES)
		return "its x and y must be 32 bytes each, in base64url without padding";
	verifier->context = context_new(digest->sha256, "EC", params);
	if (!verifier->context)
		return "its x and y are not a point of the curve P-256";
	verifier->signature_bytes = ES256_BYTES;
	digest_make(digest, point, sizeof(point), verifier->fingerprint);
	return NULL;
}

static const char *rsa_read(struct verifier *verifier, const struct digest *digest,
			    const cJSON *jwk)
{
	uint8_t n_bytes[MEMBER_BYTES_MAX + RSA_E_BITS_MOST / 8], e_bytes[RSA_E_BITS_MOST / 8];
	const char *wrong = NULL;
	OSSL_PARAM_BLD *build;
	OSSL_PARAM *params;
	size_t n_len, e_len;
	BIGNUM *n, *e;
	int bits;

	if (member_bytes(jwk, "n", n_bytes, MEMBER_BYTES_MAX, &n_len) || n_bytes[0] == 0)
		return "its n must be a number of 2048 to 8192 bits in base64url without padding, "
		       "and no byte before it";
	if (member_bytes(jwk, "e", e_bytes, sizeof(e_bytes), &e_len) || e_bytes[0] == 0)
		return "its e must be a number of at most 64 bits in base64url without padding, "
		       "and no byte before it";

	n = checked(BN_bin2bn(n_bytes, (int)n_len, NULL));
	e = checked(BN_bin2bn(e_bytes, (int)e_len, NULL));
	bits = BN_num_bits(n);
	if (bits < RSA_BITS_LEAST || bits > RSA_BITS_MOST) {
		wrong = "its n must have 2048 to 8192 bits";
		goto out;
	}
	if (!BN_is_odd(e) || BN_is_one(e)) {
		wrong = "its e must be odd and at least 3";
		goto out;
	}

	build = checked(OSSL_PARAM_BLD_new());
	check(OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1);
	check(OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) == 1);
	params = checked(OSSL_PARAM_BLD_to_param(build));
	verifier->context = context_new(digest->sha256, "RSA", params);
	OSSL_PARAM_free(params);
	OSSL_PARAM_BLD_free(build);
	if (!verifier->context) {
		wrong = "its n is not a modulus of RSA";
		goto out;
	}

	check(EVP_PKEY_CTX_set_rsa_padding(verifier->context, RSA_PKCS1_PADDING) == 1);
	verifier->signature_bytes = ((size_t)bits + 7) / 8;
	memcpy(n_bytes + n_len, e_bytes, e_len);
	digest_make(digest, n_bytes, n_len + e_len, verifier->fingerprint);
out:
	BN_free(n);
	BN_free(e);
	return wrong;
}

const char *verifier_init(struct verifier *verifier, const struct digest *digest,
			  enum algorithm algorithm, const cJSON *jwk)
{
	uint8_t bytes[MEMBER_BYTES_MAX];
	const char *wrong;
	size_t n;

	*verifier = (struct verifier){ .algorithm = algorithm };
	switch (algorithm) {
	case ALGORITHM_ES256:
		return ec_read(verifier, digest, jwk);
	case ALGORITHM_RS256:
		return rsa_read(verifier, digest, jwk);
	case ALGORITHM_EDDSA:
		if (member_bytes(jwk, "x", verifier->point, sizeof(verifier->point), &n) ||
		    n != sizeof(verifier->point))
			return "its x must be 32 bytes, in base64url without padding";
		/* With a point of small order anybody could make signatures. */
		if (!crypto_core_ed25519_is_valid_point(verifier->point))
			return "its x is not a point of the curve Ed25519";
		verifier->signature_bytes = crypto_sign_BYTES;
		digest_make(digest, verifier->point, sizeof(verifier->point),
			    verifier->fingerprint);
		return NULL;
	case ALGORITHM_HS256:
		wrong = "its k must be 32 to 1024 bytes, in base64url without padding";
		if (!member_bytes(jwk, "k", bytes, sizeof(bytes), &n) && n >= OCT_BYTES_LEAST) {
			wrong = NULL;
			check(crypto_auth_hmacsha256_init(&verifier->started, bytes, n) == 0);
			verifier->signature_bytes = crypto_auth_hmacsha256_BYTES;
			digest_make(digest, bytes, n, verifier->fingerprint);
		}
		sodium_memzero(bytes, sizeof(bytes));
		return wrong;
	}
	check_failed(__FILE__, __LINE__, "an algorithm of the enum");
}

void verifier_fini(struct verifier *verifier)
{
	EVP_PKEY_CTX_free(verifier->context);
	sodium_memzero(verifier, sizeof(*verifier));
}

static int context_verify(const struct verifier *verifier, const struct digest *digest,
			  const char *bytes, size_t len, const uint8_t *signature,
			  size_t signature_len)
{
	uint8_t hash[DIGEST_BYTES];

	digest_make(digest, bytes, len, hash);
	if (EVP_PKEY_verify(verifier->context, signature, signature_len, hash, sizeof(hash)) == 1)
		return 0;
	ERR_clear_error(); /* as above */
	return -1;
}

int verifier_verify(const struct verifier *verifier, const struct digest *digest, const char *bytes,
		    size_t len, const uint8_t *signature, size_t signature_len)
{
	uint8_t der[ES256_DER_MAX], *der_at = der, mac[crypto_auth_hmacsha256_BYTES];
	crypto_auth_hmacsha256_state state;
	ECDSA_SIG *pair;
	BIGNUM *r, *s;
	int der_len;

	if (signature_len != verifier->signature_bytes)
		return -1;
	switch (verifier->algorithm) {
	case ALGORITHM_ES256:
		/*
		 * RFC 7518 has two numbers of 32 bytes, libcrypto takes DER. Both (r, s) and
		 * (r, -s) sign a text: issuers make either, and the text of a token is no name of
		 * it, so both are good.
		 */
		pair = checked(ECDSA_SIG_new());
		r = checked(BN_bin2bn(signature, FIELD_BYTES, NULL));
		s = checked(BN_bin2bn(signature + FIELD_BYTES, FIELD_BYTES, NULL));
		check(ECDSA_SIG_set0(pair, r, s) == 1);
		der_len = i2d_ECDSA_SIG(pair, NULL);
		check(der_len > 0 && der_len <= ES256_DER_MAX);
		i2d_ECDSA_SIG(pair, &der_at);
		ECDSA_SIG_free(pair);
		return context_verify(verifier, digest, bytes, len, der, (size_t)der_len);
	case ALGORITHM_RS256:
		return context_verify(verifier, digest, bytes, len, signature, signature_len);
	case ALGORITHM_EDDSA:
		return crypto_sign_verify_detached(signature, (const unsigned char *)bytes, len,
						   verifier->point);
	case ALGORITHM_HS256:
		state = verifier->started;
		crypto_auth_hmacsha256_update(&state, (const unsigned char *)bytes, len);
		crypto_auth_hmacsha256_final(&state, mac);
		sodium_memzero(&state, sizeof(state));
		return crypto_verify_32(mac, signature);
	}
	check_failed(__FILE__, __LINE__, "an algorithm of the enum");
}

/* The key set. */

#define NONE_OF_OURS (-1)

/* Each type of key and curve, and the algorithm of one that names none. */
static const struct jwk_type {
	const char *kty, *crv, *alg;
} types[] = {
	{ "EC", "P-256", "ES256" },      { "EC", "P-384", "ES384" },    { "EC", "P-521", "ES512" },
	{ "EC", "secp256k1", "ES256K" }, { "OKP", "Ed25519", "EdDSA" }, { "OKP", "Ed448", "EdDSA" },
	{ "OKP", "X25519", "ECDH-ES" },  { "OKP", "X448", "ECDH-ES" },  { "RSA", NULL, "RS256" },
	{ "oct", NULL, "HS256" },        { "AKP", NULL, "ML-DSA-44" },
};

/* The registered algorithms, each with the keys that it takes; `crv` NULL: of every curve. */
static const struct jwk_use {
	const char *alg, *kty, *crv;
	int algorithm; /* of enum algorithm */
} uses[] = {
	{ "ES256", "EC", "P-256", ALGORITHM_ES256 },
	{ "EdDSA", "OKP", "Ed25519", ALGORITHM_EDDSA },
	{ "Ed25519", "OKP", "Ed25519", ALGORITHM_EDDSA }, /* its name since RFC 9864 */
	{ "RS256", "RSA", NULL, ALGORITHM_RS256 },
	{ "HS256", "oct", NULL, ALGORITHM_HS256 },
	{ "ES384", "EC", "P-384", NONE_OF_OURS },
	{ "ES512", "EC", "P-521", NONE_OF_OURS },
	{ "ES256K", "EC", "secp256k1", NONE_OF_OURS },
	{ "EdDSA", "OKP", "Ed448", NONE_OF_OURS },
	{ "Ed448", "OKP", "Ed448", NONE_OF_OURS },
	{ "RS384", "RSA", NULL, NONE_OF_OURS },
	{ "RS512", "RSA", NULL, NONE_OF_OURS },
	{ "PS256", "RSA", NULL, NONE_OF_OURS },
	{ "PS384", "RSA", NULL, NONE_OF_OURS },
	{ "PS512", "RSA", NULL, NONE_OF_OURS },
	{ "RSA1_5", "RSA", NULL, NONE_OF_OURS },
	{ "RSA-OAEP", "RSA", NULL, NONE_OF_OURS },
	{ "RSA-OAEP-256", "RSA", NULL, NONE_OF_OURS },
	{ "RSA-OAEP-384", "RSA", NULL, NONE_OF_OURS },
	{ "RSA-OAEP-512", "RSA", NULL, NONE_OF_OURS },
	{ "HS384", "oct", NULL, NONE_OF_OURS },
	{ "HS512", "oct", NULL, NONE_OF_OURS },
	{ "dir", "oct", NULL, NONE_OF_OURS },
	{ "A128KW", "oct", NULL, NONE_OF_OURS },
	{ "A192KW", "oct", NULL, NONE_OF_OURS },
	{ "A256KW", "oct", NULL, NONE_OF_OURS },
	{ "A128GCMKW", "oct", NULL, NONE_OF_OURS },
	{ "A192GCMKW", "oct", NULL, NONE_OF_OURS },
	{ "A256GCMKW", "oct", NULL, NONE_OF_OURS },
	{ "ECDH-ES", "EC", NULL, NONE_OF_OURS },
	{ "ECDH-ES+A128KW", "EC", NULL, NONE_OF_OURS },
	{ "ECDH-ES+A192KW", "EC", NULL, NONE_OF_OURS },
	{ "ECDH-ES+A256KW", "EC", NULL, NONE_OF_OURS },
	{ "ECDH-ES", "OKP", NULL, NONE_OF_OURS },
	{ "ECDH-ES+A128KW", "OKP", NULL, NONE_OF_OURS },
	{ "ECDH-ES+A192KW", "OKP", NULL, NONE_OF_OURS },
	{ "ECDH-ES+A256KW", "OKP", NULL, NONE_OF_OURS },
	{ "ML-DSA-44", "AKP", NULL, NONE_OF_OURS },
	{ "ML-DSA-65", "AKP", NULL, NONE_OF_OURS },
	{ "ML-DSA-87", "AKP", NULL, NONE_OF_OURS },
};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const cJSON *member(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* The text of a member, or NULL: it is absent or no string. */
static const char *member_text(const cJSON *object, const char *name)
{
	return cJSON_GetStringValue(member(object, name));
}

static int is_same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The functions that read a key return NULL, or a sentence about it that begins with "its". */

/* Finds what the key is for, by its type, curve and alg. */
static const char *use_read(const cJSON *jwk, const struct jwk_use **use)
{
	const char *kty = member_text(jwk, "kty"), *alg = member_text(jwk, "alg"), *crv = NULL;
	const struct jwk_type *type = NULL;
	int is_kty = 0, is_alg = 0;

	for (size_t i = 0; i < COUNT(types) && !type; i++) {
		if (!is_same(types[i].kty, kty))
			continue;
		is_kty = 1;
		crv = types[i].crv ? member_text(jwk, "crv") : NULL;
		if (is_same(types[i].crv, crv))
			type = &types[i];
	}
	if (!type)
		return is_kty ? "its crv is absent or unknown" : "its kty is absent or unknown";

	if (member(jwk, "alg") && !alg)
		return "its alg is not a string";
	alg = alg ? alg : type->alg;
	for (size_t i = 0; i < COUNT(uses); i++) {
		if (!is_same(uses[i].alg, alg))
			continue;
		is_alg = 1;
		*use = &uses[i];
		if (is_same(uses[i].kty, kty) && (!uses[i].crv || is_same(uses[i].crv, crv)))
			return NULL;
	}
	return is_alg ? "its alg does not match its kty and crv" : "its alg is unknown";
}

/* Adds the key to the set, or leaves it out: then `*left_out` is its alg. */
static const char *key_read(struct token_keys *keys, const cJSON *jwk, int is_secret,
			    const char **left_out)
{
	static const char *const secrets[] = { "d", "p", "q", "dp", "dq", "qi", "oth", "priv" };
	static const char *const others[] = { "encrypt",   "decrypt",   "wrapKey",
					      "unwrapKey", "deriveKey", "deriveBits" };
	const cJSON *purpose = member(jwk, "use"), *ops = member(jwk, "key_ops"), *op;
	int is_enc = is_same(cJSON_GetStringValue(purpose), "enc"), verifies = 0, known = 0, n = 0;
	struct token_key *key = &keys->list[keys->n];
	const char *kid = member_text(jwk, "kid"), *wrong;
	const struct jwk_use *use = NULL;

	if (!cJSON_IsObject(jwk))
		return "it is not an object";
	for (size_t i = 0; i < COUNT(secrets); i++)
		if (member(jwk, secrets[i]))
			return "the file contains its private part, which only the issuer may "
			       "have: make a new key";
	if (!is_secret && is_same(member_text(jwk, "kty"), "oct"))
		return "its type is oct, a secret, but " KEY_FILE_OTHERS;
	wrong = use_read(jwk, &use);
	if (wrong)
		return wrong;

	/* Whether `use` and `key_ops` say that it verifies signatures. */
	if (purpose && !is_enc && !is_same(cJSON_GetStringValue(purpose), "sig"))
		return "its use must be sig, or enc for a key that is left out";
	if (ops && !cJSON_IsArray(ops))
		return "its key_ops is not an array";
	cJSON_ArrayForEach(op, ops)
	{
		n++;
		verifies |= is_same(cJSON_GetStringValue(op), "verify");
		for (size_t i = 0; i < COUNT(others); i++)
			known += is_same(cJSON_GetStringValue(op), others[i]);
	}
	if (ops && !verifies && (n == 0 || known < n))
		return "its key_ops must contain verify";
	if (is_enc || (ops && !verifies) || use->algorithm == NONE_OF_OURS) {
		*left_out = use->alg;
		return NULL;
	}

	if (!kid || !printable_valid(kid, strlen(kid), TOKEN_KID_MAX))
		return "its kid must be 1 to 64 bytes of printable ASCII";
	if (token_keys_find(keys, kid))
		return "its kid was already used by an earlier key: each kid must be unique";
	snprintf(key->kid, sizeof(key->kid), "%s", kid);
	key->alg = use->alg;
	wrong = verifier_init(&key->verifier, &keys->digest, (enum algorithm)use->algorithm, jwk);
	if (wrong)
		verifier_fini(&key->verifier);
	else
		keys->n++;
	return wrong;
}

struct token_keys *token_keys_parse(const char *text, size_t len, int is_secret,
				    char why[KEY_FILE_WHY_SIZE])
{
	struct token_keys *keys = checked(calloc(1, sizeof(*keys)));
	struct json_arena *arena = json_arena_new();
	const char *error = NULL, *wrong = NULL;
	const cJSON *root, *array, *jwk;
	int number = 0;

	keys->digest.sha256 = checked(EVP_MD_fetch(NULL, "SHA256", NULL));
	keys->digest.context = checked(EVP_MD_CTX_new());
	json_decimals_allow(arena); /* in members that are not ours */
	json_mark_skip(&text, &len);
	root = json_parse(arena, text, len, &error);
	array = member(root, "keys");
	if (!root) {
		snprintf(why, KEY_FILE_WHY_SIZE, "it is not strict JSON: %s", error);
		goto out;
	}
	if (!cJSON_IsArray(array)) {
		snprintf(why, KEY_FILE_WHY_SIZE, "it is not an object with an array \"keys\"");
		goto out;
	}
	if (cJSON_GetArraySize(array) > TOKEN_KEYS_MAX) {
		snprintf(why, KEY_FILE_WHY_SIZE, "it has more than 64 keys");
		goto out;
	}

	cJSON_ArrayForEach(jwk, array)
	{
		const char *kid = member_text(jwk, "kid"), *left_out = NULL;

		kid = kid && printable_valid(kid, strlen(kid), TOKEN_KID_MAX) ? kid : "none";
		number++;
		wrong = key_read(keys, jwk, is_secret, &left_out);
		if (wrong) {
			snprintf(why, KEY_FILE_WHY_SIZE, "key %d (kid %s): %s", number, kid, wrong);
			break;
		}
		if (left_out)
			log_info("token_key_left_out", LOG_I("key", number), LOG_S("kid", kid),
				 LOG_S("alg", left_out));
	}
	if (!wrong && keys->n == 0)
		snprintf(why, KEY_FILE_WHY_SIZE, "it has no key that can verify tokens");
out:
	if (wrong || keys->n == 0) {
		token_keys_free(keys);
		keys = NULL;
	}
	json_arena_wipe(arena);
	json_arena_free(arena);
	return keys;
}

struct token_keys *token_keys_load(const char *path, char why[KEY_FILE_WHY_SIZE])
{
	char wrong[KEY_FILE_WHY_SIZE];
	struct token_keys *keys;
	struct key_file file;

	if (key_file_read(&file, path, TOKEN_KEYS_BYTES_MAX, why))
		return NULL;
	keys = token_keys_parse(file.text, file.len, file.is_secret, wrong);
	if (!keys)
		key_file_why(path, wrong, why);
	key_file_wipe(&file);
	return keys;
}

void token_keys_free(struct token_keys *keys)
{
	if (!keys)
		return;
	for (size_t i = 0; i < keys->n; i++)
		verifier_fini(&keys->list[i].verifier);
	EVP_MD_CTX_free(keys->digest.context);
	EVP_MD_free(keys->digest.sha256);
	free(keys);
}

const struct token_key *token_keys_find(const struct token_keys *keys, const char *kid)
{
	for (size_t i = 0; i < keys->n; i++)
		if (strcmp(keys->list[i].kid, kid) == 0)
			return &keys->list[i];
	return NULL;
}

int token_keys_have(const struct token_keys *keys, const uint8_t fingerprint[DIGEST_BYTES])
{
	for (size_t i = 0; i < keys->n; i++)
		if (memcmp(keys->list[i].verifier.fingerprint, fingerprint, DIGEST_BYTES) == 0)
			return 1;
	return 0;
}
