/* Coupon ids: every positive signed 64-bit integer, each in one spelling only. */
#include "common/message/number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_taken(void **state)
{
	static const struct {
		const char *text;
		int64_t id;
	} cases[] = {
		{ "1", 1 },
		{ "9", 9 },
		{ "10", 10 },
		{ "1001", 1001 },
		{ "9007199254740993", 9007199254740993 }, /* a double has no such number */
		{ "1234567890123456789", 1234567890123456789 },
		{ "9223372036854775807", INT64_MAX },
	};
	char text[ID_SIZE];
	int64_t id;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(id_parse(cases[i].text, strlen(cases[i].text), &id), 0);
		assert_true(id == cases[i].id);
		assert_int_equal(id_format(id, text), strlen(cases[i].text));
		assert_string_equal(text, cases[i].text);
	}
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"0",
		"00",
		"01",
		"-1",
		"+1",
		" 1",
		"1 ",
		"1.0",
		"1e3",
		"0x1",
		"a",
		"1a",
		"9223372036854775808",
		"9223372036854775810",
		"9999999999999999999",
		"10000000000000000000",
		"92233720368547758070",
		"\xd9\xa1",
	};
	int64_t id = 77;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(id_parse(texts[i], strlen(texts[i]), &id), -1);
	assert_int_equal(id_parse("12\0", 3, &id), -1);
	assert_true(id == 77);
}

/* Only `len` bytes are looked at. */
static void test_length(void **state)
{
	int64_t id;

	(void)state;
	assert_int_equal(id_parse("1234", 2, &id), 0);
	assert_true(id == 12);
	assert_int_equal(id_parse("12x", 2, &id), 0);
	assert_int_equal(id_parse("12", 0, &id), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_length),
	};

	return cmocka_run_group_tests_name("id", tests, NULL, NULL);
}
