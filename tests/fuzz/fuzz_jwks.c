/*
 * Key sets. The first byte chooses whether the file is secret. One that is refused has a sentence
 * without a secret; one that is taken has keys with names of their own, each of which finds its
 * key, no private part, and no secret unless the file is secret.
 */
#include "tests/fuzz/fuzz.h"

#include "common/message/json.h"
#include "common/message/receive.h"
#include "gateway/auth/jwks.h"

#include <stdlib.h>

static void key_check(const struct token_keys *keys, const struct token_key *key, int is_secret)
{
	static const size_t signature_bytes[] = {
		[ALGORITHM_ES256] = 64, [ALGORITHM_EDDSA] = 64, [ALGORITHM_HS256] = 32
	};
	const struct verifier *verifier = &key->verifier;
	uint8_t signature[1024] = { 0 };
	size_t n = verifier->signature_bytes;

	check(printable_valid(key->kid, strlen(key->kid), TOKEN_KID_MAX));
	check(token_keys_find(keys, key->kid) == key);
	check(token_keys_have(keys, verifier->fingerprint));
	check(verifier->algorithm != ALGORITHM_HS256 || is_secret);
	if (verifier->algorithm == ALGORITHM_RS256)
		check(n >= 256 && n <= 1024);
	else
		check(n == signature_bytes[verifier->algorithm]);
	check(verifier_verify(verifier, &keys->digest, "a.b", 3, signature, n) != 0);
	check(verifier_verify(verifier, &keys->digest, "a.b", 3, signature, n - 1) != 0);
}

/* No key that verifies has a private part. */
static void private_check(const char *text, size_t len)
{
	struct json_arena *arena = json_arena_new();
	const cJSON *root, *jwk;
	const char *error;

	json_decimals_allow(arena);
	root = json_parse(arena, text, len, &error);
	cJSON_ArrayForEach(jwk, cJSON_GetObjectItemCaseSensitive(root, "keys"))
		check(!cJSON_GetObjectItemCaseSensitive(jwk, "d"));
	json_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes bytes = { data, size };
	int is_secret = bytes_u8(&bytes) & 1;
	char why[KEY_FILE_WHY_SIZE] = "", *copy = malloc(bytes.left ? bytes.left : 1);
	struct token_keys *keys;

	check(copy != NULL);
	memcpy(copy, bytes.at, bytes.left);
	keys = token_keys_parse(copy, bytes.left, is_secret, why);
	check((keys == NULL) == (*why != '\0'));
	check(strlen(why) < KEY_FILE_WHY_SIZE - 1);
	if (keys) {
		check(keys->n >= 1 && keys->n <= TOKEN_KEYS_MAX);
		for (size_t i = 0; i < keys->n; i++)
			key_check(keys, &keys->list[i], is_secret);
		private_check(copy, bytes.left);
	}
	token_keys_free(keys);
	free(copy);
	return 0;
}
