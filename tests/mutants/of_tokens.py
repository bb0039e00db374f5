"""Without a check of tokens of users."""

from mutant import mutant

TOKEN = "unit_test_token::"
CLAIMS = "unit_test_token_claims::"
JWKS = "unit_test_jwks::"
VERIFIER = "unit_test_verifier::"
READ = "gateway/gate/verifier.c"

MUTANTS = [
    mutant(
        "tokens",
        "the algorithm that the key fixes",
        "gateway/gate/token.c",
        'is_text(member(header, "alg"), (*key)->alg) ? TOKEN_GOOD : TOKEN_ALGORITHM;',
        "TOKEN_GOOD;",
        TOKEN + "test_algorithm_is_that_of_the_key",
    ),
    mutant(
        "tokens",
        "the key that has the kid of the token",
        "gateway/gate/token.c",
        "\tif (!*key)\n\t\treturn TOKEN_KEY_UNKNOWN;\n",
        "\tif (!*key)\n\t\t*key = tokens->keys->list;\n",
        TOKEN + "test_header",
        CLAIMS + "test_new_keys",
    ),
    mutant(
        "tokens",
        "the extensions that a token says must be understood",
        "gateway/gate/token.c",
        'member(header, "crit") || ',
        "",
        TOKEN + "test_header",
    ),
    mutant(
        "tokens",
        "the verdict about the signature",
        "gateway/gate/token.c",
        "? TOKEN_SIGNATURE",
        "? TOKEN_GOOD",
        TOKEN + "test_a_text_that_was_changed",
        TOKEN + "test_a_signature_of_another_text",
    ),
    mutant(
        "tokens",
        "the length of a signature",
        "gateway/gate/verifier.c",
        "if (signature_len != verifier->signature_bytes)",
        "if (signature_len > MEMBER_BYTES_MAX)",
        TOKEN + "test_a_text_that_was_changed",
        VERIFIER + "test_vectors_of_the_rfcs",
    ),
    mutant(
        "tokens",
        "the bytes that are no symbols of base64url",
        "common/base64.c",
        "if (bits & 0x80)",
        "if (bits & 0x100)",
        TOKEN + "test_form",
        "unit_test_webhook::test_secrets",
    ),
    mutant(
        "tokens",
        "the issuer",
        "gateway/gate/token.c",
        "!is_text(iss, tokens->issuer)",
        "!cJSON_IsString(iss)",
        CLAIMS + "test_claims",
    ),
    mutant(
        "tokens",
        "the audience",
        "gateway/gate/token.c",
        "is_text(aud, tokens->audience) ? TOKEN_GOOD : TOKEN_AUDIENCE",
        "TOKEN_GOOD",
        CLAIMS + "test_claims",
    ),
    mutant(
        "tokens",
        "the audience in a list",
        "gateway/gate/token.c",
        "if (is_text(one, tokens->audience))",
        "if (cJSON_IsString(one))",
        CLAIMS + "test_claims",
    ),
    mutant(
        "tokens",
        "the time from which a token is good",
        "gateway/gate/token.c",
        "if (now_ms < token->from_ms)",
        "if (now_ms < 0)",
        CLAIMS + "test_times",
    ),
    mutant(
        "tokens",
        "the expiry",
        "gateway/gate/token.c",
        "now_ms < token->until_ms ? TOKEN_GOOD : TOKEN_EXPIRED;",
        "TOKEN_GOOD;",
        CLAIMS + "test_times",
    ),
    mutant(
        "tokens",
        "the expiry of a token that is remembered",
        "gateway/gate/token.c",
        "verdict = times_check(entry->token, now_ms);",
        "verdict = TOKEN_GOOD;",
        CLAIMS + "test_times",
    ),
    mutant(
        "tokens",
        "the tokens that are forgotten with their keys",
        "gateway/gate/token.c",
        "\tcache_empty(tokens);\n\ttoken_keys_free(tokens->keys);\n\ttokens->keys = keys;\n",
        "\ttoken_keys_free(tokens->keys);\n\ttokens->keys = keys;\n",
        CLAIMS + "test_new_keys",
    ),
    mutant(
        "tokens",
        "the key of a token that is held",
        "gateway/gate/token.c",
        "!token_keys_have(tokens->keys, token->fingerprint)",
        "token->holders == 0",
        CLAIMS + "test_new_keys",
    ),
    mutant(
        "tokens",
        "the fraction of a coupon's id",
        "common/message/json.c",
        "item->valuedouble != (double)(int64_t)item->valuedouble",
        "item->valuedouble < (double)least",
        "unit_test_json::test_decimals",
        CLAIMS + "test_claims",
    ),
    mutant(
        "tokens",
        "the points of Ed25519 with which anybody could sign",
        "gateway/gate/verifier.c",
        "if (!crypto_core_ed25519_is_valid_point(verifier->point))",
        "if (verifier->point[0] == 2)",
        VERIFIER + "test_points_of_ed25519",
    ),
    mutant(
        "tokens",
        "the private part of a key, which is refused",
        "gateway/gate/jwks.c",
        "if (member(reading->jwk, secrets[i]))",
        "if (is_same(secrets[i], NULL))",
        JWKS + "test_refused",
    ),
    mutant(
        "tokens",
        "the alg that goes with the type of the key",
        "gateway/gate/jwks.c",
        "if (is_same(uses[i].kty, kty) && (!uses[i].crv || is_same(uses[i].crv, crv)))",
        "if (kty)",
        JWKS + "test_refused",
    ),
    mutant(
        "tokens",
        "the file of a secret that others may read",
        "gateway/gate/jwks.c",
        'if (!is_secret && is_same(member_text(reading->jwk, "kty"), "oct"))',
        "if (is_secret < 0)",
        JWKS + "test_file",
    ),
    mutant(
        "tokens", "the point of a key of EC, in its fingerprint", READ,
        "digest_make(digest, point, sizeof(point),", "digest_make(digest, point, 1,",
        CLAIMS + "test_keys_that_were_rotated",
    ),  # fmt: skip
    mutant(
        "tokens", "the secret, in the fingerprint of a key of HS256", READ,
        "digest_make(digest, bytes, n,", "digest_make(digest, bytes, 0,",
        CLAIMS + "test_keys_that_were_rotated",
    ),  # fmt: skip
    mutant(
        "tokens", "the errors of libcrypto about a key that is none", READ,
        "\tERR_clear_error(); /* what is left there", "\t(void)0; /* what is left there",
        VERIFIER + "test_moduli",
    ),  # fmt: skip
    mutant(
        "tokens", "the tokens that were not verified before", "gateway/gate/token.c",
        "\treturn entry != NULL;\n", "\treturn 1;\n",
        CLAIMS + "test_cache_gives_the_same",
    ),  # fmt: skip
]
