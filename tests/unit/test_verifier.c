/* Signatures of the RFCs, and keys that are none although they have the form. */
#include "tests/unit/jwks_rig.h"

#include <openssl/bn.h>
#include <openssl/err.h>

static const struct vector {
	const char *jwk, *alg, *text, *signature;
} vectors[] = {
	{ OCT(KID("a")), "HS256",
	  "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAs"
	  "DQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
	  "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk" },
	{ RSA(KID("a")), "RS256",
	  "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
	  "cGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
	  "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8"
	  "W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPv"
	  "kSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1ph"
	  "CnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw" },
	{ EC(KID("a")), "ES256",
	  "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
	  "cGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
	  "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-"
	  "Kg6NU1Q" },
	{ OKP(KID("a")), "EdDSA", "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
	  "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_"
	  "MuM0KAg" },
};

#define VECTORS_N (sizeof(vectors) / sizeof(vectors[0]))

/* Each bit of the signature and each byte of the text counts, and no other key fits. */
static void test_vectors_of_the_rfcs(void **state)
{
	char text[20000], changed[1000];
	unsigned char signature[1025] = { 0 };
	size_t n;

	(void)state;
	for (size_t i = 0; i < VECTORS_N; i++) {
		const struct vector *vector = &vectors[i];
		size_t len = strlen(vector->text);
		struct token_keys *keys;
		const struct verifier *verifier;

		snprintf(text, sizeof(text), KEYS("%s"), vector->jwk);
		keys = take(text);
		assert_string_equal(token_keys_find(keys, "a")->alg, vector->alg);
		verifier = &token_keys_find(keys, "a")->verifier;
		assert_int_equal(sodium_base642bin(signature, 1024, vector->signature,
						   strlen(vector->signature), NULL, &n, NULL,
						   sodium_base64_VARIANT_URLSAFE_NO_PADDING),
				 0);
#define VERIFY(text, len, n) verifier_verify(verifier, &keys->digest, text, len, signature, n)
		assert_int_equal(VERIFY(vector->text, len, n), 0);
		for (size_t bit = 0; bit < 8 * n; bit++) {
			signature[bit / 8] ^= (unsigned char)(1 << bit % 8);
			assert_int_not_equal(VERIFY(vector->text, len, n), 0);
			signature[bit / 8] ^= (unsigned char)(1 << bit % 8);
		}
		for (size_t at = 0; at < len; at += 10) {
			strcpy(changed, vector->text);
			changed[at]++;
			assert_int_not_equal(VERIFY(changed, len, n), 0);
		}
		assert_int_not_equal(VERIFY(vector->text, len - 1, n), 0);
		assert_int_not_equal(VERIFY(vector->text, len, n - 1), 0);
		assert_int_not_equal(VERIFY(vector->text, len, n + 1), 0);
		assert_int_not_equal(VERIFY(vector->text, len, 0), 0);
		for (size_t other = 0; other < VECTORS_N; other++)
			assert_int_equal(other == i, !VERIFY(vectors[other].text,
							     strlen(vectors[other].text), n));
		assert_int_equal(VERIFY(vector->text, len, n), 0);
		token_keys_free(keys);
	}
}

static const char *base64(const void *bytes, size_t len)
{
	static char text[4000];

	return sodium_bin2base64(text, sizeof(text), bytes, len,
				 sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

static void test_points_of_ed25519(void **state)
{
	static const unsigned char points[][32] = {
		{ 0 },                                    /* of order 4 */
		{ 1 },                                    /* neutral */
		{ 0xec, [1 ... 30] = 0xff, [31] = 0x7f }, /* of order 2 */
		{ 0xee, [1 ... 30] = 0xff, [31] = 0x7f }, /* neutral, not canonical */
		{ 0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4,
		  0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6,
		  0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05 }, /* of order 8 */
		{ 2 }, /* not on the curve */
	};
	char text[500];

	(void)state;
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		snprintf(text, sizeof(text),
			 KEYS("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"b\",\"x\":\"%s\"}"),
			 base64(points[i], 32));
		refuse(text, "not a point of the curve Ed25519");
	}
}

/* A number of so many bits, times the factor, as n. */
static void modulus_refuse(int bits, unsigned factor, const char *part)
{
	static char text[4000];
	unsigned char bytes[1100];
	BIGNUM *n = BN_new();
	int len;

	assert_int_equal(BN_rand(n, bits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ODD), 1);
	BN_mul_word(n, factor);
	len = BN_bn2bin(n, bytes);
	snprintf(text, sizeof(text),
		 KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"%s\",\"e\":\"Aw\"}"),
		 base64(bytes, (size_t)len));
	refuse(text, part);
	BN_free(n);
}

static void test_moduli(void **state)
{
	char text[2000];
	struct token_keys *keys;

	(void)state;
	modulus_refuse(2047, 1, "2048 to 8192 bits");
	modulus_refuse(1024, 1, "2048 to 8192 bits");
	modulus_refuse(8193, 1, "2048 to 8192 bits");
	modulus_refuse(2047, 2, "not a modulus");
	modulus_refuse(2047, 3, "not a modulus");
	assert_int_equal(ERR_peek_error(), 0); /* it would be taken for that of a connection */
	snprintf(text, sizeof(text),
		 KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"%s\",\"e\":\"Aw\"}"), N);
	keys = take(text);
	assert_int_equal(keys->list[0].verifier.signature_bytes, 256);
	token_keys_free(keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors_of_the_rfcs),
		cmocka_unit_test(test_points_of_ed25519),
		cmocka_unit_test(test_moduli),
	};

	return cmocka_run_group_tests_name("verifier", tests, NULL, NULL);
}
