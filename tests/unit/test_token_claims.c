/* Tokens of users: their claims, their times, and those that are remembered. */
#include "tests/unit/token_rig.h"

/* The good claims but for one, which has this text instead. */
#define ISS(text) "{\"iss\":" text ",\"aud\":\"couponmq\",\"sub\":\"42\",\"exp\":1800000600}"
#define AUD(text) \
	"{\"iss\":\"https://shop.example\",\"aud\":" text ",\"sub\":\"42\",\"exp\":1800000600}"
#define SUB(text) CLAIMS(",\"sub\":" text ",\"exp\":1800000600")
#define EXP(text) CLAIMS(",\"sub\":\"42\",\"exp\":" text)
#define ALSO(text) CLAIMS(",\"sub\":\"42\",\"exp\":1800000600," text)
#define CHARS_16 "0123456789abcdef"
#define KEY_LONGEST CHARS_64 CHARS_64 CHARS_64 CHARS_16 CHARS_16 CHARS_16 "0123456789abcde"
#define CHARS_64 CHARS_16 CHARS_16 CHARS_16 CHARS_16

static const struct {
	const char *claims;
	enum token_verdict verdict;
} rows[] = {
	{ GOOD, TOKEN_GOOD },
	{ "{}", TOKEN_CLAIMS },
	{ "[]", TOKEN_MALFORMED },
	{ "null", TOKEN_MALFORMED },
	{ "\"42\"", TOKEN_MALFORMED },
	{ GOOD GOOD, TOKEN_MALFORMED },
	{ ALSO("\"sub\":\"43\""), TOKEN_MALFORMED },
	{ ALSO("\"s\\u0075b\":\"43\""), TOKEN_MALFORMED },
	{ ALSO("\"x\":{\"y\":1,\"y\":2}"), TOKEN_MALFORMED },
	{ ALSO("\"x\":\"\xc3\x28\""), TOKEN_MALFORMED },
	{ ALSO("\"email\":\"a@b\",\"x\":[1.5,null,{\"y\":-2e9}],\"jti\":7,\"scope\":\"issue\""),
	  TOKEN_GOOD },

	{ ISS("\"https://shop.example/\""), TOKEN_ISSUER },
	{ ISS("\"https://Shop.example\""), TOKEN_ISSUER },
	{ ISS("\"https://shop.exampl\""), TOKEN_ISSUER },
	{ ISS("\"\""), TOKEN_ISSUER },
	{ ISS("null"), TOKEN_CLAIMS },
	{ ISS("[\"https://shop.example\"]"), TOKEN_CLAIMS },
	{ ISS("\"https:\\/\\/shop.example\""), TOKEN_GOOD }, /* as PHP writes it */
	{ "{\"aud\":\"couponmq\",\"sub\":\"42\",\"exp\":1800000600}", TOKEN_CLAIMS },
	{ "{\"ISS\":\"https://"
	  "shop.example\",\"aud\":\"couponmq\",\"sub\":\"42\",\"exp\":1800000600}",
	  TOKEN_CLAIMS },

	{ AUD("[\"couponmq\"]"), TOKEN_GOOD },
	{ AUD("[\"other\",\"couponmq\"]"), TOKEN_GOOD },
	{ AUD("[\"other\",\"Couponmq\",\"couponmq \"]"), TOKEN_AUDIENCE },
	{ AUD("\"other\""), TOKEN_AUDIENCE },
	{ AUD("\"couponmq,other\""), TOKEN_AUDIENCE },
	{ AUD("\"\""), TOKEN_AUDIENCE },
	{ AUD("[]"), TOKEN_AUDIENCE },
	{ AUD("[\"\"]"), TOKEN_AUDIENCE },
	{ AUD("[\"couponmq\",1]"), TOKEN_CLAIMS },
	{ AUD("[[\"couponmq\"]]"), TOKEN_CLAIMS },
	{ AUD("{\"couponmq\":\"couponmq\"}"), TOKEN_CLAIMS },
	{ AUD("null"), TOKEN_CLAIMS },
	{ AUD("true"), TOKEN_CLAIMS },
	{ "{\"iss\":\"https://shop.example\",\"sub\":\"42\",\"exp\":1800000600}", TOKEN_CLAIMS },

	{ SUB("\"auth0|65f1c2\""), TOKEN_GOOD },
	{ SUB("\"" CHARS_64 "\""), TOKEN_GOOD },
	{ SUB("\"" CHARS_64 "0\""), TOKEN_CLAIMS },
	{ SUB("\"\""), TOKEN_CLAIMS },
	{ SUB("\"4 2\""), TOKEN_CLAIMS },
	{ SUB("\"4\\n2\""), TOKEN_CLAIMS },
	{ SUB("\"4\\u00002\""), TOKEN_MALFORMED },
	{ SUB("\"\xc3\xa9\""), TOKEN_CLAIMS },
	{ SUB("42"), TOKEN_CLAIMS },
	{ SUB("null"), TOKEN_CLAIMS },
	{ SUB("[\"42\"]"), TOKEN_CLAIMS },
	{ CLAIMS(",\"exp\":1800000600"), TOKEN_CLAIMS },

	{ EXP("1800000600.5"), TOKEN_GOOD },
	{ EXP("1.8000006e9"), TOKEN_GOOD },
	{ EXP("253402300799"), TOKEN_GOOD },
	{ EXP("253402300800"), TOKEN_CLAIMS },
	{ EXP("1800000600000"), TOKEN_CLAIMS }, /* in milliseconds */
	{ EXP("9223372036854775807"), TOKEN_CLAIMS },
	{ EXP("99999999999999999999999999"), TOKEN_CLAIMS },
	{ EXP("1e400"), TOKEN_CLAIMS },
	{ EXP("-1e400"), TOKEN_CLAIMS },
	{ EXP("-1"), TOKEN_CLAIMS },
	{ EXP("0"), TOKEN_EXPIRED },
	{ EXP("-0"), TOKEN_EXPIRED },
	{ EXP("1e-400"), TOKEN_EXPIRED },
	{ EXP("1800000600."), TOKEN_MALFORMED },
	{ EXP("01800000600"), TOKEN_MALFORMED },
	{ EXP("NaN"), TOKEN_MALFORMED },
	{ EXP("Infinity"), TOKEN_MALFORMED },
	{ EXP("\"1800000600\""), TOKEN_CLAIMS },
	{ EXP("\"2027-01-15T08:10:00Z\""), TOKEN_CLAIMS },
	{ EXP("null"), TOKEN_CLAIMS },
	{ EXP("true"), TOKEN_CLAIMS },
	{ EXP("[1800000600]"), TOKEN_CLAIMS },
	{ CLAIMS(",\"sub\":\"42\""), TOKEN_CLAIMS },
	{ CLAIMS(",\"sub\":\"42\",\"EXP\":1800000600"), TOKEN_CLAIMS },

	{ ALSO("\"nbf\":1800000000"), TOKEN_GOOD },
	{ ALSO("\"nbf\":1800000031"), TOKEN_EARLY },
	{ ALSO("\"nbf\":0"), TOKEN_GOOD },
	{ ALSO("\"nbf\":-1"), TOKEN_CLAIMS },
	{ ALSO("\"nbf\":\"0\""), TOKEN_CLAIMS },
	{ ALSO("\"nbf\":null"), TOKEN_CLAIMS },
	{ ALSO("\"iat\":1800000000.25"), TOKEN_GOOD },
	{ ALSO("\"iat\":1800000500"), TOKEN_GOOD }, /* no condition: see token.c */
	{ ALSO("\"iat\":\"now\""), TOKEN_CLAIMS },
	{ ALSO("\"iat\":null"), TOKEN_CLAIMS },
	{ ALSO("\"iat\":1e300"), TOKEN_CLAIMS },

	{ ALSO("\"coupons\":[]"), TOKEN_GOOD },
	{ ALSO("\"coupons\":[1001,\"1002\"]"), TOKEN_GOOD },
	{ ALSO("\"coupons\":[\"9223372036854775807\"]"), TOKEN_GOOD },
	{ ALSO("\"coupons\":[\"9223372036854775808\"]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":[9007199254740993]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":[1001.5]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":[0]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":[-1]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":[\"01\"]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":[\"*\"]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":[null]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":[[1001]]"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":1001"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":\"1001\""), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":null"), TOKEN_CLAIMS },
	{ ALSO("\"coupons\":{\"1001\":1}"), TOKEN_CLAIMS },

	{ ALSO("\"key\":\"a b\""), TOKEN_GOOD },
	{ ALSO("\"key\":\"" KEY_LONGEST "\""), TOKEN_GOOD },
	{ ALSO("\"key\":\"" KEY_LONGEST "0\""), TOKEN_CLAIMS },
	{ ALSO("\"key\":\"\""), TOKEN_CLAIMS },
	{ ALSO("\"key\":\"a\\tb\""), TOKEN_CLAIMS },
	{ ALSO("\"key\":1"), TOKEN_CLAIMS },
	{ ALSO("\"key\":null"), TOKEN_CLAIMS },
};

static void test_claims(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		enum token_verdict verdict;
		char *text = token_with(OCT, rows[i].claims);

		verdict = look_at(text, strlen(text), NOW_MS);
		if (verdict != rows[i].verdict)
			fail_msg("%s is %s, not %s", rows[i].claims, token_verdict_kind(verdict),
				 token_verdict_kind(rows[i].verdict));
	}
}

