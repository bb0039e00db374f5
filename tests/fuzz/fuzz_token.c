/*
 * Tokens of users. The first byte chooses what the rest is: a text, a good token and its edits,
 * claims or a header that are signed here by the secret of the set. What is good was signed: of the
 * first two it is one of the table, and the header of the last two has the name of the secret.
 */
#include "tests/fuzz/fuzz.h"

#include "common/message/json.h"
#include "gateway/auth/token.h"

#include <stdio.h>
#include <stdlib.h>

#define NOW_MS 1800000000000
#define TEXT_SIZE 8192

static const char key_set[] =
	"{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"ec\",\"x\":\"Si4eeE8JbAEUjrIP8DJx7"
	"yfP-5ypUnF2T4WFBgebUvA\",\"y\":\"fPb3H7-myWm17LVk0Ryt1Lxd5FsJLBo29beR0gXo6Ww"
	"\"},{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"okp\",\"x\":\"8fcXORffw2EJfcBNStT7Kqq"
	"nIt5vA_TVcJAANImjSJg\"},{\"kty\":\"RSA\",\"kid\":\"rsa\",\"n\":\"3Klilt2h72mtSU4YzZ9"
	"R09hIp8zfYcaosCqmgXIc96ysf8-WkjiNe4WIKHDb4oeZOVaI94zS96wv0kGJdM4jlCSlyl_"
	"7vVQEY_8yFja8v902iCV1qYe2qSxg7nECsXHOvXRBiPmn8EYg5neRiRBvdDt6DHrVtmapToI"
	"BKw6YstP-MDyhdfh-rOGofG5Jlkf5SzouTMxZRJSKfvO87xSH0WXuHS9GPsIGjcke0Zg_eNR"
	"wAxuJN1PnAantcIJgag3GZyf70drxeHviBItgdo18WdWpdO8bS5wxCbIuasGsd7kCN672EgD"
	"hf48SSKaONBnC23nA_pgUeaIWdXgx43w61w\",\"e\":\"AQAB\"},{\"kty\":\"oct\",\"kid\":\"oct"
	"\",\"k\":\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\"}]}";

static const char *const good[] = {
	"eyJhbGciOiJFUzI1NiIsImtpZCI6ImVjIn0.eyJpc3MiOiJpIiwiYXVkIjoiYSIsInN1YiI6"
	"IjQyIiwiZXhwIjo0MTAyNDQ0ODAwfQ.iQb3PXDa7-A96kDLXqXtOePPC0T4rhHdfWMPAr-wN"
	"swBo8lXYj22stVNnfFcxrwo72VYhQSZTW1BTBc06bdO6g",

	"eyJhbGciOiJFZERTQSIsImtpZCI6Im9rcCJ9.eyJpc3MiOiJpIiwiYXVkIjoiYSIsInN1YiI"
	"6IjQyIiwiZXhwIjo0MTAyNDQ0ODAwfQ.TptqzvPmcBX7ffWl4U3Uy7Z5LtQOyvBH_eIryMSq"
	"CJywFmfppwjGa5caf2QmXRHHBv4nrHGL7-HJKJbnaVtiDA",

	"eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJpIiwiYXVkIjoiYSIsInN1YiI"
	"6IjQyIiwiZXhwIjo0MTAyNDQ0ODAwfQ.2DeCbqmRPwj82UFfffvcTg1hiQlFWLlvFq9l0i9e"
	"_gVaTjmYz3AZGM0kATyLfcxDQszmGVaEcf2Gnbxo8Jk2nq_7MTfdKgiPP0TXflxtD3nZGIV0"
	"bQLRm5RYApYnchtIIJVZjtC2TRsldA2yx4d_zB_NwE4Co6HjLAGjwloW--ppD6vaQGB4TAdg"
	"tad3ACsG5AE90F8RXauIoLez4t5fd9QO5PJFdrZSusyyszgEzYFWhbH5iP-jY_TENJVgN43y"
	"9nTF_qjSTqdVYW484svGAlNuyG6YGGaqmC2KeJvC2nFvxUlCLFC9piO3YwFNMbl4gd9zm5fU"
	"JXIc9sEGu5lYmw",

	"eyJhbGciOiJIUzI1NiIsImtpZCI6Im9jdCJ9.eyJpc3MiOiJpIiwiYXVkIjoiYSIsInN1YiI"
	"6IjQyIiwiZXhwIjo0MTAyNDQ0ODAwfQ.y28hg6gsZn7mgJ1f22aYLCGjS3QRhjOQxLGqIfT_"
	"83g",
};

#define GOOD_N (sizeof(good) / sizeof(good[0]))

static struct tokens *tokens;

static void tokens_make(void)
{
	const struct token_terms terms = { .issuer = "i", .audience = "a", .leeway_ms = 30000 };
	char why[KEY_FILE_WHY_SIZE];
	struct token_keys *keys = token_keys_parse(key_set, sizeof(key_set) - 1, 1, why);

	check(keys != NULL);
	tokens = tokens_new(&terms);
	tokens_keys_set(tokens, keys);
	for (size_t i = 0; i < GOOD_N; i++) {
		const struct token *token;

		check(tokens_verify(tokens, good[i], strlen(good[i]), NOW_MS, &token) ==
		      TOKEN_GOOD);
	}
}

