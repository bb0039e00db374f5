/*
 * Which line answers each recommendation of RFC 8725, JSON Web Token Best Current Practices:
 *
 *	3.1  verify the algorithm        key_of_header(): exactly that of the key
 *	3.2  appropriate algorithms      jwks.c, `uses`: four, and `none` is not among them
 *	3.3  validate all operations     signed_check(): the one signature; without it no token
 *	3.4  validate their inputs       verifier.c: points, lengths; libcrypto: r and s
 *	3.5  keys of sufficient entropy  verifier.c: HS256 from 256 bits, RSA from 2048 bits
 *	3.6  no compression              parts_split(): a JWE, of five parts, is no token
 *	3.7  UTF-8                       json_parse()
 *	3.8  issuer and subject          claims_read(): `iss` as set, whose keys all of them are
 *	3.9  audience                    audience_check(): always needed
 *	3.10 do not trust claims         `kid` is compared only; jku, jwk, x5u and x5c are not read
 *	3.11 explicit typing             typ_allowed(): no other kinds of tokens
 *	3.12 rules that exclude others   `aud` is this gateway; see docs/protocol.md for the issuer
 *
 * The cache finds a text by its SHA-256, as nobody can make two texts with the same. A keyed hash
 * would protect the table against texts that are chosen for their hashes; it has only those that
 * the issuer has signed, and common/hash.h has a key.
 */
#include "gateway/gate/token.h"

#include "common/check.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/number.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DATE_MAX_S 253402300799 /* the end of the year 9999: a date in milliseconds is beyond it */

struct entry {
	uint8_t digest[DIGEST_BYTES];
	const struct token *token;
	UT_hash_handle hh;
};

struct tokens {
	char *issuer, *audience;
	int64_t leeway_ms;
	struct token_keys *keys; /* NULL: none yet */
	struct json_arena *arena;
	char bytes[TOKEN_BYTES_MAX]; /* of the part that is read */
	struct entry *table;
	struct entry *ring[TOKEN_CACHE]; /* by age; NULL: not used yet */
	size_t oldest;
};

/* The parts of a compact JWS. */
struct parts {
	const char *header, *payload, *signature;
	size_t header_len, payload_len, signature_len;
	size_t signed_len; /* header, dot, payload */
};

const char *token_verdict_kind(enum token_verdict verdict)
{
	static const char *const kinds[] = {
#define TOKEN(name, kind) [name] = (kind),
		TOKEN_VERDICTS
#undef TOKEN
	};

	return kinds[verdict];
}

int token_is_for(const struct token *token, int64_t coupon)
{
	for (size_t i = 0; i < token->coupons_n; i++)
		if (token->coupons[i] == coupon)
			return 1;
	return token->is_for_all;
}

const struct token *token_hold(const struct token *token)
{
	((struct token *)(uintptr_t)token)->holders++;
	return token;
}

void token_drop(const struct token *token)
{
	if (token && --((struct token *)(uintptr_t)token)->holders == 0)
		free((void *)(uintptr_t)token);
}

/* The cache. */

static void entry_forget(struct tokens *tokens, struct entry *entry)
{
	HASH_DEL(tokens->table, entry);
	token_drop(entry->token);
	free(entry);
}

static void cache_empty(struct tokens *tokens)
{
	for (size_t i = 0; i < TOKEN_CACHE; i++) {
		if (tokens->ring[i])
			entry_forget(tokens, tokens->ring[i]);
		tokens->ring[i] = NULL;
	}
}

static void cache_add(struct tokens *tokens, const uint8_t digest[DIGEST_BYTES],
		      const struct token *token)
{
	struct entry *entry = checked(calloc(1, sizeof(*entry)));
	struct entry **place = &tokens->ring[tokens->oldest];

	if (*place)
		entry_forget(tokens, *place);
	*place = entry;
	tokens->oldest = (tokens->oldest + 1) % TOKEN_CACHE;
	memcpy(entry->digest, digest, DIGEST_BYTES);
	entry->token = token_hold(token);
	HASH_ADD(hh, tokens->table, digest, DIGEST_BYTES, entry);
}

