/* Amounts of money as people write them. */
#include "common/message/json.h"
#include "ctl/money.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct {
	const char *currency, *text;
	int64_t units;
} amounts[] = {
	{ "EUR", "0.00", 0 },
	{ "EUR", "0.05", 5 },
	{ "EUR", "7.00", 700 },
	{ "EUR", "90071992547409.91", JSON_INTEGER_MAX },
	{ "JPY", "0", 0 },
	{ "JPY", "700", 700 },
	{ "JPY", "9007199254740991", JSON_INTEGER_MAX },
	{ "KWD", "0.005", 5 },
	{ "KWD", "7.000", 7000 },
	{ "KWD", "9007199254740.991", JSON_INTEGER_MAX },
	{ "CLF", "0.0005", 5 },
	{ "CLF", "900719925474.0991", JSON_INTEGER_MAX },
	{ "QQQ", "7.00", 700 },
};

static void test_reads_what_it_writes(void **state)
{
	char text[MONEY_SIZE];
	int64_t units;

	(void)state;
	for (size_t i = 0; i < sizeof(amounts) / sizeof(amounts[0]); i++) {
		assert_string_equal(money_text(amounts[i].units, amounts[i].currency, text),
				    amounts[i].text);
		assert_int_equal(money_parse(text, amounts[i].currency, &units), 0);
		assert_int_equal(units, amounts[i].units);
	}
	assert_string_equal(money_text(-5, "EUR", text), "-0.05");
}

static void test_a_whole_amount_needs_no_point(void **state)
{
	static const char *const currencies[] = { "JPY", "EUR", "KWD", "CLF" };
	static const int64_t wanted[] = { 7, 700, 7000, 70000 };
	int64_t units;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(money_parse("7", currencies[i], &units), 0);
		assert_int_equal(units, wanted[i]);
	}
	assert_int_equal(money_parse("007.00", "EUR", &units), 0);
	assert_int_equal(units, 700);
}

static void test_refuses(void **state)
{
	static const char *const wrong[][2] = {
		{ "EUR", "" },
		{ "EUR", "." },
		{ "EUR", "7." },
		{ "EUR", ".70" },
		{ "EUR", "7.5" },
		{ "EUR", "7.000" },
		{ "EUR", "7,00" },
		{ "EUR", "7.0x" },
		{ "EUR", "7.00 " },
		{ "EUR", " 7.00" },
		{ "EUR", "-7.00" },
		{ "EUR", "+7.00" },
		{ "EUR", "7e2" },
		{ "EUR", "0x7" },
		{ "EUR", "7.-1" },
		{ "EUR", "90071992547409.92" },
		{ "EUR", "90071992547410" },
		{ "EUR", "99999999999999999999999999999999999999.00" },
		{ "JPY", "7.00" },
		{ "JPY", "7." },
		{ "JPY", "9007199254740992" },
		{ "KWD", "7.00" },
		{ "KWD", "7.0000" },
		{ "CLF", "7.000" },
	};
	int64_t units;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(money_parse(wrong[i][1], wrong[i][0], &units), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_what_it_writes),
		cmocka_unit_test(test_a_whole_amount_needs_no_point),
		cmocka_unit_test(test_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
