#include "gateway/gate/jwks.h"

#include "common/check.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/receive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE_OF_OURS (-1)

/* Each type of key and curve, and the algorithm of one that names none. */
static const struct type {
	const char *kty, *crv, *alg;
} types[] = {
	{ "EC", "P-256", "ES256" },      { "EC", "P-384", "ES384" },    { "EC", "P-521", "ES512" },
	{ "EC", "secp256k1", "ES256K" }, { "OKP", "Ed25519", "EdDSA" }, { "OKP", "Ed448", "EdDSA" },
	{ "OKP", "X25519", "ECDH-ES" },  { "OKP", "X448", "ECDH-ES" },  { "RSA", NULL, "RS256" },
	{ "oct", NULL, "HS256" },        { "AKP", NULL, "ML-DSA-44" },
};

/* The registered algorithms, each with the keys that it takes; `crv` NULL: of every curve. */
static const struct use {
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

/* A key of the file, while it is read. */
struct reading {
	const cJSON *jwk;
	const struct use *use;
	int is_left_out;
};

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

/* What the key is for, by its type, curve and alg. */
static const char *use_read(struct reading *reading)
{
	const char *kty = member_text(reading->jwk, "kty"), *crv = NULL;
	const char *alg = member_text(reading->jwk, "alg");
	const struct type *type = NULL;
	int is_kty = 0, is_alg = 0;

	for (size_t i = 0; i < COUNT(types) && !type; i++) {
		if (!is_same(types[i].kty, kty))
			continue;
		is_kty = 1;
		crv = types[i].crv ? member_text(reading->jwk, "crv") : NULL;
		if (is_same(types[i].crv, crv))
			type = &types[i];
	}
	if (!type)
		return is_kty ? "its crv is absent or unknown" : "its kty is absent or unknown";
	if (member(reading->jwk, "alg") && !alg)
		return "its alg is not a string";
	alg = alg ? alg : type->alg;
	for (size_t i = 0; i < COUNT(uses); i++) {
		if (!is_same(uses[i].alg, alg))
			continue;
		is_alg = 1;
		reading->use = &uses[i];
		if (is_same(uses[i].kty, kty) && (!uses[i].crv || is_same(uses[i].crv, crv)))
			return NULL;
	}
	return is_alg ? "its alg does not go with its kty and crv" : "its alg is unknown";
}

/* Whether `use` and `key_ops` say that it verifies signatures. */
static const char *purpose_read(struct reading *reading)
{
	static const char *const others[] = { "encrypt",   "decrypt",   "wrapKey",
					      "unwrapKey", "deriveKey", "deriveBits" };
	const cJSON *use = member(reading->jwk, "use"), *ops = member(reading->jwk, "key_ops"), *op;
	int is_enc = is_same(cJSON_GetStringValue(use), "enc"), verifies = 0, known = 0, n = 0;

	if (use && !is_enc && !is_same(cJSON_GetStringValue(use), "sig"))
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
		return "its key_ops must have verify";
	reading->is_left_out = is_enc || (ops && !verifies) ||
			       reading->use->algorithm == NONE_OF_OURS;
	return NULL;
}

/* Makes it a key of the set. */
static const char *key_make(struct reading *reading, struct token_keys *keys)
{
	struct token_key *key = &keys->list[keys->n];
	const char *kid = member_text(reading->jwk, "kid"), *wrong;

	if (!kid || !printable_valid(kid, strlen(kid), TOKEN_KID_MAX))
		return "its kid must be 1 to 64 bytes of printable ASCII";
	if (token_keys_find(keys, kid))
		return "its kid is that of a key before: allowed is each once";
	snprintf(key->kid, sizeof(key->kid), "%s", kid);
	key->alg = reading->use->alg;
	wrong = verifier_init(&key->verifier, &keys->digest,
			      (enum algorithm)reading->use->algorithm, reading->jwk);
	if (wrong)
		verifier_fini(&key->verifier);
	else
		keys->n++;
	return wrong;
}

static const char *key_read(struct reading *reading, struct token_keys *keys, int is_secret)
{
	static const char *const secrets[] = { "d", "p", "q", "dp", "dq", "qi", "oth", "priv" };
	const char *wrong;

	if (!cJSON_IsObject(reading->jwk))
		return "it is not an object";
	for (size_t i = 0; i < COUNT(secrets); i++)
		if (member(reading->jwk, secrets[i]))
			return "its private part is in the file: only the issuer may have it, so "
			       "make a new key";
	if (!is_secret && is_same(member_text(reading->jwk, "kty"), "oct"))
		return "its type is oct, a secret, but " KEY_FILE_OTHERS;
	wrong = use_read(reading);
	wrong = wrong ? wrong : purpose_read(reading);
	return wrong || reading->is_left_out ? wrong : key_make(reading, keys);
}

/* Reads the keys; 0, or -1 with a sentence. */
static int keys_read(struct token_keys *keys, const cJSON *root, int is_secret,
		     char why[KEY_FILE_WHY_SIZE])
{
	const cJSON *array = member(root, "keys"), *jwk;
	int number = 0, listed = cJSON_GetArraySize(array);
	const char *wrong = NULL;

	if (!cJSON_IsObject(root) || !cJSON_IsArray(array))
		wrong = "it is not an object with an array \"keys\"";
	else if (listed > TOKEN_KEYS_MAX)
		wrong = "it has more than 64 keys";
	if (wrong) {
		snprintf(why, KEY_FILE_WHY_SIZE, "%s", wrong);
		return -1;
	}
	cJSON_ArrayForEach(jwk, array)
	{
		struct reading reading = { .jwk = jwk };
		const char *kid = member_text(jwk, "kid");

		kid = kid && printable_valid(kid, strlen(kid), TOKEN_KID_MAX) ? kid : "none";
		number++;
		wrong = key_read(&reading, keys, is_secret);
		if (wrong) {
			snprintf(why, KEY_FILE_WHY_SIZE, "key %d (kid %s): %s", number, kid, wrong);
			return -1;
		}
		if (reading.is_left_out)
			log_info("token_key_left_out", LOG_I("key", number), LOG_S("kid", kid),
				 LOG_S("alg", reading.use->alg));
	}
	if (keys->n > 0)
		return 0;
	snprintf(why, KEY_FILE_WHY_SIZE, "it has no key that verifies tokens");
	return -1;
}

struct token_keys *token_keys_parse(const char *text, size_t len, int is_secret,
				    char why[KEY_FILE_WHY_SIZE])
{
	struct token_keys *keys = checked(calloc(1, sizeof(*keys)));
	struct json_arena *arena = json_arena_new();
	const char *error = NULL;
	const cJSON *root;

	digest_init(&keys->digest);
	json_decimals_allow(arena); /* in members that are not ours */
	json_mark_skip(&text, &len);
	root = json_parse(arena, text, len, &error);
	if (!root)
		snprintf(why, KEY_FILE_WHY_SIZE, "it is not strict JSON: %s", error);
	if (!root || keys_read(keys, root, is_secret, why)) {
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
	digest_fini(&keys->digest);
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
