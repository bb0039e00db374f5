/* Tokens of users: what makes one good, each check of it, and the attacks of RFC 8725. */
#include "tests/unit/token_rig.h"

#include <openssl/err.h>
#include <openssl/x509.h>

static void test_good_of_each_algorithm(void **state)
{
	(void)state;
	for (enum issuer i = 0; i < ISSUERS; i++) {
		expect(token_with(i, GOOD), TOKEN_GOOD);
		assert_string_equal(token->user.text, "42");
		assert_string_equal(token->key, "");
		assert_true(token->is_for_all && token_is_for(token, 7));
		assert_true(token->until_ms == 1800000600000 + LEEWAY_MS);
	}
}

static void test_nothing_is_good_without_keys(void **state)
{
	const struct token_terms terms = { .issuer = "https://shop.example",
					   .audience = "couponmq" };
	struct tokens *none = tokens_new(&terms);
	const char *text = token_with(OCT, GOOD);

	(void)state;
	assert_int_equal(tokens_verify(none, text, strlen(text), NOW_MS, &token),
			 TOKEN_KEY_UNKNOWN);
	tokens_free(none);
}

/* Each byte of the text changed, each part shortened and lengthened: of every algorithm. */
static void test_a_text_that_was_changed(void **state)
{
	char text[TEXT_SIZE], longer[2 * TEXT_SIZE];
	char *payload, *signature;

	(void)state;
	for (enum issuer i = 0; i < ISSUERS; i++) {
		strcpy(text, token_with(i, GOOD));
		payload = strchr(text, '.') + 1;
		signature = strchr(payload, '.') + 1;
		for (char *at = text; *at; at += i == OCT ? 1 : 7) {
			char before = *at;

			*at = before == 'A' ? 'B' : 'A';
			assert_int_not_equal(look_at(text, strlen(text), NOW_MS), TOKEN_GOOD);
			*at = before;
		}
		snprintf(longer, sizeof(longer), "%sAA", text);
		assert_int_not_equal(look_at(longer, strlen(longer), NOW_MS), TOKEN_GOOD);
		snprintf(longer, sizeof(longer), "%sAAAA", text);
		expect(longer, TOKEN_SIGNATURE);
		snprintf(longer, sizeof(longer), "%.*s%.*s", (int)(signature - text), text,
			 (int)(strlen(signature) / 8 * 4), signature);
		expect(longer, TOKEN_SIGNATURE);
		expect(text, TOKEN_GOOD);
	}
}

/* The signature of one token below the claims of another. */
static void test_a_signature_of_another_text(void **state)
{
	char one[TEXT_SIZE], mixed[TEXT_SIZE];
	const char *other;

	(void)state;
	for (enum issuer i = 0; i < ISSUERS; i++) {
		strcpy(one, token_with(i, GOOD));
		other = token_with(i, CLAIMS(",\"sub\":\"43\",\"exp\":1800000600"));
		snprintf(mixed, sizeof(mixed), "%.*s%s", (int)(strrchr(other, '.') - other), other,
			 strrchr(one, '.'));
		expect(mixed, TOKEN_SIGNATURE);
	}
}

