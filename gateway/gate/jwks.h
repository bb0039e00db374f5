/*
 * The keys of user tokens: a JSON Web Key Set (RFC 7517) in a file.
 *
 * Each key has a `kid` of its own and one algorithm, by its type and curve (verifier.h); `alg` may
 * be absent. A key for encryption, or for a registered algorithm that is none of ours, as issuers
 * publish them beside these, is left out with a line in the log. All else that is wrong refuses
 * the whole file: a typing error must not silently remove a key.
 *
 * A set does not change. One thread.
 */
#pragma once

#include "common/program/key_file.h"
#include "gateway/gate/verifier.h"

#include <stddef.h>
#include <stdint.h>

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
