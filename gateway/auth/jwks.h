/*
 * The keys of user tokens: a JSON Web Key Set (RFC 7517) in a file. Each key has a `kid` of its own
 * and one algorithm, by its type and curve; its `alg` may be absent:
 *
 *	kty  crv      algorithm  members
 *	EC   P-256    ES256      x, y: 32 bytes each, a point of the curve
 *	OKP  Ed25519  EdDSA      x: a point of the curve, not of small order
 *	RSA           RS256      n: 2048 to 8192 bits; e: odd, from 3, at most 64 bits
 *	oct           HS256      k: 32 to 1024 bytes
 *
 * A key for encryption, or for a registered algorithm that is none of ours, as issuers publish them
 * beside these, is left out with a line in the log. All else that is wrong refuses the whole file:
 * a typing error must not silently remove a key.
 *
 * ES256 and RS256 are libcrypto's. EdDSA and HS256 are libsodium's: half the time of libcrypto for
 * an Ed25519 signature, and of a secret a state that is copied instead of a context.
 *
 * A set does not change. One thread.
 */
#pragma once

#include "common/program/key_file.h"

#include <cjson/cJSON.h>
#include <openssl/evp.h>
#include <sodium.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_BYTES 32

/* SHA-256, without fetching the algorithm and making a context each time. One thread. */
struct digest {
	EVP_MD *sha256;
	EVP_MD_CTX *context;
};

void digest_make(const struct digest *digest, const void *bytes, size_t len,
		 uint8_t out[DIGEST_BYTES]);

enum algorithm { ALGORITHM_ES256, ALGORITHM_EDDSA, ALGORITHM_RS256, ALGORITHM_HS256 };

struct verifier {
	enum algorithm algorithm;
	size_t signature_bytes;
	uint8_t fingerprint[DIGEST_BYTES];    /* of the key, not of its name: not for a log */
	EVP_PKEY_CTX *context;                /* ES256, RS256: used again for each signature */
	uint8_t point[32];                    /* EdDSA */
	crypto_auth_hmacsha256_state started; /* HS256: with the key, copied for each signature */
};

/*
 * NULL, or a sentence (a constant that begins with "its") about what is wrong with the key;
 * verifier_fini() follows in both cases.
 */
const char *verifier_init(struct verifier *verifier, const struct digest *digest,
			  enum algorithm algorithm, const cJSON *jwk);
void verifier_fini(struct verifier *verifier); /* also one of zeros */

/* Whether the key signed these bytes: 0, or -1. Takes a signature as RFC 7518 has it only. */
int verifier_verify(const struct verifier *verifier, const struct digest *digest, const char *bytes,
		    size_t len, const uint8_t *signature, size_t signature_len);

#define TOKEN_KEYS_MAX 64 /* in the file */
#define TOKEN_KEYS_BYTES_MAX 262144
#define TOKEN_KID_MAX 64

struct token_key {
	char kid[TOKEN_KID_MAX + 1];
	const char *alg; /* what the header of each of its tokens has */
	struct verifier verifier;
};

struct token_keys {
	struct digest digest;
	size_t n;
	struct token_key list[TOKEN_KEYS_MAX];
};

/*
 * The set in the file, or NULL with a sentence that names the file and the key, and never a
 * secret. A file with a key of type `oct`, also one that is left out, must be secret itself.
 */
struct token_keys *token_keys_load(const char *path, char why[KEY_FILE_WHY_SIZE]);
void token_keys_free(struct token_keys *keys); /* also NULL */

/* Parses the set in a text, as token_keys_load(). `is_secret`: others cannot read the text. */
struct token_keys *token_keys_parse(const char *text, size_t len, int is_secret,
				    char why[KEY_FILE_WHY_SIZE]);

const struct token_key *token_keys_find(const struct token_keys *keys,
					const char *kid); /* or NULL */

/* Whether the key with this fingerprint is in the set, whatever its `kid`. */
int token_keys_have(const struct token_keys *keys, const uint8_t fingerprint[DIGEST_BYTES]);
