/* The key set of user tokens: which keys are taken, left out, or refuse the file. */
#include "tests/unit/jwks_rig.h"

#include <sys/stat.h>
#include <unistd.h>

#define GOOD OKP(KID("good"))

static void test_refused(void **state)
{
	static const char *const rows[][2] = {
		{ "", "not strict JSON" },
		{ "[]", "not an object with an array" },
		{ "{}", "not an object with an array" },
		{ "{\"keys\":{}}", "not an object with an array" },
		{ "{\"Keys\":[" GOOD "]}", "not an object with an array" },
		{ KEYS(""), "no key that can verify" },
		{ KEYS(GOOD) " x", "not strict JSON" },
		{ "{\"keys\":[],\"keys\":[" GOOD "]}", "occurs twice" },
		{ KEYS("{\"kty\":\"OKP\",\"kty\":\"OKP\"}"), "occurs twice" },
		{ KEYS("7"), "key 1 (kid none): it is not an object" },
		{ KEYS(GOOD ",{}"), "key 2 (kid none): its kty is absent or unknown" },
		{ KEYS(GOOD ",{\"kty\":1}"), "its kty" },
		{ KEYS(GOOD ",{\"kty\":\"ec\",\"kid\":\"b\"}"), "key 2 (kid b): its kty" },
		{ KEYS(GOOD ",{\"kty\":\"EC\",\"kid\":\"b\"}"), "its crv" },
		{ KEYS(GOOD ",{\"kty\":\"EC\",\"crv\":\"P-265\",\"kid\":\"b\"}"), "its crv" },
		{ KEYS(GOOD ",{\"kty\":\"EC\",\"crv\":\"Ed25519\",\"kid\":\"b\"}"), "its crv" },
		{ KEYS(GOOD ",{\"kty\":\"OKP\",\"crv\":\"ed25519\",\"kid\":\"b\"}"), "its crv" },
		{ KEYS(EC(KID("b") ",\"alg\":\"ES384\"")), "its alg does not match" },
		{ KEYS(EC(KID("b") ",\"alg\":\"RS256\"")), "its alg does not match" },
		{ KEYS(EC(KID("b") ",\"alg\":\"HS256\"")), "its alg does not match" },
		{ KEYS(RSA(KID("b") ",\"alg\":\"HS256\"")), "its alg does not match" },
		{ KEYS(OKP(KID("b") ",\"alg\":\"Ed448\"")), "its alg does not match" },
		{ KEYS(OCT(KID("b") ",\"alg\":\"RS256\"")), "its alg does not match" },
		{ KEYS(RSA(KID("b") ",\"alg\":\"RS265\"")), "its alg is unknown" },
		{ KEYS(RSA(KID("b") ",\"alg\":\"none\"")), "its alg is unknown" },
		{ KEYS(RSA(KID("b") ",\"alg\":\"\"")), "its alg is unknown" },
		{ KEYS(RSA(KID("b") ",\"alg\":null")), "its alg is not a string" },
		{ KEYS(RSA("")), "its kid must be" },
		{ KEYS(RSA(",\"kid\":7")), "its kid must be" },
		{ KEYS(RSA(KID(""))), "its kid must be" },
		{ KEYS(RSA(KID("a\\nb"))), "its kid must be" },
		{ KEYS(RSA(KID("0123456789012345678901234567890123456789012345678901234567890123"
			       "4"))),
		  "its kid must be" },
		{ KEYS(RSA(KID("good")) "," GOOD), "key 2 (kid good): its kid was already used" },
		{ KEYS(RSA(KID("b") ",\"use\":\"Sig\"")), "its use must be" },
		{ KEYS(RSA(KID("b") ",\"use\":null")), "its use must be" },
		{ KEYS(RSA(KID("b") ",\"key_ops\":\"verify\"")), "its key_ops is not an array" },
		{ KEYS(RSA(KID("b") ",\"key_ops\":[]")), "its key_ops must contain" },
		{ KEYS(RSA(KID("b") ",\"key_ops\":[\"sign\"]")), "its key_ops must contain" },
		{ KEYS(RSA(KID("b") ",\"key_ops\":[\"verfy\"]")), "its key_ops must contain" },
		{ KEYS(RSA(KID("b") ",\"key_ops\":[1]")), "its key_ops must contain" },
		{ KEYS(EC(KID("b") ",\"d\":\"AA\"")), "its private part" },
		{ KEYS(RSA(KID("b") ",\"p\":\"AA\"")), "its private part" },
		{ KEYS(RSA(KID("b") ",\"q\":\"AA\"")), "its private part" },
		{ KEYS(RSA(KID("b") ",\"dp\":\"AA\"")), "its private part" },
		{ KEYS(RSA(KID("b") ",\"dq\":null")), "its private part" },
		{ KEYS(RSA(KID("b") ",\"qi\":\"\"")), "its private part" },
		{ KEYS(RSA(KID("b") ",\"oth\":[]")), "its private part" },
		{ KEYS(OKP(KID("b") ",\"use\":\"enc\",\"d\":\"AA\"")), "its private part" },
		{ KEYS("{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"b\",\"x\":\"" X "\"}"),
		  "its x and y must" },
		{ KEYS("{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"b\",\"x\":\"" X "\",\"y\":\"" Y
		       "=\"}"),
		  "its x and y must" },
		{ KEYS("{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"b\",\"x\":\"AA" X
		       "\",\"y\":\"" Y "\"}"),
		  "its x and y must" },
		{ KEYS("{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"b\",\"x\":\"AA\",\"y\":\"" Y
		       "\"}"),
		  "its x and y must" },
		{ KEYS("{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"b\",\"x\":\"" Y "\",\"y\":\"" X
		       "\"}"),
		  "not a point of the curve P-256" },
		{ KEYS("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"b\",\"x\":\"AAAA\"}"),
		  "its x must be 32 bytes" },
		{ KEYS("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"b\",\"x\":"
		       "\"\xc3\xa9qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}"),
		  "its x must be 32 bytes" },
		{ KEYS("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"b\"}"),
		  "its x must be 32 bytes" },
		{ KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"AAAA" N "\",\"e\":\"AQAB\"}"),
		  "its n must be" },
		{ KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"e\":\"AQAB\"}"), "its n must be" },
		{ KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"" N "\"}"), "its e must be" },
		{ KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"" N "\",\"e\":65537}"),
		  "its e must be" },
		{ KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"" N "\",\"e\":\"AAEAAQ\"}"),
		  "its e must be" },
		{ KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"" N "\",\"e\":\"AQAAAAAAAAAB\"}"),
		  "its e must be" },
		{ KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"" N "\",\"e\":\"AQ\"}"),
		  "its e must be odd" },
		{ KEYS("{\"kty\":\"RSA\",\"kid\":\"b\",\"n\":\"" N "\",\"e\":\"AQAA\"}"),
		  "its e must be odd" },
		{ KEYS("{\"kty\":\"oct\",\"kid\":\"b\",\"k\":\""
		       "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg\"}"), /* 31 bytes */
		  "its k must be 32" },
		{ KEYS("{\"kty\":\"oct\",\"kid\":\"b\",\"k\":\"" K "==\"}"), "its k must be 32" },
		{ KEYS("{\"kty\":\"oct\",\"kid\":\"b\"}"), "its k must be 32" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		refuse(rows[i][0], rows[i][1]);
}

