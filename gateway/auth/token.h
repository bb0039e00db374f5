/*
 * User tokens: a company's own server gives its user a JSON Web Token (RFC 7519), signed by a key
 * of jwks.h, with which the user asks for himself only. docs/reference/protocol.md describes them.
 *
 *	text ─▶ SHA-256 ─▶ verified before? ──────────────────────▶ the times once more ─▶ good
 *	                        └▶ form ▶ key by `kid` ▶ alg ▶ signature ▶ claims ▶ times ┘
 *
 * Good tokens are remembered: at most TOKEN_CACHE, the oldest are forgotten first, all of them when
 * the keys are replaced. One has 340 bytes with its entry, and 8 for each coupon that it names:
 * 5.5 MiB in all, or 14 MiB if each names 64 coupons. The memory is taken as it is needed.
 *
 * One thread of each process. The time is the wall clock's.
 */
#pragma once

#include "common/message/receive.h"
#include "gateway/auth/jwks.h"

#include <stddef.h>
#include <stdint.h>

#define TOKEN_BYTES_MAX 4096
#define TOKEN_COUPONS_MAX 64
#define TOKEN_CACHE 16384

/*
 * What a text is: TOKEN(enumerator, "kind"). For the log and the metrics: the client of one that is
 * not good is never told which.
 */
#define TOKEN_VERDICTS                                                                            \
	TOKEN(TOKEN_GOOD, "good")                                                                 \
	TOKEN(TOKEN_MALFORMED, "malformed")     /* no compact JWS, or its parts are no objects */ \
	TOKEN(TOKEN_HEADER, "header")           /* `crit`, `b64`, another `typ`, or no `kid` */   \
	TOKEN(TOKEN_KEY_UNKNOWN, "key_unknown") /* no key has its `kid` */                        \
	TOKEN(TOKEN_ALGORITHM, "algorithm")     /* `alg` is not that of the key */                \
	TOKEN(TOKEN_SIGNATURE, "signature")                                                       \
	TOKEN(TOKEN_CLAIMS, "claims") /* one that is needed is absent, or one is malformed */     \
	TOKEN(TOKEN_ISSUER, "issuer")                                                             \
	TOKEN(TOKEN_AUDIENCE, "audience")                                                         \
	TOKEN(TOKEN_EARLY, "early") /* before `nbf` */                                            \
	TOKEN(TOKEN_EXPIRED, "expired")

enum token_verdict {
#define TOKEN(name, kind) name,
	TOKEN_VERDICTS
#undef TOKEN
		TOKEN_VERDICT_COUNT
};

const char *token_verdict_kind(enum token_verdict verdict);

/* A good token. Does not change. */
struct token {
	struct user_id user;           /* `sub` */
	char key[RECEIVE_KEY_MAX + 1]; /* the idempotency key; empty: none */
	int64_t from_ms, until_ms;     /* it is good from then on and before then: with leeway */
	uint8_t fingerprint[DIGEST_BYTES]; /* of the key that signed it */
	unsigned holders;
	int is_for_all; /* coupons: it has no claim `coupons` */
	size_t coupons_n;
	int64_t coupons[];
};

int token_is_for(const struct token *token, int64_t coupon);

struct token_terms {
	const char *issuer, *audience;
	int64_t leeway_ms;
};

struct tokens;

/* The texts of the terms are lent. Before tokens_keys_set() it finds no token good. */
struct tokens *tokens_new(const struct token_terms *terms);
void tokens_free(struct tokens *tokens);

/*
 * From now on these are the keys, which it frees in the end; those before are freed, and all tokens
 * forgotten.
 */
void tokens_keys_set(struct tokens *tokens, struct token_keys *keys);

/*
 * With TOKEN_GOOD `*token` is lent until the next call, or until token_drop() if token_hold()
 * comes first.
 */
enum token_verdict tokens_verify(struct tokens *tokens, const char *text, size_t len,
				 int64_t now_ms, const struct token **token);

/* Whether the text is that of a token that was verified before: it costs no signature. */
int tokens_remember(const struct tokens *tokens, const char *text, size_t len);

/* Whether a token that is held, for instance by a connection, has expired or lost its key. */
enum token_verdict tokens_look(const struct tokens *tokens, const struct token *token,
			       int64_t now_ms);

const struct token *token_hold(const struct token *token); /* returns it */
void token_drop(const struct token *token);                /* also NULL */