static void test_form(void **state)
{
	static const char *const wrong[] = { "",        ".",       "..",          "a.b",
					     "a.b.c",   "a.b.c.d", "a..c",        ".b.c",
					     "a.b.",    "....",    "e30.e30.e30", "{}.{}.{}",
					     "e30.e30", "e30" };
	char text[TEXT_SIZE], changed[2 * TEXT_SIZE];
	size_t len;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_not_equal(look_at(wrong[i], strlen(wrong[i]), NOW_MS), TOKEN_GOOD);
	strcpy(text, token_with(EC, GOOD));
	len = strlen(text);
	snprintf(changed, sizeof(changed), "%s=", text);
	expect(changed, TOKEN_MALFORMED);
	snprintf(changed, sizeof(changed), "%s==", text);
	expect(changed, TOKEN_MALFORMED);
	snprintf(changed, sizeof(changed), "%s.", text);
	expect(changed, TOKEN_MALFORMED);
	snprintf(changed, sizeof(changed), " %s", text);
	expect(changed, TOKEN_MALFORMED);
	snprintf(changed, sizeof(changed), "%s\n", text);
	expect(changed, TOKEN_MALFORMED);
	snprintf(changed, sizeof(changed), "Bearer %s", text);
	expect(changed, TOKEN_MALFORMED);
	assert_int_equal(look_at(text, len + 1, NOW_MS), TOKEN_MALFORMED); /* with its NUL */
	/* 64 bytes leave 4 bits of the last character: each other one of 16 is not canonical. */
	for (char c = 'B'; c < 'Q'; c++) {
		strcpy(changed, text);
		if (changed[len - 1] == c)
			continue;
		changed[len - 1] = c;
		assert_int_not_equal(look_at(changed, len, NOW_MS), TOKEN_GOOD);
	}
	strcpy(changed, text);
	changed[len - 1]++; /* the same bytes, if the bits left over were ignored */
	expect(changed, TOKEN_MALFORMED);
	/* A byte beyond ASCII is no symbol, whatever it would be read as. */
	for (char *at = strrchr(text, '.') + 1; *at; at++) {
		char before = *at;

		for (int c = 128; c < 256; c++) {
			*at = (char)c;
			assert_int_equal(look_at(text, len, NOW_MS), TOKEN_MALFORMED);
		}
		*at = before;
	}
	expect(text, TOKEN_GOOD);
}

static void test_length(void **state)
{
	char claims[TEXT_SIZE], filler[TEXT_SIZE];
	const char *text;

	(void)state;
	memset(filler, 'x', sizeof(filler));
	for (int n = 2800; n < 3100; n++) {
		snprintf(claims, sizeof(claims),
			 CLAIMS(",\"sub\":\"42\",\"exp\":1800000600,"
				"\"name\":\"%.*s\""),
			 n, filler);
		text = token_with(OCT, claims);
		expect(text, strlen(text) <= TOKEN_BYTES_MAX ? TOKEN_GOOD : TOKEN_MALFORMED);
	}
}

static void expect_header(const char *header, enum token_verdict wanted)
{
	expect(token_of(OCT, header, GOOD), wanted);
}

#define KID ",\"kid\":\"oct-1\"}"