/* The form. */

/* The bytes up to a dot, or up to the end of the last part. 0, or -1. */
static int part_take(const char **at, const char *end, int is_last, const char **part, size_t *len)
{
	const char *dot = memchr(*at, '.', (size_t)(end - *at));

	if ((dot == NULL) != is_last)
		return -1;
	*part = *at;
	*len = (size_t)((dot ? dot : end) - *at);
	*at = dot ? dot + 1 : end;
	return *len > 0 ? 0 : -1;
}

static int parts_split(struct parts *parts, const char *text, size_t len)
{
	const char *at = text, *end = text + len;

	if (len > TOKEN_BYTES_MAX || part_take(&at, end, 0, &parts->header, &parts->header_len) ||
	    part_take(&at, end, 0, &parts->payload, &parts->payload_len) ||
	    part_take(&at, end, 1, &parts->signature, &parts->signature_len))
		return -1;
	parts->signed_len = parts->header_len + 1 + parts->payload_len;
	return 0;
}

/* Into tokens->bytes: base64url without padding and with no bits left over. 0, or -1. */
static int part_decode(struct tokens *tokens, const char *part, size_t part_len, size_t *len)
{
	return base64_read(part, part_len, sodium_base64_VARIANT_URLSAFE_NO_PADDING, tokens->bytes,
			   sizeof(tokens->bytes), len);
}

/* The object in a part, valid until the next one is read; NULL: it is none. */
static const cJSON *part_parse(struct tokens *tokens, const char *part, size_t part_len)
{
	const cJSON *object;
	const char *error;
	size_t len;

	if (part_decode(tokens, part, part_len, &len))
		return NULL;
	object = json_parse(tokens->arena, tokens->bytes, len, &error);
	return cJSON_IsObject(object) ? object : NULL;
}

/* The header and the signature. */

static const cJSON *member(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}

static int is_text(const cJSON *item, const char *text)
{
	return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

/* RFC 7515 lets a media type leave out its "application/". */
static int typ_allowed(const cJSON *typ)
{
	static const char prefix[] = "application/";
	const char *text = cJSON_GetStringValue(typ);

	if (!text)
		return typ == NULL;
	if (strncasecmp(text, prefix, sizeof(prefix) - 1) == 0)
		text += sizeof(prefix) - 1;
	return strcasecmp(text, "JWT") == 0 || strcasecmp(text, "at+jwt") == 0;
}

/* An extension that must be understood, and `b64`, which changes what is signed, are refused. */
static enum token_verdict header_check(const cJSON *header)
{
	if (member(header, "crit") || member(header, "b64") || !typ_allowed(member(header, "typ")))
		return TOKEN_HEADER;
	return cJSON_IsString(member(header, "kid")) ? TOKEN_GOOD : TOKEN_HEADER;
}

static enum token_verdict key_of_header(const struct tokens *tokens, const cJSON *header,
					const struct token_key **key)
{
	*key = token_keys_find(tokens->keys, member(header, "kid")->valuestring);
	if (!*key)
		return TOKEN_KEY_UNKNOWN;
	return is_text(member(header, "alg"), (*key)->alg) ? TOKEN_GOOD : TOKEN_ALGORITHM;
}

static enum token_verdict signed_check(struct tokens *tokens, const struct parts *parts,
				       const struct token_key *key)
{
	size_t len;

	if (part_decode(tokens, parts->signature, parts->signature_len, &len))
		return TOKEN_MALFORMED;
	return verifier_verify(&key->verifier, &tokens->keys->digest, parts->header,
			       parts->signed_len, (const uint8_t *)tokens->bytes, len)
		       ? TOKEN_SIGNATURE
		       : TOKEN_GOOD;
}

/* The claims. */

/* A NumericDate, which may have a fraction. 0, or -1. */
static int date_read(const cJSON *item, int64_t *ms)
{
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= DATE_MAX_S))
		return -1;
	*ms = (int64_t)(item->valuedouble * 1000);
	return 0;
}

/*
 * `iat` is no condition: RFC 7519 gives it no part in whether a token is good, and `nbf` is there
 * for what is to be good later. A server whose clock is ahead would stop its own sale.
 */
