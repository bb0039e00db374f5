/*
 * Which line answers each recommendation of RFC 8725, JSON Web Token Best Current Practices:
 *
 *	3.1  verify the algorithm        text_verify(): exactly that of the key
 *	3.2  appropriate algorithms      jwks.c, `uses`: four, and `none` is not among them
 *	3.3  validate all operations     text_verify(): the one signature; without it no token
 *	3.4  validate their inputs       jwks.c: points, lengths; libcrypto: r and s
 *	3.5  keys of sufficient entropy  jwks.c: HS256 from 256 bits, RSA from 2048 bits
 *	3.6  no compression              parts_split(): a JWE, of five parts, is no token
 *	3.7  UTF-8                       json_parse()
 *	3.8  issuer and subject          claims_read(): `iss` as set, whose keys all of them are
 *	3.9  audience                    audience_check(): always needed
 *	3.10 do not trust claims         `kid` is compared only; jku, jwk, x5u and x5c are not read
 *	3.11 explicit typing             typ_allowed(): no other kinds of tokens
 *	3.12 rules that exclude others   `aud` is this gateway; for the issuer see protocol.md
 *
 * The cache finds a text by its SHA-256, as nobody can make two texts with the same. A keyed hash
 * would protect the table against texts that are chosen for their hashes; it has only those that
 * the issuer has signed, and common/hash.h has a key.
 */
#include "gateway/auth/token.h"

#include "common/check.h"
#include "common/hash.h"
#include "common/log/log.h"
#include "common/message/json.h"
#include "common/message/number.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DATE_MAX_S 253402300799 /* the end of the year 9999: a date in milliseconds is beyond it */

/* A token that was found good. */
struct cached_token {
	uint8_t digest[DIGEST_BYTES];
	const struct token *token;
	UT_hash_handle hh;
};

struct tokens {
	struct token_terms terms;
	struct token_keys *keys; /* NULL: none yet */
	struct json_arena *arena;
	char bytes[TOKEN_BYTES_MAX]; /* of the part that is read */
	struct cached_token *table;
	struct cached_token *ring[TOKEN_CACHE]; /* by age; NULL: not used yet */
	size_t oldest;
};

/* The parts of a compact JWS. */
struct jws_parts {
	const char *header, *payload, *signature;
	size_t header_len, payload_len, signature_len;
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

static void cached_forget(struct tokens *tokens, struct cached_token *cached)
{
	HASH_DEL(tokens->table, cached);
	token_drop(cached->token);
	free(cached);
}

/* The parts. */

/* A compact JWS has three parts with a dot between them, none of them empty. 0, or -1. */
static int parts_split(struct jws_parts *parts, const char *text, size_t len)
{
	const char *end = text + len, *dot = memchr(text, '.', len), *second;

	second = dot ? memchr(dot + 1, '.', (size_t)(end - dot - 1)) : NULL;
	if (!second || memchr(second + 1, '.', (size_t)(end - second - 1)))
		return -1;
	*parts = (struct jws_parts){ .header = text,
				     .header_len = (size_t)(dot - text),
				     .payload = dot + 1,
				     .payload_len = (size_t)(second - dot - 1),
				     .signature = second + 1,
				     .signature_len = (size_t)(end - second - 1) };
	return parts->header_len > 0 && parts->payload_len > 0 && parts->signature_len > 0 ? 0 : -1;
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

/* The claims. */

/* A NumericDate, which may have a fraction. 0, or -1. */
static int date_read(const cJSON *item, int64_t *ms)
{
	if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= DATE_MAX_S))
		return -1;
	*ms = (int64_t)(item->valuedouble * 1000);
	return 0;
}

/* A string, or an array of strings, one of which is our audience. */
static enum token_verdict audience_check(const struct tokens *tokens, const cJSON *aud)
{
	enum token_verdict verdict = TOKEN_AUDIENCE;
	const cJSON *one;

