/*
 * Values of headers and of paths: what each specification allows is read, and nothing else. Each
 * text is at the end of memory of its own, so that a sanitizer finds a byte that is read behind it.
 */
#include "gateway/listen/http_value.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEY_63 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
#define KEY_255 KEY_63 "f" KEY_63 "f" KEY_63 "f" KEY_63

static char *copy_make(const char *text, size_t len)
{
	char *copy = malloc(len > 0 ? len : 1);

	memcpy(copy, text, len);
	return copy;
}

static int key_parse(const char *text, size_t len, char key[RECEIVE_KEY_MAX + 1])
{
	char *copy = copy_make(text, len);
	int rc = http_key_parse(copy, len, key);

	free(copy);
	return rc;
}

static void test_keys(void **state)
{
	static const struct {
		const char *text;
		const char *key;
	} keys[] = {
		{ "\"order-77\"", "order-77" },
		{ "order-77", "order-77" },
		{ "\"8e03978e-40d5-43dd-bc93-6894a57f9324\"",
		  "8e03978e-40d5-43dd-bc93-6894a57f9324" },
		{ "\"a b\"", "a b" },
		{ "a b", "a b" },
		{ "\" \"", " " },
		{ "\"a\\\"b\\\\c\"", "a\"b\\c" },
		{ "a\\b\"c", "a\\b\"c" },
		{ "a\"", "a\"" },
		{ "\"\\\"\"", "\"" },
		{ KEY_255, KEY_255 },
		{ "\"" KEY_255 "\"", KEY_255 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		char key[RECEIVE_KEY_MAX + 1];

		assert_int_equal(key_parse(keys[i].text, strlen(keys[i].text), key), 0);
		assert_string_equal(key, keys[i].key);
	}
}

static void test_what_is_no_key(void **state)
{
	static const char *const wrong[] = {
		"",         "\"",     "\"\"",      "\"a",          "\"a\\\"",          "\"a\\n\"",
		"\"a\\",    "\"a\" ", "\"a\";b=1", "\"a\", \"b\"", "\"a\"b",           "a\tb",
		"\"a\tb\"", "a\x7f",  "\xc3\xbc",  KEY_255 "x",    "\"" KEY_255 "x\"",
	};
	char key[RECEIVE_KEY_MAX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(key_parse(wrong[i], strlen(wrong[i]), key), -1);
	assert_int_equal(key_parse("a\0b", 3, key), -1);
}

static enum http_accept accept_parse(const char *text)
{
	char *copy = copy_make(text, strlen(text));
	enum http_accept accept = http_accept_parse(copy, strlen(text));

	free(copy);
	return accept;
}

static void test_accept(void **state)
{
	static const char *const json[] = {
		"",
		" , ",
		"*/*",
		"application/json",
		"Application/JSON",
		"application/*",
		"application/json;charset=utf-8",
		"application/json; q=0.001",
		"application/json ; q=1.000 , text/html",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
		"x, application/json",
		"text/html,\tapplication/json;;",
	};
	static const char *const problem[] = {
		"application/problem+json",
		"application/problem+json, application/json",
		"application/json,application/problem+json",
		"application/problem+json, */*",
		"application/PROBLEM+json;q=0.9, application/json;q=0.8",
		"application/problem+json;q=0.5, application/json",
		"text/html;level=1;q=0.3 ,\tapplication/problem+json;a=b",
	};
	static const char *const neither[] = {
		"text/html",
		"text/*",
		"*/json",
		"json",
		"application/",
		"/json",
		"application/jsonx",
		"application/json x",
		"application/json\"",
		";q=1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(json) / sizeof(json[0]); i++)
		assert_int_equal(accept_parse(json[i]), ACCEPT_JSON);
	for (size_t i = 0; i < sizeof(problem) / sizeof(problem[0]); i++)
		assert_int_equal(accept_parse(problem[i]), ACCEPT_PROBLEM);
	for (size_t i = 0; i < sizeof(neither) / sizeof(neither[0]); i++)
		assert_int_equal(accept_parse(neither[i]), ACCEPT_NEITHER);
}

static void expect_decoded(const char *text, const char *wanted)
{
	char *copy = copy_make(text, strlen(text)), out[8];
	int len = http_segment_decode(copy, strlen(text), out, sizeof(out));

	free(copy);
	assert_int_equal(len, wanted ? (int)strlen(wanted) : -1);
	if (wanted)
		assert_string_equal(out, wanted);
}

static void test_segments_are_decoded_once(void **state)
{
	(void)state;
	expect_decoded("", "");
	expect_decoded("a+b", "a+b");
	expect_decoded("a%7cb", "a|b");
	expect_decoded("%2F%2f", "//");
	expect_decoded("%252F", "%2F");
	expect_decoded("%c3%BC", "\xc3\xbc");
	expect_decoded("1234567", "1234567");
	expect_decoded("12345%367", "1234567");
	expect_decoded("12345678", NULL);
	expect_decoded("1234567%38", NULL);
	expect_decoded("%", NULL);
	expect_decoded("a%2", NULL);
	expect_decoded("%2x", NULL);
	expect_decoded("%x2", NULL);
	expect_decoded("%-1", NULL);
	expect_decoded("a%00", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_what_is_no_key),
		cmocka_unit_test(test_accept),
		cmocka_unit_test(test_segments_are_decoded_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