/* Beside a good key: each of these is left out, and only that. */
static void test_left_out(void **state)
{
	static const char *const rows[] = {
		RSA(",\"use\":\"enc\""),
		RSA(KID("good") ",\"use\":\"enc\",\"alg\":\"RSA-OAEP\""),
		RSA(",\"alg\":\"RS384\""),
		RSA(KID("b") ",\"use\":\"sig\",\"alg\":\"PS256\""),
		RSA(KID("b") ",\"key_ops\":[\"encrypt\",\"wrapKey\"]"),
		EC(KID("b") ",\"alg\":\"ECDH-ES\""),
		EC(KID("b") ",\"key_ops\":[\"deriveKey\"]"),
		OCT(KID("b") ",\"alg\":\"HS512\""),
		OCT(KID("b") ",\"alg\":\"A256KW\",\"use\":\"enc\""),
		"{\"kty\":\"EC\",\"crv\":\"P-384\",\"kid\":\"b\",\"x\":\"AA\",\"y\":\"AA\"}",
		"{\"kty\":\"EC\",\"crv\":\"P-521\",\"kid\":\"b\",\"alg\":\"ES512\"}",
		"{\"kty\":\"EC\",\"crv\":\"secp256k1\",\"kid\":\"b\"}",
		"{\"kty\":\"OKP\",\"crv\":\"Ed448\",\"kid\":\"b\",\"alg\":\"EdDSA\"}",
		"{\"kty\":\"OKP\",\"crv\":\"X25519\",\"kid\":\"b\",\"use\":\"enc\"}",
		"{\"kty\":\"AKP\",\"kid\":\"b\",\"alg\":\"ML-DSA-65\",\"pub\":\"AA\"}",
	};
	char text[2000];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct token_keys *keys;

		snprintf(text, sizeof(text), KEYS("%s," GOOD ""), rows[i]);
		keys = take(text);
		assert_int_equal(keys->n, 1);
		assert_non_null(token_keys_find(keys, "good"));
		token_keys_free(keys);
		snprintf(text, sizeof(text), KEYS("%s"), rows[i]);
		refuse(text, "no key that can verify");
	}
}

#define SIG ",\"use\":\"sig\""
#define RS256 ",\"alg\":\"RS256\""
#define ISSUER ",\"issuer\":\"https://login.example/{tenantid}/v2.0\""
#define OAEP ",\"use\":\"enc\",\"alg\":\"RSA-OAEP\""
#define X5 ",\"x5c\":[\"MIIC+/==\"],\"x5t\":\"yQ\",\"x5t#S256\":\"zg\""

#define KEYCLOAK KEYS(RSA(KID("FJ86GcF3jTbNLOco4NvZ") OAEP X5) "," RSA(KID("q") RS256 SIG X5))
#define GOOGLE                                                                \
	"{\n  \"keys\": [\n " RSA(KID("89c") SIG RS256) ",\n " RSA(KID("dd1") \
									   RS256 SIG) "\n  ]\n}\n"