static void test_what_a_token_allows(void **state)
{
	char claims[TEXT_SIZE] = "\"coupons\":[1", all[TEXT_SIZE];

	(void)state;
	expect(token_with(EC, ALSO("\"key\":\"order 7\",\"coupons\":[1001,\"1002\"]")), TOKEN_GOOD);
	assert_string_equal(token->key, "order 7");
	assert_int_equal(token->user.len, 2);
	assert_true(token_is_for(token, 1001) && token_is_for(token, 1002));
	assert_false(token_is_for(token, 1003) || token->is_for_all);
	expect(token_with(EC, ALSO("\"coupons\":[]")), TOKEN_GOOD);
	assert_false(token_is_for(token, 1001) || token->is_for_all);
	for (int n = 2; n <= TOKEN_COUPONS_MAX + 1; n++) {
		snprintf(claims + strlen(claims), 8, ",%d", n);
		snprintf(all, sizeof(all), CLAIMS(",\"sub\":\"42\",\"exp\":1800000600,%s]"),
			 claims);
		expect(token_with(OCT, all), n <= TOKEN_COUPONS_MAX ? TOKEN_GOOD : TOKEN_CLAIMS);
		if (token)
			assert_true(token_is_for(token, n) && !token_is_for(token, n + 1));
	}
}