static void test_header(void **state)
{
	static const char *const kids[] = { "\"\"",       "\"oct-2\"",          "\"OCT-1\"",
					    "\"oct-1 \"", "\"../../dev/null\"", "\"' OR 1=1 --\"" };
	static const char *const no_kids[] = { "null", "1", "[\"oct-1\"]", "{}", "true" };
	static const char *const typs[] = {
		"JWT", "jwt", "at+jwt", "AT+JWT", "application/jwt", "Application/AT+jwt"
	};
	static const char *const wrong_typs[] = { "\"\"",     "\"JOSE\"",         "\"logout+jwt\"",
						  "null",     "\"application/\"", "1",
						  "\"JWT \"", "\"dpop+jwt\"",     "[\"JWT\"]" };
	char header[300];

	(void)state;
	expect_header("{\"alg\":\"HS256\"" KID, TOKEN_GOOD);
	expect_header(" { \"kid\" : \"oct-1\", \"alg\" : \"HS256\" } \r\n", TOKEN_GOOD);
	expect_header("{\"alg\":\"HS256\"}", TOKEN_HEADER);
	for (size_t i = 0; i < sizeof(kids) / sizeof(kids[0]); i++) {
		snprintf(header, sizeof(header), "{\"alg\":\"HS256\",\"kid\":%s}", kids[i]);
		expect_header(header, TOKEN_KEY_UNKNOWN);
	}
	for (size_t i = 0; i < sizeof(no_kids) / sizeof(no_kids[0]); i++) {
		snprintf(header, sizeof(header), "{\"alg\":\"HS256\",\"kid\":%s}", no_kids[i]);
		expect_header(header, TOKEN_HEADER);
	}
	for (size_t i = 0; i < sizeof(typs) / sizeof(typs[0]); i++) {
		snprintf(header, sizeof(header), "{\"typ\":\"%s\",\"alg\":\"HS256\"" KID, typs[i]);
		expect_header(header, TOKEN_GOOD);
	}
	for (size_t i = 0; i < sizeof(wrong_typs) / sizeof(wrong_typs[0]); i++) {
		snprintf(header, sizeof(header), "{\"typ\":%s,\"alg\":\"HS256\"" KID,
			 wrong_typs[i]);
		expect_header(header, TOKEN_HEADER);
	}
	expect_header("{\"crit\":[\"exp\"],\"exp\":1,\"alg\":\"HS256\"" KID, TOKEN_HEADER);
	expect_header("{\"crit\":[],\"alg\":\"HS256\"" KID, TOKEN_HEADER);
	expect_header("{\"crit\":null,\"alg\":\"HS256\"" KID, TOKEN_HEADER);
	expect_header("{\"crit\":[\"b64\"],\"b64\":false,\"alg\":\"HS256\"" KID, TOKEN_HEADER);
	expect_header("{\"b64\":false,\"alg\":\"HS256\"" KID, TOKEN_HEADER);
	expect_header("{\"alg\":\"HS256\",\"alg\":\"HS256\"" KID, TOKEN_MALFORMED);
	expect_header("{\"alg\":\"HS256\",\"\\u0061lg\":\"none\"" KID, TOKEN_MALFORMED);
	expect_header("{\"kid\":\"rsa-1\",\"alg\":\"HS256\"" KID, TOKEN_MALFORMED);
	expect_header("{\"alg\":\"HS256\",\"kid\":\"oct-1\\u0000\"}", TOKEN_MALFORMED);
	expect_header("{\"alg\":\"HS256\"" KID "{}", TOKEN_MALFORMED);
	expect_header("[\"HS256\",\"oct-1\"]", TOKEN_MALFORMED);
	expect_header("\"HS256\"", TOKEN_MALFORMED);
	expect_header("{\"alg\":\"HS256\",\"x\":\"\xff\"" KID, TOKEN_MALFORMED);
	expect_header("{\"alg\":\"HS256\",}", TOKEN_MALFORMED);
	expect_header("{\"Alg\":\"HS256\"" KID, TOKEN_ALGORITHM);
	expect_header("{\"alg\":\"HS256\",\"KID\":\"oct-1\"}", TOKEN_HEADER);
}

/* Keys that a token brings along are not looked at. */
static void test_a_key_in_the_header(void **state)
{
	const char *k = base64(oct_key, sizeof(oct_key));
	char header[1000];

	(void)state;
	snprintf(header, sizeof(header),
		 "{\"alg\":\"HS256\",\"kid\":\"mine\",\"jwk\":{\"kty\":\"oct\",\"k\":\"%s\","
		 "\"kid\":\"mine\"},\"jku\":\"https://attacker.example\"}",
		 k);
	expect_header(header, TOKEN_KEY_UNKNOWN);
	snprintf(header, sizeof(header),
		 "{\"alg\":\"HS256\",\"kid\":\"ec-1\",\"jwk\":{\"kty\":\"oct\",\"k\":\"%s\"}}", k);
	expect_header(header, TOKEN_ALGORITHM);
	expect_header("{\"alg\":\"HS256\",\"jku\":\"file:///etc/passwd\",\"jwk\":7,\"x5u\":[],"
		      "\"x5c\":[\"?\"],\"x5t\":{}" KID,
		      TOKEN_GOOD);
}