	if (cJSON_IsString(aud))
		return is_text(aud, tokens->terms.audience) ? TOKEN_GOOD : TOKEN_AUDIENCE;
	if (!cJSON_IsArray(aud))
		return TOKEN_CLAIMS;
	cJSON_ArrayForEach(one, aud)
	{
		if (!cJSON_IsString(one))
			return TOKEN_CLAIMS;
		if (is_text(one, tokens->terms.audience))
			verdict = TOKEN_GOOD;
	}
	return verdict;
}

/* Reads the claims into a token with room for its coupons. */
static enum token_verdict claims_read(const struct tokens *tokens, const cJSON *claims,
				      struct token *token)
{
	const cJSON *iss = member(claims, "iss"), *nbf = member(claims, "nbf"),
		    *iat = member(claims, "iat"), *key = member(claims, "key"),
		    *coupons = member(claims, "coupons"), *id;
	const char *sub = cJSON_GetStringValue(member(claims, "sub")),
		   *key_text = cJSON_GetStringValue(key), *error;
	enum token_verdict verdict;
	int64_t issued_ms;

	if (!cJSON_IsString(iss))
		return TOKEN_CLAIMS;

	/*
	 * `iat` is no condition: RFC 7519 gives it no part in whether a token is good, and `nbf` is
	 * there for what is to be good later. A server whose clock is ahead would stop its sale.
	 */
	if (date_read(member(claims, "exp"), &token->until_ms) ||
	    (nbf && date_read(nbf, &token->from_ms)) || (iat && date_read(iat, &issued_ms)))
		return TOKEN_CLAIMS;
	token->until_ms += tokens->terms.leeway_ms;
	token->from_ms -= tokens->terms.leeway_ms;

	if (!sub || user_id_parse(&token->user, sub, strlen(sub)))
		return TOKEN_CLAIMS;
	if (key && (!key_text || !receive_key_valid(key_text, strlen(key_text))))
		return TOKEN_CLAIMS;
	strcpy(token->key, key ? key_text : "");

	token->is_for_all = coupons == NULL;
	cJSON_ArrayForEach(id, coupons)
	{
		if (json_id(id, &token->coupons[token->coupons_n], &error))
			return TOKEN_CLAIMS;
		token->coupons_n++;
	}

	verdict = audience_check(tokens, member(claims, "aud"));
	if (verdict != TOKEN_CLAIMS && !is_text(iss, tokens->terms.issuer))
		verdict = TOKEN_ISSUER;
	return verdict;
}

static enum token_verdict times_check(const struct token *token, int64_t now_ms)
{
	if (now_ms < token->from_ms)
		return TOKEN_EARLY;
	return now_ms < token->until_ms ? TOKEN_GOOD : TOKEN_EXPIRED;
}

