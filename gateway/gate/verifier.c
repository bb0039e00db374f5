#include "gateway/gate/verifier.h"

#include "common/check.h"
#include "common/message/number.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <string.h>

#define FIELD_BYTES 32 /* of P-256 */
#define ES256_BYTES (2 * FIELD_BYTES)
#define ES256_DER_MAX 72
#define RSA_BITS_LEAST 2048
#define RSA_BITS_MOST 8192
#define RSA_E_BITS_MOST 64
#define OCT_BYTES_LEAST 32
#define MEMBER_BYTES_MAX 1024 /* of n with 8192 bits, and of k */

void digest_init(struct digest *digest)
{
	digest->sha256 = checked(EVP_MD_fetch(NULL, "SHA256", NULL));
	digest->context = checked(EVP_MD_CTX_new());
}

void digest_fini(struct digest *digest)
{
	EVP_MD_CTX_free(digest->context);
	EVP_MD_free(digest->sha256);
}

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

static const char *ed25519_read(struct verifier *verifier, const struct digest *digest,
				const cJSON *jwk)
{
	size_t n;

	if (member_bytes(jwk, "x", verifier->point, sizeof(verifier->point), &n) ||
	    n != sizeof(verifier->point))
		return "its x must be 32 bytes, in base64url without padding";
	/* With a point of small order anybody could make signatures. */
	if (!crypto_core_ed25519_is_valid_point(verifier->point))
		return "its x is not a point of the curve Ed25519";
	verifier->signature_bytes = crypto_sign_BYTES;
	digest_make(digest, verifier->point, sizeof(verifier->point), verifier->fingerprint);
	return NULL;
}

static const char *rsa_make(struct verifier *verifier, const struct digest *digest, const BIGNUM *n,
			    const BIGNUM *e)
{
	int bits = BN_num_bits(n);
	OSSL_PARAM_BLD *build;
	OSSL_PARAM *params;

	if (bits < RSA_BITS_LEAST || bits > RSA_BITS_MOST)
		return "its n must have 2048 to 8192 bits";
	if (!BN_is_odd(e) || BN_is_one(e))
		return "its e must be odd and at least 3";
	build = checked(OSSL_PARAM_BLD_new());
	check(OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1);
	check(OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) == 1);
	params = checked(OSSL_PARAM_BLD_to_param(build));
	verifier->context = context_new(digest->sha256, "RSA", params);
	OSSL_PARAM_free(params);
	OSSL_PARAM_BLD_free(build);
	if (!verifier->context)
		return "its n is not a modulus of RSA";
	check(EVP_PKEY_CTX_set_rsa_padding(verifier->context, RSA_PKCS1_PADDING) == 1);
	verifier->signature_bytes = ((size_t)bits + 7) / 8;
	return NULL;
}

static const char *rsa_read(struct verifier *verifier, const struct digest *digest,
			    const cJSON *jwk)
{
	uint8_t n_bytes[MEMBER_BYTES_MAX + RSA_E_BITS_MOST / 8], e_bytes[RSA_E_BITS_MOST / 8];
	size_t n_len, e_len;
	const char *wrong;
	BIGNUM *n, *e;

	if (member_bytes(jwk, "n", n_bytes, MEMBER_BYTES_MAX, &n_len) || n_bytes[0] == 0)
		return "its n must be a number of 2048 to 8192 bits in base64url without padding, "
		       "and no byte before it";
	if (member_bytes(jwk, "e", e_bytes, sizeof(e_bytes), &e_len) || e_bytes[0] == 0)
		return "its e must be a number of at most 64 bits in base64url without padding, "
		       "and no byte before it";
	n = checked(BN_bin2bn(n_bytes, (int)n_len, NULL));
	e = checked(BN_bin2bn(e_bytes, (int)e_len, NULL));
	wrong = rsa_make(verifier, digest, n, e);
	BN_free(n);
	BN_free(e);
	memcpy(n_bytes + n_len, e_bytes, e_len);
	digest_make(digest, n_bytes, n_len + e_len, verifier->fingerprint);
	return wrong;
}

static const char *oct_read(struct verifier *verifier, const struct digest *digest,
			    const cJSON *jwk)
{
	const char *wrong = "its k must be 32 to 1024 bytes, in base64url without padding";
	uint8_t bytes[MEMBER_BYTES_MAX];
	size_t n;

	if (!member_bytes(jwk, "k", bytes, sizeof(bytes), &n) && n >= OCT_BYTES_LEAST) {
		wrong = NULL;
		check(crypto_auth_hmacsha256_init(&verifier->started, bytes, n) == 0);
		verifier->signature_bytes = crypto_auth_hmacsha256_BYTES;
		digest_make(digest, bytes, n, verifier->fingerprint);
	}
	sodium_memzero(bytes, sizeof(bytes));
	return wrong;
}

const char *verifier_init(struct verifier *verifier, const struct digest *digest,
			  enum algorithm algorithm, const cJSON *jwk)
{
	*verifier = (struct verifier){ .algorithm = algorithm };
	switch (algorithm) {
	case ALGORITHM_ES256:
		return ec_read(verifier, digest, jwk);
	case ALGORITHM_EDDSA:
		return ed25519_read(verifier, digest, jwk);
	case ALGORITHM_RS256:
		return rsa_read(verifier, digest, jwk);
	case ALGORITHM_HS256:
		return oct_read(verifier, digest, jwk);
	}
	check_failed(__FILE__, __LINE__, "an algorithm of the enum");
}

void verifier_fini(struct verifier *verifier)
{
	EVP_PKEY_CTX_free(verifier->context);
	sodium_memzero(verifier, sizeof(*verifier));
}

/*
 * Two numbers of 32 bytes, the form of RFC 7518, as the DER that libcrypto takes: its length. Both
 * (r, s) and (r, -s) sign a text: issuers make either, and the text of a token is no name of it,
 * so both are good.
 */
static size_t es256_der(const uint8_t signature[ES256_BYTES], uint8_t der[ES256_DER_MAX])
{
	ECDSA_SIG *pair = checked(ECDSA_SIG_new());
	BIGNUM *r = checked(BN_bin2bn(signature, FIELD_BYTES, NULL));
	BIGNUM *s = checked(BN_bin2bn(signature + FIELD_BYTES, FIELD_BYTES, NULL));
	int len;

	check(ECDSA_SIG_set0(pair, r, s) == 1);
	len = i2d_ECDSA_SIG(pair, NULL);
	check(len > 0 && len <= ES256_DER_MAX);
	i2d_ECDSA_SIG(pair, &der);
	ECDSA_SIG_free(pair);
	return (size_t)len;
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
	uint8_t der[ES256_DER_MAX], mac[crypto_auth_hmacsha256_BYTES];
	crypto_auth_hmacsha256_state state;

	if (signature_len != verifier->signature_bytes)
		return -1;
	switch (verifier->algorithm) {
	case ALGORITHM_ES256:
		return context_verify(verifier, digest, bytes, len, der, es256_der(signature, der));
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