static void test_algorithm_is_that_of_the_key(void **state)
{
	static const char *const algs[] = {
		"\"none\"",  "\"None\"",    "\"NONE\"",  "\"nOnE\"",   "\"\"",      "null",
		"0",         "[\"HS256\"]", "\"hs256\"", "\"HS256 \"", "\"HS384\"", "\"HS512\"",
		"\"RS256\"", "\"PS256\"",   "\"ES256\"", "\"ES384\"",  "\"EdDSA\"", "\"Ed25519\"",
	};
	char header[200], text[TEXT_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(algs) / sizeof(algs[0]); i++) {
		snprintf(header, sizeof(header), "{\"alg\":%s" KID, algs[i]);
		expect_header(header, TOKEN_ALGORITHM);
		/* the same without any signature: three parts, and then two */
		snprintf(text, sizeof(text), "%s.%s.", base64(header, strlen(header)),
			 base64(GOOD, strlen(GOOD)));
		expect(text, TOKEN_MALFORMED);
		text[strlen(text) - 1] = '\0';
		expect(text, TOKEN_MALFORMED);
	}
	expect_header("{\"kid\":\"oct-1\"}", TOKEN_ALGORITHM);
	for (enum issuer key = 0; key < ISSUERS; key++)
		for (enum issuer by = 0; by < ISSUERS; by++) {
			snprintf(header, sizeof(header), "{\"alg\":\"%s\",\"kid\":\"%s\"}",
				 issuers[by].alg, issuers[key].kid);
			expect(token_of(by, header, GOOD),
			       key == by ? TOKEN_GOOD : TOKEN_ALGORITHM);
			snprintf(header, sizeof(header), "{\"alg\":\"%s\",\"kid\":\"%s\"}",
				 issuers[key].alg, issuers[key].kid);
			expect(token_of(by, header, GOOD),
			       key == by ? TOKEN_GOOD : TOKEN_SIGNATURE);
		}
}

/* What everybody can read, as the secret of HS256: in each form in which it is published. */
static void test_a_public_key_as_the_secret(void **state)
{
	unsigned char *der = NULL, mac[32], point[65];
	int len = i2d_PUBKEY(issuer_keys[RSA_2048], &der);
	static const char *const headers[] = { "{\"alg\":\"HS256\",\"kid\":\"rsa-1\"}",
					       "{\"alg\":\"HS256\",\"kid\":\"ec-1\"}",
					       "{\"alg\":\"RS256\",\"kid\":\"rsa-1\"}" };
	char text[TEXT_SIZE];
	unsigned mac_len;

	(void)state;
	EVP_PKEY_get_octet_string_param(issuer_keys[EC], OSSL_PKEY_PARAM_PUB_KEY, point, 65, NULL);
	for (size_t i = 0; i < 3; i++) {
		size_t n = (size_t)snprintf(text, sizeof(text), "%s.%s",
					    base64(headers[i], strlen(headers[i])),
					    base64(GOOD, strlen(GOOD)));

		HMAC(EVP_sha256(), i == 1 ? point : der, i == 1 ? 65 : len, (unsigned char *)text,
		     n, mac, &mac_len);
		snprintf(text + n, sizeof(text) - n, ".%s", base64(mac, 32));
		expect(text, i == 2 ? TOKEN_SIGNATURE : TOKEN_ALGORITHM);
	}
	OPENSSL_free(der);
}

/* The text of the EC token with another signature. */
static const char *with_signature(const char *text, const unsigned char *signature, size_t len)
{
	static char changed[TEXT_SIZE];

	snprintf(changed, sizeof(changed), "%.*s.%s", (int)(strrchr(text, '.') - text), text,
		 base64(signature, len));
	return changed;
}