/* At the millisecond, with the leeway, of one that is new and of one that is remembered. */
static void test_times(void **state)
{
	static const int64_t nbf_ms = 1800000100000, exp_ms = 1800000600500;
	char text[TEXT_SIZE];

	(void)state;
	strcpy(text,
	       token_with(OKP, CLAIMS(",\"sub\":\"42\",\"exp\":1800000600.5,\"nbf\":1800000100")));
	expect_at(text, exp_ms + LEEWAY_MS, TOKEN_EXPIRED);
	expect_at(text, nbf_ms - LEEWAY_MS - 1, TOKEN_EARLY);
	for (int round = 0; round < 2; round++) {
		expect_at(text, nbf_ms - LEEWAY_MS, TOKEN_GOOD);
		expect_at(text, nbf_ms - LEEWAY_MS - 1, TOKEN_EARLY);
		expect_at(text, exp_ms + LEEWAY_MS - 1, TOKEN_GOOD);
		expect_at(text, exp_ms + LEEWAY_MS, TOKEN_EXPIRED);
		expect_at(text, INT64_MAX, TOKEN_EXPIRED);
		expect_at(text, 0, TOKEN_EARLY);
	}
}

/* What is remembered is not verified again, and only good tokens are. */
static void test_cache_gives_the_same(void **state)
{
	const struct token *first;
	char text[TEXT_SIZE];

	(void)state;
	strcpy(text, token_with(EC, GOOD));
	expect(text, TOKEN_GOOD);
	first = token;
	expect(text, TOKEN_GOOD);
	assert_ptr_equal(token, first);
	assert_true(tokens_remember(tokens, text, strlen(text)));
	strcpy(text, token_with(EC, EXP("1700000000")));
	assert_false(tokens_remember(tokens, text, strlen(text)));
	expect(text, TOKEN_EXPIRED);
	assert_false(tokens_remember(tokens, text, strlen(text)));
	expect_at(text, 1699999999000, TOKEN_GOOD); /* not remembered as expired */
}