static int dates_read(const struct tokens *tokens, const cJSON *claims, struct token *token)
{
	const cJSON *nbf = member(claims, "nbf"), *iat = member(claims, "iat");
	int64_t issued_ms;

	token->from_ms = 0;
	if (date_read(member(claims, "exp"), &token->until_ms) ||
	    (nbf && date_read(nbf, &token->from_ms)) || (iat && date_read(iat, &issued_ms)))
		return -1;
	token->until_ms += tokens->leeway_ms;
	token->from_ms -= tokens->leeway_ms;
	return 0;
}

static int coupons_read(const cJSON *coupons, struct token *token)
{
	const char *error;
	const cJSON *id;

	token->is_for_all = coupons == NULL;
	cJSON_ArrayForEach(id, coupons)
	{
		if (json_id(id, &token->coupons[token->coupons_n], &error))
			return -1;
		token->coupons_n++;
	}
	return 0;
}

static int user_read(const cJSON *claims, struct token *token)
{
	const char *sub = cJSON_GetStringValue(member(claims, "sub"));
	const cJSON *key = member(claims, "key");
	const char *text = cJSON_GetStringValue(key);

	if (!sub || user_id_parse(&token->user, sub, strlen(sub)))
		return -1;
	if (!key)
		return 0;
	if (!text || !receive_key_valid(text, strlen(text)))
		return -1;
	memcpy(token->key, text, strlen(text) + 1);
	return 0;
}

/* A string, or an array of strings, one of which is our audience. */
static enum token_verdict audience_check(const struct tokens *tokens, const cJSON *aud)
{
	enum token_verdict verdict = TOKEN_AUDIENCE;
	const cJSON *one;

	if (cJSON_IsString(aud))
		return is_text(aud, tokens->audience) ? TOKEN_GOOD : TOKEN_AUDIENCE;
	if (!cJSON_IsArray(aud))
		return TOKEN_CLAIMS;
	cJSON_ArrayForEach(one, aud)
	{
		if (!cJSON_IsString(one))
			return TOKEN_CLAIMS;
		if (is_text(one, tokens->audience))
			verdict = TOKEN_GOOD;
	}
	return verdict;
}

/* The token of the claims, with one holder; NULL with a verdict. */
static struct token *claims_read(const struct tokens *tokens, const cJSON *claims,
				 const struct token_key *key, enum token_verdict *verdict)
{
	const cJSON *iss = member(claims, "iss"), *coupons = member(claims, "coupons");
	int coupons_n = cJSON_GetArraySize(coupons);
	struct token *token;

	*verdict = TOKEN_CLAIMS;
	if (!cJSON_IsString(iss) || (coupons && !cJSON_IsArray(coupons)) ||
	    coupons_n > TOKEN_COUPONS_MAX)
		return NULL;
	token = checked(calloc(1, sizeof(*token) + (size_t)coupons_n * sizeof(int64_t)));
	token->holders = 1;
	memcpy(token->fingerprint, key->verifier.fingerprint, DIGEST_BYTES);
	if (!dates_read(tokens, claims, token) && !user_read(claims, token) &&
	    !coupons_read(coupons, token)) {
		*verdict = audience_check(tokens, member(claims, "aud"));
		if (*verdict != TOKEN_CLAIMS && !is_text(iss, tokens->issuer))
			*verdict = TOKEN_ISSUER;
	}
	if (*verdict == TOKEN_GOOD)
		return token;
	token_drop(token);
	return NULL;
}

static enum token_verdict times_check(const struct token *token, int64_t now_ms)
{
	if (now_ms < token->from_ms)
		return TOKEN_EARLY;
	return now_ms < token->until_ms ? TOKEN_GOOD : TOKEN_EXPIRED;
}