/* The verdict, which is the same when the text comes again, and what a good token has. */
static enum token_verdict text_verify(const char *text, size_t len)
{
	char *copy = malloc(len ? len : 1), key[RECEIVE_KEY_MAX + 1];
	const struct token *token, *again;
	enum token_verdict verdict;

	check(copy != NULL);
	memcpy(copy, text, len);
	verdict = tokens_verify(tokens, copy, len, NOW_MS, &token);
	check(verdict < TOKEN_VERDICT_COUNT && *token_verdict_kind(verdict));
	check((verdict == TOKEN_GOOD) == (token != NULL));
	if (token) {
		check(user_id_valid_length(token->user.text, token->user.len) == token->user.len);
		check(token->user.len >= 1 && token->user.text[token->user.len] == '\0');
		memcpy(key, token->key, sizeof(key));
		check(!*key || receive_key_valid(key, strlen(key)));
		check(token->from_ms <= NOW_MS && token->until_ms > NOW_MS);
		check(token->coupons_n <= TOKEN_COUPONS_MAX);
		check(!token->is_for_all || token->coupons_n == 0);
		for (size_t i = 0; i < token->coupons_n; i++)
			check(token->coupons[i] >= 1 && token_is_for(token, token->coupons[i]));
		check(tokens_verify(tokens, copy, len, token->until_ms, &again) == TOKEN_EXPIRED);
		check(tokens_look(tokens, token, NOW_MS) == TOKEN_GOOD);
	}
	check(tokens_verify(tokens, copy, len, NOW_MS, &again) == verdict && again == token);
	free(copy);
	return verdict;
}

/* Nobody who has no key makes up a token. */
static void text_check(const char *text, size_t len)
{
	int is_known = 0;

	for (size_t i = 0; i < GOOD_N; i++)
		is_known |= strlen(good[i]) == len && memcmp(good[i], text, len) == 0;
	check((text_verify(text, len) == TOKEN_GOOD) == is_known);
}

/* A good token with bytes that are changed: the position, in two bytes, and what is flipped. */
static void edits_check(struct bytes *bytes)
{
	const char *from = good[bytes_u8(bytes) % GOOD_N];
	char text[TEXT_SIZE];
	size_t len = strlen(from);

	memcpy(text, from, len);
	while (bytes->left > 0) {
		size_t at = (size_t)bytes_u8(bytes) << 8;

		at |= bytes_u8(bytes);
		text[at % len] ^= (char)bytes_u8(bytes);
	}
	text_check(text, len);
}

static size_t base64_put(char *text, size_t n, const void *bytes, size_t len)
{
	sodium_bin2base64(text + n, TEXT_SIZE - n, bytes, len,
			  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	return n + strlen(text + n);
}

static enum token_verdict signed_verify(const void *header, size_t header_len, const void *payload,
					size_t payload_len)
{
	unsigned char secret[32], mac[crypto_auth_hmacsha256_BYTES];
	char text[TEXT_SIZE];
	size_t n;

	for (unsigned char i = 0; i < sizeof(secret); i++)
		secret[i] = i;
	n = base64_put(text, 0, header, header_len);
	text[n++] = '.';
	n = base64_put(text, n, payload, payload_len);
	crypto_auth_hmacsha256(mac, (unsigned char *)text, n, secret);
	text[n++] = '.';
	n = base64_put(text, n, mac, sizeof(mac));
	return text_verify(text, n);
}

static void header_check(const uint8_t *data, size_t size)
{
	static const char claims[] =
		"{\"iss\":\"i\",\"aud\":\"a\",\"sub\":\"1\",\"exp\":4102444800}";
	static struct json_arena *arena;
	const cJSON *header;
	const char *error;

	if (!arena)
		arena = json_arena_new();
	json_decimals_allow(arena);
	if (signed_verify(data, size, claims, sizeof(claims) - 1) != TOKEN_GOOD)
		return;
	header = json_parse(arena, (const char *)data, size, &error);
	check(strcmp(cJSON_GetObjectItemCaseSensitive(header, "alg")->valuestring, "HS256") == 0);
	check(strcmp(cJSON_GetObjectItemCaseSensitive(header, "kid")->valuestring, "oct") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char header[] = "{\"alg\":\"HS256\",\"kid\":\"oct\"}";
	struct bytes bytes = { data, size };
	enum token_verdict verdict;

	if (!tokens)
		tokens_make();
	switch (bytes_u8(&bytes) % 4) {
	case 0:
		text_check((const char *)bytes.at, bytes.left);
		break;
	case 1:
		edits_check(&bytes);
		break;
	case 2:
		if (bytes.left > TEXT_SIZE / 2)
			return 0;
		verdict = signed_verify(header, sizeof(header) - 1, bytes.at, bytes.left);
		check(verdict != TOKEN_SIGNATURE && verdict != TOKEN_ALGORITHM);
		break;
	case 3:
		if (bytes.left <= TEXT_SIZE / 2)
			header_check(bytes.at, bytes.left);
		break;
	}
	return 0;
}