static void test_oldest_is_forgotten(void **state)
{
	const struct token *first, *last;
	char claims[TEXT_SIZE], oldest[TEXT_SIZE], newest[TEXT_SIZE];

	(void)state;
	strcpy(oldest, token_with(OCT, GOOD));
	expect(oldest, TOKEN_GOOD);
	first = token_hold(token);
	for (int i = 1; i <= TOKEN_CACHE; i++) {
		snprintf(claims, sizeof(claims), CLAIMS(",\"sub\":\"u%d\",\"exp\":1800000600"), i);
		strcpy(newest, token_with(OCT, claims));
		expect(newest, TOKEN_GOOD);
		if (i != TOKEN_CACHE - 1)
			continue;
		last = token;
		expect(oldest, TOKEN_GOOD);
		assert_ptr_equal(token, first); /* still there */
		expect(newest, TOKEN_GOOD);
		assert_ptr_equal(token, last);
	}
	expect(oldest, TOKEN_GOOD);
	assert_ptr_not_equal(token, first);
	assert_string_equal(first->user.text, "42"); /* who holds it has it */
	token_drop(first);
}

static void test_new_keys(void **state)
{
	const struct token *held;
	char text[TEXT_SIZE], other[TEXT_SIZE];

	(void)state;
	strcpy(text, token_with(EC, GOOD));
	strcpy(other, token_with(OKP, GOOD));
	expect(text, TOKEN_GOOD);
	held = token_hold(token);
	assert_int_equal(tokens_look(tokens, held, NOW_MS), TOKEN_GOOD);
	assert_int_equal(tokens_look(tokens, held, held->until_ms), TOKEN_EXPIRED);
	expect(other, TOKEN_GOOD);
	tokens_keys_set(tokens, keys_make(EC));
	expect(text, TOKEN_KEY_UNKNOWN);
	expect(other, TOKEN_GOOD);
	assert_int_equal(tokens_look(tokens, held, NOW_MS), TOKEN_KEY_UNKNOWN);
	tokens_keys_set(tokens, keys_make(ISSUERS));
	expect(text, TOKEN_GOOD);
	assert_ptr_not_equal(token, held);
	assert_int_equal(tokens_look(tokens, held, NOW_MS), TOKEN_GOOD);
	token_drop(held);
}

/* Each issuer has another key, of the same type and under the same kid. */
static void test_keys_that_were_rotated(void **state)
{
	const struct token *held[ISSUERS];
	char texts[ISSUERS][TEXT_SIZE];

	(void)state;
	for (enum issuer i = 0; i < ISSUERS; i++) {
		strcpy(texts[i], token_with(i, GOOD));
		expect(texts[i], TOKEN_GOOD);
		held[i] = token_hold(token);
	}
	issuers_free();
	oct_key[0]++;
	tokens_keys_set(tokens, keys_make(ISSUERS));
	for (enum issuer i = 0; i < ISSUERS; i++) {
		expect(texts[i], TOKEN_SIGNATURE);
		assert_int_equal(tokens_look(tokens, held[i], NOW_MS), TOKEN_KEY_UNKNOWN);
		token_drop(held[i]);
		expect(token_with(i, GOOD), TOKEN_GOOD);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_claims),
		TEST(test_what_a_token_allows),
		TEST(test_times),
		TEST(test_cache_gives_the_same),
		TEST(test_oldest_is_forgotten),
		TEST(test_new_keys),
		TEST(test_keys_that_were_rotated),
	};

	return cmocka_run_group_tests_name("token_claims", tests, NULL, group_teardown);
}