/* A text that is not in the cache. With TOKEN_GOOD `*token` has one holder. */
static enum token_verdict text_verify(struct tokens *tokens, const char *text, size_t len,
				      int64_t now_ms, const struct token **token)
{
	const struct token_key *key = NULL;
	enum token_verdict verdict;
	const cJSON *object;
	struct parts parts;

	if (parts_split(&parts, text, len))
		return TOKEN_MALFORMED;
	object = part_parse(tokens, parts.header, parts.header_len);
	if (!object)
		return TOKEN_MALFORMED;
	verdict = header_check(object);
	verdict = verdict ? verdict : key_of_header(tokens, object, &key);
	verdict = verdict ? verdict : signed_check(tokens, &parts, key);
	if (verdict)
		return verdict;
	/* Nothing of the payload is looked at before the signature is good. */
	object = part_parse(tokens, parts.payload, parts.payload_len);
	if (!object)
		return TOKEN_MALFORMED;
	*token = claims_read(tokens, object, key, &verdict);
	verdict = verdict ? verdict : times_check(*token, now_ms);
	if (verdict) {
		token_drop(*token);
		*token = NULL;
	}
	return verdict;
}

enum token_verdict tokens_verify(struct tokens *tokens, const char *text, size_t len,
				 int64_t now_ms, const struct token **token)
{
	uint8_t digest[DIGEST_BYTES];
	enum token_verdict verdict;
	struct entry *entry;

	*token = NULL;
	if (!tokens->keys)
		return TOKEN_KEY_UNKNOWN;
	if (len > TOKEN_BYTES_MAX)
		return TOKEN_MALFORMED;
	digest_make(&tokens->keys->digest, text, len, digest);
	HASH_FIND(hh, tokens->table, digest, DIGEST_BYTES, entry);
	if (entry) {
		*token = entry->token;
		verdict = times_check(entry->token, now_ms);
	} else {
		verdict = text_verify(tokens, text, len, now_ms, token);
		if (verdict == TOKEN_GOOD) {
			cache_add(tokens, digest, *token);
			token_drop(*token); /* the cache holds it */
		}
	}
	if (verdict != TOKEN_GOOD)
		*token = NULL;
	return verdict;
}

int tokens_remember(const struct tokens *tokens, const char *text, size_t len)
{
	uint8_t digest[DIGEST_BYTES];
	const struct entry *entry;

	if (!tokens->keys || len > TOKEN_BYTES_MAX)
		return 0;
	digest_make(&tokens->keys->digest, text, len, digest);
	HASH_FIND(hh, tokens->table, digest, DIGEST_BYTES, entry);
	return entry != NULL;
}

enum token_verdict tokens_look(const struct tokens *tokens, const struct token *token,
			       int64_t now_ms)
{
	if (!tokens->keys || !token_keys_have(tokens->keys, token->fingerprint))
		return TOKEN_KEY_UNKNOWN;
	return times_check(token, now_ms);
}

void tokens_keys_set(struct tokens *tokens, struct token_keys *keys)
{
	cache_empty(tokens);
	token_keys_free(tokens->keys);
	tokens->keys = keys;
}

struct tokens *tokens_new(const struct token_terms *terms)
{
	struct tokens *tokens = checked(calloc(1, sizeof(*tokens)));

	tokens->issuer = checked(strdup(terms->issuer));
	tokens->audience = checked(strdup(terms->audience));
	tokens->leeway_ms = terms->leeway_ms;
	tokens->arena = json_arena_new();
	json_decimals_allow(tokens->arena);
	return tokens;
}

void tokens_free(struct tokens *tokens)
{
	cache_empty(tokens);
	token_keys_free(tokens->keys);
	json_arena_free(tokens->arena);
	free(tokens->issuer);
	free(tokens->audience);
	free(tokens);
}

void tokens_check(const struct config *config)
{
	char why[KEY_FILE_WHY_SIZE];
	struct token_keys *keys;

	if (!*config->token_keys)
		return;
	if (!*config->token_issuer || !*config->token_audience)
		log_fatal("COUPON_TOKEN_KEYS is set: COUPON_TOKEN_ISSUER and "
			  "COUPON_TOKEN_AUDIENCE are needed with it");
	keys = token_keys_load(config->token_keys, why);
	if (!keys)
		log_fatal("COUPON_TOKEN_KEYS: %s", why);
	token_keys_free(keys);
}
