/* Strict JSON: texts that cJSON alone would accept are refused here, each with its own sentence. */
#include "common/message/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int setup(void **state)
{
	*state = json_arena_new();
	return 0;
}

static int teardown(void **state)
{
	json_arena_free(*state);
	return 0;
}

/*
 * Parses a copy that ends exactly at its last byte, so that a sanitizer detects reads beyond it.
 */
static const cJSON *parse(struct json_arena *arena, const char *text, size_t len,
			  const char **error)
{
	char *copy = malloc(len ? len : 1);
	const cJSON *root;

	memcpy(copy, text, len);
	*error = NULL;
	root = json_parse(arena, copy, len, error);
	free(copy);
	return root;
}

static void refuse(struct json_arena *arena, const char *text, size_t len, const char *part)
{
	const char *error;

	if (parse(arena, text, len, &error))
		fail_msg("%.*s was taken", (int)len, text);
	if (!error || !strstr(error, part))
		fail_msg("%.*s: the error is \"%s\", wanted: %s", (int)len, text,
			 error ? error : "(none)", part);
}

static void take(struct json_arena *arena, const char *text, size_t len)
{
	const char *error;

	if (!parse(arena, text, len, &error))
		fail_msg("%.*s was refused: %s", (int)len, text, error);
}

#define REFUSE(text, part) refuse(*state, text, sizeof(text) - 1, part)
#define TAKE(text) take(*state, text, sizeof(text) - 1)