/* A text that is not in the cache. With TOKEN_GOOD `*good` has one holder. */
static enum token_verdict text_verify(struct tokens *tokens, const char *text, size_t len,
				      int64_t now_ms, const struct token **good)
{
	const struct token_key *key;
	enum token_verdict verdict;
	const cJSON *header, *claims, *coupons;
	struct token *token;
	struct jws_parts parts;
	int coupons_n;
	size_t n;

	if (parts_split(&parts, text, len))
		return TOKEN_MALFORMED;
	header = part_parse(tokens, parts.header, parts.header_len);
	if (!header)
		return TOKEN_MALFORMED;
	/* An extension that must be understood, and `b64`, which changes what is signed. */
	if (member(header, "crit") || member(header, "b64") || !typ_allowed(member(header, "typ")))
		return TOKEN_HEADER;
	if (!cJSON_IsString(member(header, "kid")))
		return TOKEN_HEADER;

	key = token_keys_find(tokens->keys, member(header, "kid")->valuestring);
	if (!key)
		return TOKEN_KEY_UNKNOWN;
	if (!is_text(member(header, "alg"), key->alg))
		return TOKEN_ALGORITHM;
	if (part_decode(tokens, parts.signature, parts.signature_len, &n))
		return TOKEN_MALFORMED;
	if (verifier_verify(&key->verifier, &tokens->keys->digest, parts.header,
			    parts.header_len + 1 + parts.payload_len,
			    (const uint8_t *)tokens->bytes, n))
		return TOKEN_SIGNATURE;

	/* Nothing of the payload is looked at before the signature is good. */
	claims = part_parse(tokens, parts.payload, parts.payload_len);
	if (!claims)
		return TOKEN_MALFORMED;
	coupons = member(claims, "coupons");
	coupons_n = cJSON_GetArraySize(coupons);
	if ((coupons && !cJSON_IsArray(coupons)) || coupons_n > TOKEN_COUPONS_MAX)
		return TOKEN_CLAIMS;
	token = checked(calloc(1, sizeof(*token) + (size_t)coupons_n * sizeof(int64_t)));
	token->holders = 1;
	memcpy(token->fingerprint, key->verifier.fingerprint, DIGEST_BYTES);
	verdict = claims_read(tokens, claims, token);
	verdict = verdict ? verdict : times_check(token, now_ms);
	if (verdict)
		token_drop(token);
	else
		*good = token;
	return verdict;
}

enum token_verdict tokens_verify(struct tokens *tokens, const char *text, size_t len,
				 int64_t now_ms, const struct token **token)
{
	uint8_t digest[DIGEST_BYTES];
	struct cached_token *cached, **place;
	enum token_verdict verdict;

	*token = NULL;
	if (!tokens->keys)
		return TOKEN_KEY_UNKNOWN;
	if (len > TOKEN_BYTES_MAX)
		return TOKEN_MALFORMED;

	digest_make(&tokens->keys->digest, text, len, digest);
	HASH_FIND(hh, tokens->table, digest, DIGEST_BYTES, cached);
	if (cached) {
		verdict = times_check(cached->token, now_ms);
		if (verdict == TOKEN_GOOD)
			*token = cached->token;
		return verdict;
	}

	verdict = text_verify(tokens, text, len, now_ms, token);
	if (verdict != TOKEN_GOOD)
		return verdict;
	/* The cache takes it over, in the place of the oldest. */
	place = &tokens->ring[tokens->oldest];
	if (*place)
		cached_forget(tokens, *place);
	cached = *place = checked(calloc(1, sizeof(*cached)));
	tokens->oldest = (tokens->oldest + 1) % TOKEN_CACHE;
	memcpy(cached->digest, digest, DIGEST_BYTES);
	cached->token = *token;
	HASH_ADD(hh, tokens->table, digest, DIGEST_BYTES, cached);
	return TOKEN_GOOD;
}

int tokens_remember(const struct tokens *tokens, const char *text, size_t len)
{
	uint8_t digest[DIGEST_BYTES];
	const struct cached_token *cached;

	if (!tokens->keys || len > TOKEN_BYTES_MAX)
		return 0;
	digest_make(&tokens->keys->digest, text, len, digest);
	HASH_FIND(hh, tokens->table, digest, DIGEST_BYTES, cached);
	return cached != NULL;
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
	for (size_t i = 0; i < TOKEN_CACHE; i++) {
		if (tokens->ring[i])
			cached_forget(tokens, tokens->ring[i]);
		tokens->ring[i] = NULL;
	}
	token_keys_free(tokens->keys);
	tokens->keys = keys;
}

struct tokens *tokens_new(const struct token_terms *terms)
{
	struct tokens *tokens = checked(calloc(1, sizeof(*tokens)));

	tokens->terms = *terms;
	tokens->arena = json_arena_new();
	json_decimals_allow(tokens->arena);
	return tokens;
}

void tokens_free(struct tokens *tokens)
{
	tokens_keys_set(tokens, NULL);
	json_arena_free(tokens->arena);
	free(tokens);
}
