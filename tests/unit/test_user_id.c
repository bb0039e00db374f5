/* User ids: 1 to 64 bytes of '!' to '~', which are compared byte by byte and mean nothing. */
#include "common/message/receive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct user_id user_make(const char *text)
{
	struct user_id user;

	if (user_id_parse(&user, text, strlen(text)))
		fail_msg("%s was refused", text);
	assert_int_equal(user.len, strlen(text));
	assert_string_equal(user.text, text);
	return user;
}

static int is_same(const char *a, const char *b)
{
	struct user_id first = user_make(a), second = user_make(b);

	return user_id_same(&first, &second);
}

static int order(const char *a, const char *b)
{
	struct user_id first = user_make(a), second = user_make(b);

	return user_id_compare(&first, &second);
}

/* The text says what is wrong, the number, and what is allowed. */
static void why_check(const char *text, size_t len, const char *word, size_t number)
{
	char why[USER_ID_WHY_SIZE], wanted[USER_ID_WHY_SIZE];

	user_id_why(text, len, why);
	snprintf(wanted, sizeof(wanted), "%s %zu ", word, number);
	assert_memory_equal(why, wanted, strlen(wanted));
	assert_non_null(strstr(why, ": must be 1 to 64 bytes of printable ASCII without spaces"));
}

/* Each byte as the first, a middle and the last one, and alone. */
static void test_bytes(void **state)
{
	static const size_t lengths[] = { 1, 3, USER_ID_MAX };

	(void)state;
	for (int c = 0; c < 256; c++) {
		int allowed = c > 0x20 && c < 0x7f;

		for (size_t l = 0; l < 3; l++) {
			size_t len = lengths[l], places[] = { 0, len / 2, len - 1 };

			for (size_t p = 0; p < 3; p++) {
				char text[USER_ID_MAX];
				struct user_id user;

				memset(text, 'u', len);
				text[places[p]] = (char)c;
				assert_int_equal(user_id_parse(&user, text, len), allowed ? 0 : -1);
				if (!allowed) {
					why_check(text, len, "byte", places[p] + 1);
					continue;
				}
				assert_int_equal(user.len, len);
				assert_memory_equal(user.text, text, len);
				assert_int_equal(user.text[len], 0);
			}
		}
	}
}

static void test_lengths(void **state)
{
	char text[USER_ID_MAX + 2];
	struct user_id user = user_make("kept");

	(void)state;
	memset(text, '~', sizeof(text));
	assert_int_equal(user_id_parse(&user, text, 0), -1);
	assert_int_equal(user_id_parse(&user, text, USER_ID_MAX + 1), -1);
	assert_int_equal(user_id_parse(&user, text, USER_ID_MAX + 2), -1);
	assert_int_equal(user_id_parse(&user, "a\0b", 3), -1);
	assert_string_equal(user.text, "kept");
	assert_int_equal(user.len, 4);
	why_check(text, 0, "has", 0);
	why_check(text, USER_ID_MAX + 1, "has", USER_ID_MAX + 1);
	text[USER_ID_MAX] = ' ';
	why_check(text, USER_ID_MAX + 1, "byte", USER_ID_MAX + 1);
	assert_int_equal(user_id_parse(&user, text, USER_ID_MAX), 0);
	assert_int_equal(strlen(user.text), USER_ID_MAX);
	assert_int_equal(user_id_parse(&user, "ab", 1), 0); /* only `len` bytes are read */
	assert_string_equal(user.text, "a");
}

static void test_opaque(void **state)
{
	(void)state;
	assert_true(is_same("42", "42"));
	assert_false(is_same("42", "042"));
	assert_false(is_same("42", "+42"));
	assert_false(is_same("42", "42.0"));
	assert_false(is_same("42", "4.2e1"));
	assert_false(is_same("0", "-0"));
	assert_false(is_same("a", "A"));
	assert_false(is_same("a", "aa"));
	assert_false(is_same("6F1C2B1E-0D52-4B1F-9C52-0123456789AB",
			     "6f1c2b1e-0d52-4b1f-9c52-0123456789ab"));
}

static void test_order(void **state)
{
	(void)state;
	assert_int_equal(order("42", "42"), 0);
	assert_true(order("10", "2") < 0 && order("2", "10") > 0);
	assert_true(order("042", "42") < 0);
	assert_true(order("a", "aa") < 0 && order("aa", "a") > 0);
	assert_true(order("B", "a") < 0); /* as the collation "C" */
	assert_true(order("!", "~") < 0);
	for (int c = '!'; c < '~'; c++)
		assert_true(order((char[]){ (char)c, 0 }, (char[]){ (char)(c + 1), 0 }) < 0);
}

static void test_numbers(void **state)
{
	static const struct {
		int64_t number;
		const char *text;
	} cases[] = {
		{ 0, "0" },
		{ 42, "42" },
		{ 9007199254740991, "9007199254740991" },
		{ INT64_MAX, "9223372036854775807" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct user_id user = user_id_of_number(cases[i].number),
			       same = user_make(cases[i].text);

		assert_true(user_id_same(&user, &same));
		assert_string_equal(user.text, cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),   cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_opaque),  cmocka_unit_test(test_order),
		cmocka_unit_test(test_numbers),
	};

	return cmocka_run_group_tests_name("user_id", tests, NULL, NULL);
}