static void test_taken(void **state)
{
	TAKE("{}");
	TAKE("[]");
	TAKE("0");
	TAKE("-0");
	TAKE("-12");
	TAKE("\"\"");
	TAKE("null");
	TAKE("[true,false,null]");
	TAKE(" \t\r\n{ \"a\" : [ 1 , \"b\" ] } \t\r\n");
	TAKE("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"");
	TAKE("\"\\\\u0000\""); /* a backslash, then u0000 */
	TAKE("{\"a\":1,\"b\":{\"a\":1}}");
	TAKE("[{\"a\":1},{\"a\":1}]");
	TAKE("{\"a\":1,\"A\":2}");
}

static void test_not_json(void **state)
{
	REFUSE("", "not JSON");
	REFUSE(" ", "not JSON");
	REFUSE("{", "not JSON");
	REFUSE("[1,", "not JSON");
	REFUSE("{\"a\"}", "not JSON");
	REFUSE("{\"a\":}", "not JSON");
	REFUSE("{\"a\":1,}", "not JSON");
	REFUSE("[1,]", "not JSON");
	REFUSE("{a:1}", "not JSON");
	REFUSE("'a'", "not JSON");
	REFUSE("nul", "not JSON");
	REFUSE("True", "not JSON");
	REFUSE("NaN", "not JSON");
	REFUSE("+1", "not JSON");
	REFUSE(".5", "not JSON");
	REFUSE("]", "not JSON");
	REFUSE("[1 2]", "not JSON");
	REFUSE("[1}", "not JSON");
	REFUSE("\xef\xbb\xbf{}", "not JSON");
	REFUSE("/* */1", "not JSON");
	REFUSE("\"\\x41\"", "does not begin an escape");
	REFUSE("\"\\\x94\"", "does not begin an escape"); /* or a reply would repeat the byte */
	REFUSE("\"\\u12g4\"", "hexadecimal");             /* cJSON: a NUL */
	REFUSE("\"ab\\uzzzz\"", "hexadecimal");
	REFUSE("\"\\u+001\"", "hexadecimal");
	REFUSE("\"\\u00\"", "hexadecimal");
	REFUSE("\"\\u 1ab\"", "hexadecimal");
	REFUSE("\"\\ud83d\"", "not JSON");        /* half of a surrogate pair */
	REFUSE("\"\\ude00\\ud83d\"", "not JSON"); /* the wrong half first */
	REFUSE("\"\\ud83dx\"", "not JSON");
}

static void test_nul(void **state)
{
	REFUSE("{\"a\":1}\0", "not JSON");
	REFUSE("\0{}", "not JSON");
	REFUSE("{}\0{}", "not JSON");
	REFUSE("\"a\0b\"", "control character");
	REFUSE("\"\\u0000\"", "NUL");
	REFUSE("\"a\\u0000b\"", "NUL");
	REFUSE("{\"a\\u0000b\":1}", "NUL");
	REFUSE("\"\\\\\\u0000\"", "NUL");
}

static void test_control_characters(void **state)
{
	char text[] = "\"a?b\"";

	for (int c = 1; c < 0x20; c++) {
		text[2] = (char)c;
		refuse(*state, text, 5, "control character");
	}
	TAKE("\"\x7f\"");
	REFUSE("{\"a\":\x01}", "not JSON");
	REFUSE("{}\x0c", "not JSON");
}

static void test_unfinished_string(void **state)
{
	REFUSE("\"", "unterminated string");
	REFUSE("\"abc", "unterminated string");
	REFUSE("\"abc\\\"", "unterminated string");
	REFUSE("\"abc\\", "unterminated string");
	REFUSE("\"\\u00", "unterminated string");
}

static void test_utf8(void **state)
{
	TAKE("\"\xc2\x80\"");
	TAKE("\"\xdf\xbf\"");
	TAKE("\"\xe0\xa0\x80\"");
	TAKE("\"\xed\x9f\xbf\"");
	TAKE("\"\xee\x80\x80\"");
	TAKE("\"\xef\xbf\xbf\"");
	TAKE("\"\xf0\x90\x80\x80\"");
	TAKE("\"\xf4\x8f\xbf\xbf\"");

	REFUSE("\"\x80\"", "UTF-8");
	REFUSE("\"\xbf\"", "UTF-8");
	REFUSE("\"\xc0\x80\"", "UTF-8"); /* overlong */
	REFUSE("\"\xc1\xbf\"", "UTF-8");
	REFUSE("\"\xe0\x80\x80\"", "UTF-8");
	REFUSE("\"\xe0\x9f\xbf\"", "UTF-8");
	REFUSE("\"\xf0\x80\x80\x80\"", "UTF-8");
	REFUSE("\"\xf0\x8f\xbf\xbf\"", "UTF-8");
	REFUSE("\"\xed\xa0\x80\"", "UTF-8"); /* surrogates */
	REFUSE("\"\xed\xbf\xbf\"", "UTF-8");
	REFUSE("\"\xf4\x90\x80\x80\"", "UTF-8"); /* beyond U+10FFFF */
	REFUSE("\"\xf5\x80\x80\x80\"", "UTF-8");
	REFUSE("\"\xff\"", "UTF-8");
	REFUSE("\"\xfe\"", "UTF-8");
	REFUSE("\"\xc3\"", "UTF-8"); /* cut off */
	REFUSE("\"\xe2\x82\"", "UTF-8");
	REFUSE("\"\xf0\x9f\x98\"", "UTF-8");
	REFUSE("\"\xc3(\"", "UTF-8");
	REFUSE("\"\xe2\x82", "UTF-8");
	REFUSE("{\"\xff\":1}", "UTF-8");
}

static void test_numbers(void **state)
{
	REFUSE("01", "leading zero");
	REFUSE("00", "leading zero");
	REFUSE("-01", "leading zero");
	REFUSE("-", "without digits");
	REFUSE("[-]", "without digits");
	REFUSE("--1", "without digits");
	REFUSE("1.0", "fraction");
	REFUSE("0.5", "fraction");
	REFUSE("1e2", "exponent");
	REFUSE("1E2", "exponent");
	REFUSE("1e", "exponent");
	REFUSE("-1.5e3", "fraction");
	REFUSE("1-2", "bytes after");
}

static void test_decimals(void **state)
{
	const char *error;
	int64_t value;

	json_decimals_allow(*state);
	TAKE("[0.5,-1.5e3,1E+2,2e-1,0e0,7]");
	assert_true(parse(*state, "1.25", 4, &error)->valuedouble == 1.25);
	REFUSE("1.", "has no digits");
	REFUSE("1.e1", "has no digits");
	REFUSE("1e", "has no digits");
	REFUSE("1e+", "has no digits");
	REFUSE("01.5", "leading zero");
	REFUSE(".5", "not JSON");
	REFUSE("1.5.5", "not JSON");
	assert_int_equal(json_integer(parse(*state, "2.5", 3, &error), 0, 9, &value), -1);
	assert_int_equal(json_id(parse(*state, "2.5", 3, &error), &value, &error), -1);
	assert_int_equal(json_integer(parse(*state, "1e400", 5, &error), 0, 9, &value), -1);
	assert_int_equal(json_integer(parse(*state, "2.0", 3, &error), 0, 9, &value), 0);
	assert_int_equal(value, 2);
}

static void test_wipe(void **state)
{
	const char *error;
	const cJSON *secret = parse(*state, "\"hunter2\"", 9, &error);
	const char *text = secret->valuestring;

	assert_string_equal(text, "hunter2");
	json_arena_wipe(*state);
	assert_int_equal(text[0] | text[6], 0);
}

static void test_duplicates(void **state)
{
	REFUSE("{\"a\":1,\"a\":1}", "occurs twice");
	REFUSE("{\"a\":1,\"b\":2,\"a\":3}", "occurs twice");
	REFUSE("{\"a\":1,\"\\u0061\":1}", "occurs twice");
	REFUSE("{\"x\":{\"a\":1,\"a\":2}}", "occurs twice");
	REFUSE("[[{\"\":1,\"\":2}]]", "occurs twice");
}

static void test_bytes_after(void **state)
{
	REFUSE("{}x", "bytes after");
	REFUSE("{}{}", "bytes after");
	REFUSE("{} ,", "bytes after");
	REFUSE("1 2", "bytes after");
	REFUSE("\"a\"\"b\"", "bytes after");
	REFUSE("[]]", "bytes after");
	REFUSE("nullnull", "bytes after");
}

static void test_depth(void **state)
{
	char text[2 * (JSON_DEPTH_MAX + 1)];

	memset(text, '[', JSON_DEPTH_MAX);
	memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	take(*state, text, 2 * JSON_DEPTH_MAX);
	memset(text, '[', JSON_DEPTH_MAX + 1);
	memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	refuse(*state, text, sizeof(text), "nested deeper than 16 levels");
	/* Brackets in a string do not count. */
	TAKE("\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"");
}

/* An object of `members`, inside `before`; the text's length. */
static size_t object_make(char *out, int members)
{
	size_t len = 0;

	out[len++] = '{';
	for (int i = 0; i < members; i++)
		len += (size_t)sprintf(out + len, "%s\"m%d\":%d", i ? "," : "", i, i);
	out[len++] = '}';
	return len;
}

static void test_members(void **state)
{
	static char text[65536];
	size_t len = object_make(text, 64);

	take(*state, text, len);
	len = object_make(text, 65);
	refuse(*state, text, len, "more than 64 members");
	text[0] = '[';
	len = 1 + object_make(text + 1, 65);
	text[len++] = ']';
	refuse(*state, text, len, "more than 64 members");
}

/*
 * The longest line a gateway accepts by default, filled so that it needs most memory and most
 * comparisons.
 */
static void test_64_kib(void **state)
{
	static char text[65536];
	size_t len = object_make(text, 4500);

	refuse(*state, text, len, "more than 64 members");
	len = 0;
	text[len++] = '[';
	while (len < sizeof(text) - 4) {
		text[len++] = '0';
		text[len++] = ',';
	}
	text[len - 1] = ']';
	take(*state, text, len);
	memset(text, 'x', sizeof(text));
	text[0] = text[sizeof(text) - 1] = '"';
	take(*state, text, sizeof(text));
	/* As many small objects as fit. */
	len = 0;
	text[len++] = '[';
	while (len < sizeof(text) - 16) {
		memcpy(text + len, "{\"a\":0,\"b\":1},", 14);
		len += 14;
	}
	text[len - 1] = ']';
	take(*state, text, len);
}

/*
 * The arena is reused, also after texts that were refused half-way and after large ones.
 */
static void test_arena_reuse(void **state)
{
	static char large[65536];
	const char *error;
	const cJSON *root;
	char text[64];

	for (int i = 0; i < 2000; i++) {
		int len = snprintf(text, sizeof(text), "{\"n\":%d,\"s\":\"text %d\"}", i, i);

		root = parse(*state, text, (size_t)len, &error);
		assert_non_null(root);
		assert_int_equal(cJSON_GetObjectItemCaseSensitive(root, "n")->valuedouble, i);
		if (i % 100 == 0) {
			size_t n = object_make(large, 64 + i / 200);

			parse(*state, large, n, &error);
			parse(*state, "{\"a\":[1,2,{\"b\":", 15, &error);
		}
	}
	/* Outside of json_parse() cJSON allocates as usual. */
	cJSON_Delete(cJSON_CreateObject());
}

static void test_two_arenas(void **state)
{
	struct json_arena *other = json_arena_new();
	const char *error;
	const cJSON *a = json_parse(*state, "{\"a\":\"first\"}", 13, &error);
	const cJSON *b = json_parse(other, "{\"b\":\"second\"}", 14, &error);

	assert_string_equal(cJSON_GetObjectItemCaseSensitive(a, "a")->valuestring, "first");
	assert_string_equal(cJSON_GetObjectItemCaseSensitive(b, "b")->valuestring, "second");
	json_arena_free(other);
	json_arena_free(NULL);
}

static void id_expect(struct json_arena *arena, const char *text, int64_t wanted, const char *part)
{
	const char *error;
	const cJSON *item = parse(arena, text, strlen(text), &error);
	int64_t id = 0;
	int rc;

	assert_non_null(item);
	rc = json_id(item, &id, &error);
	if (wanted) {
		assert_int_equal(rc, 0);
		assert_true(id == wanted);
		return;
	}
	assert_int_equal(rc, -1);
	if (!strstr(error, part))
		fail_msg("%s: the error is \"%s\", wanted: %s", text, error, part);
}

static void test_json_id(void **state)
{
	id_expect(*state, "1", 1, NULL);
	id_expect(*state, "\"1\"", 1, NULL);
	id_expect(*state, "9007199254740991", JSON_INTEGER_MAX, NULL);
	id_expect(*state, "\"9007199254740993\"", 9007199254740993, NULL);
	id_expect(*state, "\"9223372036854775807\"", INT64_MAX, NULL);
	id_expect(*state, "9007199254740992", 0, "send it as a string");
	id_expect(*state, "9007199254740993", 0, "send it as a string");
	id_expect(*state, "9223372036854775807", 0, "send it as a string");
	id_expect(*state, "99999999999999999999999999999999999999", 0, "send it as a string");
	id_expect(*state, "\"9223372036854775808\"", 0, "decimal digits");
	id_expect(*state, "\"01\"", 0, "decimal digits");
	id_expect(*state, "\"\"", 0, "decimal digits");
	id_expect(*state, "\"0\"", 0, "decimal digits");
	id_expect(*state, "\"-1\"", 0, "decimal digits");
	id_expect(*state, "0", 0, "must be a string or a number");
	id_expect(*state, "-0", 0, "must be a string or a number");
	id_expect(*state, "-1", 0, "must be a string or a number");
	id_expect(*state, "null", 0, "must be a string or a number");
	id_expect(*state, "true", 0, "must be a string or a number");
	id_expect(*state, "[1]", 0, "must be a string or a number");
	id_expect(*state, "{}", 0, "must be a string or a number");
}

static void test_json_integer(void **state)
{
	const char *error;
	int64_t value = 5;

	assert_int_equal(json_integer(NULL, 0, 1, &value), -1);
	assert_int_equal(json_integer(parse(*state, "\"1\"", 3, &error), 0, 1, &value), -1);
	assert_int_equal(json_integer(parse(*state, "2", 1, &error), 0, 1, &value), -1);
	assert_int_equal(json_integer(parse(*state, "-1", 2, &error), 0, 1, &value), -1);
	assert_true(value == 5);
	assert_int_equal(json_integer(parse(*state, "-0", 2, &error), 0, 1, &value), 0);
	assert_true(value == 0);
	assert_int_equal(json_integer(parse(*state, "-9007199254740991", 17, &error),
				      -JSON_INTEGER_MAX, 0, &value),
			 0);
	assert_true(value == -JSON_INTEGER_MAX);
	assert_int_equal(json_integer(parse(*state, "-9007199254740992", 17, &error),
				      -JSON_INTEGER_MAX, 0, &value),
			 -1);
}

/* Each number with all its digits; what is printed, and what it is printed from, stays as it is. */
static void test_json_write(void **state)
{
	static const char text[] = "{\"a\":9007199254740991,\"b\":[-9007199254740991,\"1e15\"],"
				   "\"c\":{\"d\":1000000000000000,\"e\":999999999999999,\"f\":0}}";
	const char *error;
	const cJSON *root = parse(*state, text, sizeof(text) - 1, &error);

	for (int i = 0; i < 2; i++) {
		char *written = json_write(root);

		assert_string_equal(written, text);
		cJSON_free(written);
	}
	assert_true(cJSON_IsNumber(root->child));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_taken),
		TEST(test_not_json),
		TEST(test_nul),
		TEST(test_control_characters),
		TEST(test_unfinished_string),
		TEST(test_utf8),
		TEST(test_numbers),
		TEST(test_decimals),
		TEST(test_wipe),
		TEST(test_duplicates),
		TEST(test_bytes_after),
		TEST(test_depth),
		TEST(test_members),
		TEST(test_64_kib),
		TEST(test_arena_reuse),
		TEST(test_two_arenas),
		TEST(test_json_id),
		TEST(test_json_integer),
		TEST(test_json_write),
	};

	return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