#define MICROSOFT KEYS(RSA(KID("1LTMzakihiRla_8z2BEJVXeWMqo") SIG X5 ISSUER))
#define AUTH0 KEYS(EC(KID("ec/+=") SIG ",\"alg\":\"ES256\",\"iat\":1.5e9"))
#define OTHER KEYS(OKP(KID("a") ",\"alg\":\"EdDSA\",\"key_ops\":[\"verify\"],\"ext\":true"))
#define SECRET KEYS(OCT(KID("s") ",\"alg\":\"HS256\",\"key_ops\":[\"sign\",\"verify\"]"))

/* As Keycloak, Google, Microsoft and Auth0 publish them, with other numbers. */
static void test_sets_of_issuers(void **state)
{
	static const char *const sets[] = { KEYCLOAK, GOOGLE, MICROSOFT, AUTH0, OTHER, SECRET };

	(void)state;
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		token_keys_free(take(sets[i]));
}

static void test_name_since_rfc_9864(void **state)
{
	struct token_keys *keys = take(
		KEYS(OKP(KID("new") ",\"alg\":\"Ed25519\"") "," OKP(KID("old"))));

	(void)state;
	assert_string_equal(token_keys_find(keys, "new")->alg, "Ed25519");
	assert_string_equal(token_keys_find(keys, "old")->alg, "EdDSA");
	assert_null(token_keys_find(keys, "NEW"));
	token_keys_free(keys);
}

static void test_64_keys(void **state)
{
	static char text[64 * 300];
	struct token_keys *keys;
	size_t len = (size_t)snprintf(text, sizeof(text), "{\"keys\":[");

	(void)state;
	for (int i = 1; i <= TOKEN_KEYS_MAX + 1; i++) {
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s" OKP(KID("%d")) "]}",
					i > 1 ? "," : "", i);
		if (i <= TOKEN_KEYS_MAX) {
			keys = take(text);
			assert_int_equal(keys->n, i);
			token_keys_free(keys);
		} else {
			refuse(text, "more than 64 keys");
		}
		len -= 2;
	}
}

static void file_write(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(chmod(path, mode), 0);
}

static void test_file(void **state)
{
	static char large[TOKEN_KEYS_BYTES_MAX + 2];
	static const mode_t public[] = { 0600, 0640, 0644, 0444, 0400, 0440 };
	static const mode_t secret[] = { 0600, 0640, 0400, 0440 };
	static const mode_t shared[] = { 0644, 0604, 0601 };
	char path[] = "/tmp/couponmq-jwks-XXXXXX", why[KEY_FILE_WHY_SIZE];
	struct token_keys *keys;

	(void)state;
	close(mkstemp(path));
	for (size_t i = 0; i < sizeof(public) / sizeof(public[0]); i++) {
		file_write(path, KEYS(GOOD), public[i]);
		keys = token_keys_load(path, why);
		assert_non_null(keys);
		token_keys_free(keys);
	}
	for (size_t i = 0; i < sizeof(secret) / sizeof(secret[0]); i++) {
		file_write(path, KEYS(OCT(KID("s"))), secret[i]);
		keys = token_keys_load(path, why);
		assert_non_null(keys);
		token_keys_free(keys);
	}
	for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++) {
		file_write(path, KEYS(OCT(KID("s"))), shared[i]);
		assert_null(token_keys_load(path, why));
		assert_non_null(strstr(why, "others may read it"));
		assert_null(strstr(why, K));
	}
	file_write(path, KEYS(OCT(KID("s") ",\"alg\":\"HS512\"") "," GOOD), 0644); /* left out */
	assert_null(token_keys_load(path, why));
	assert_non_null(strstr(why, "others may read it"));
	file_write(path, KEYS(GOOD), 0664); /* who can write it can make tokens */
	assert_null(token_keys_load(path, why));
	file_write(path, KEYS(GOOD), 0646);
	assert_null(token_keys_load(path, why));
	assert_non_null(strstr(why, "others may write it"));
	file_write(path, KEYS("{}"), 0644);
	assert_null(token_keys_load(path, why));
	assert_non_null(strstr(why, path));
	assert_non_null(strstr(why, "key 1"));
	memset(large, ' ', sizeof(large) - 1);
	memcpy(large, KEYS(GOOD), strlen(KEYS(GOOD)));
	file_write(path, large, 0644);
	assert_null(token_keys_load(path, why));
	assert_non_null(strstr(why, "allowed are 262144 bytes"));
	large[TOKEN_KEYS_BYTES_MAX] = '\0';
	file_write(path, large, 0644);
	keys = token_keys_load(path, why);
	assert_non_null(keys);
	token_keys_free(keys);
	unlink(path);
	assert_null(token_keys_load(path, why));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),         cmocka_unit_test(test_left_out),
		cmocka_unit_test(test_sets_of_issuers), cmocka_unit_test(test_name_since_rfc_9864),
		cmocka_unit_test(test_64_keys),         cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests_name("jwks", tests, NULL, NULL);
}