static void test_signatures_of_es256(void **state)
{
	static const char order[] =
		"FFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551";
	unsigned char raw[64], changed[64], der[80], *at = der, zero[64] = { 0 }, signature[1024];
	char text[TEXT_SIZE], signed_text[TEXT_SIZE];
	BIGNUM *n = NULL, *s;
	ECDSA_SIG *pair = ECDSA_SIG_new();
	size_t len;

	(void)state;
	strcpy(text, token_with(EC, GOOD));
	snprintf(signed_text, sizeof(signed_text), "%.*s", (int)(strrchr(text, '.') - text), text);
	assert_int_equal(issuer_sign(EC, signed_text, signature), 64);
	memcpy(raw, signature, 64);
	expect(with_signature(text, raw, 64), TOKEN_GOOD);
	expect(with_signature(text, zero, 64), TOKEN_SIGNATURE);
	BN_hex2bn(&n, order);
	for (int half = 0; half < 2; half++) { /* r or s is 0, n, or beyond it */
		memcpy(changed, raw, 64);
		memset(changed + 32 * half, 0, 32);
		expect(with_signature(text, changed, 64), TOKEN_SIGNATURE);
		BN_bn2binpad(n, changed + 32 * half, 32);
		expect(with_signature(text, changed, 64), TOKEN_SIGNATURE);
		memset(changed + 32 * half, 0xff, 32);
		expect(with_signature(text, changed, 64), TOKEN_SIGNATURE);
	}
	/* A signature in DER is refused, whatever length it has. */
	ECDSA_SIG_set0(pair, BN_bin2bn(raw, 32, NULL), BN_bin2bn(raw + 32, 32, NULL));
	len = (size_t)i2d_ECDSA_SIG(pair, &at);
	expect(with_signature(text, der, len), TOKEN_SIGNATURE);
	expect(with_signature(text, der, 64), TOKEN_SIGNATURE);
	/*
	 * n - s is a signature of the same text. Half of those that are made are of this kind, and
	 * a token is no name of itself: it is taken.
	 */
	s = BN_dup(ECDSA_SIG_get0_s(pair));
	BN_sub(s, n, s);
	memcpy(changed, raw, 32);
	BN_bn2binpad(s, changed + 32, 32);
	expect(with_signature(text, changed, 64), TOKEN_GOOD);
	BN_free(s);
	BN_free(n);
	ECDSA_SIG_free(pair);
}

static void test_signatures_of_others(void **state)
{
	unsigned char signature[2048];
	char text[TEXT_SIZE];
	size_t len;
	int carry = 0;
	static const unsigned char order[32] = { 0xed, 0xd3, 0xf5, 0x5c, 0x1a,       0x63,
						 0x12, 0x58, 0xd6, 0x9c, 0xf7,       0xa2,
						 0xde, 0xf9, 0xde, 0x14, [31] = 0x10 };

	(void)state;
	strcpy(text, token_with(OKP, GOOD));
	*strrchr(text, '.') = '\0';
	assert_int_equal(issuer_sign(OKP, text, signature), 64);
	strcat(text, ".");
	expect(with_signature(text, signature, 64), TOKEN_GOOD);
	for (int i = 0; i < 32; i++) { /* s + the order of the group */
		carry += signature[32 + i] + order[i];
		signature[32 + i] = (unsigned char)carry;
		carry >>= 8;
	}
	expect(with_signature(text, signature, 64), TOKEN_SIGNATURE);
	memset(signature, 0, sizeof(signature));
	expect(with_signature(text, signature, 64), TOKEN_SIGNATURE);
	strcpy(text, token_with(RSA_2048, GOOD));
	expect(with_signature(text, signature, 256), TOKEN_SIGNATURE);
	memset(signature, 0xff, sizeof(signature)); /* beyond n */
	expect(with_signature(text, signature, 256), TOKEN_SIGNATURE);
	*strrchr(text, '.') = '\0';
	len = issuer_sign(RSA_2048, text, signature + 1);
	signature[0] = 0;
	strcat(text, ".");
	expect(with_signature(text, signature + 1, len), TOKEN_GOOD);
	expect(with_signature(text, signature, len + 1), TOKEN_SIGNATURE); /* a zero before it */
	expect(with_signature(text, signature + 1, len - 1), TOKEN_SIGNATURE);
	/* Whatever failed before: errors of libcrypto would be taken for those of connections. */
	assert_int_equal(ERR_peek_error(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good_of_each_algorithm),
		TEST(test_nothing_is_good_without_keys),
		TEST(test_a_text_that_was_changed),
		TEST(test_a_signature_of_another_text),
		TEST(test_form),
		TEST(test_length),
		TEST(test_header),
		TEST(test_a_key_in_the_header),
		TEST(test_algorithm_is_that_of_the_key),
		TEST(test_a_public_key_as_the_secret),
		TEST(test_signatures_of_es256),
		TEST(test_signatures_of_others),
	};

	return cmocka_run_group_tests_name("token", tests, NULL, group_teardown);
}
