/* Forms of generated codes: patterns, the one spelling, and how many codes are allowed. */
#include "codes/book.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct code_form form_of(const char *pattern, const char *alphabet)
{
	char why[CODE_WHY_SIZE];
	struct code_form form;

	if (code_form_parse(&form, pattern, alphabet, why))
		fail_msg("%s", why);
	return form;
}

static void test_patterns(void **state)
{
	static const struct {
		const char *prefix;
		unsigned length;
		const char *pattern;
	} cases[] = {
		{ "", 13, "#####-####-####" },
		{ "NOON", 8, "NOON-####-####" },
		{ "", 4, "####" },
		{ "", 5, "#####" },
		{ "", 6, "###-###" },
		{ "", 7, "####-###" },
		{ "", 9, "#####-####" },
		{ "", 11, "####-####-###" },
		{ "A", 16, "A-####-####-####-####" },
		{ "", 2, "##" },
	};
	char pattern[CODE_WIDTH_MAX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(code_pattern_make(cases[i].prefix, cases[i].length, pattern), 0);
		assert_string_equal(pattern, cases[i].pattern);
	}
	assert_int_equal(code_pattern_make("", 90, pattern), -1);
}

static void test_refuses_forms(void **state)
{
	static const char *const wrong[][3] = {
		{ "", CODE_ALPHABET, "has 0 symbols of an alphabet of 32: allowed are 4 to 24" },
		{ "###", CODE_ALPHABET, "allowed are 4 to 24" },
		{ "#########################", CODE_ALPHABET, "allowed are 4 to 24" },
		{ "#####", "0123456789", "allowed are 6 to 38" },
		{ "NOON_####", CODE_ALPHABET, "character 5 is not allowed" },
		{ "NO N####", CODE_ALPHABET, "character 3 is not allowed" },
		{ "\xc3\xa9####", CODE_ALPHABET, "character 1 is not allowed" },
		{ "########", "A", "allowed are 2 to 62" },
		{ "########", "", "allowed are 2 to 62" },
		{ "########", "ABCA", "has \"A\" twice" },
		{ "########", "AB-C", "character 3 is not allowed" },
		{ "########", "AB#C", "character 3 is not allowed" },
		{ "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA#", "AB",
		  "at most 64 characters" },
	};
	struct code_form form;
	char why[CODE_WHY_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(code_form_parse(&form, wrong[i][0], wrong[i][1], why), -1);
		if (!strstr(why, wrong[i][2]))
			fail_msg("\"%s\" does not say \"%s\"", why, wrong[i][2]);
	}
}

static void assert_reads(const struct code_form *form, const char *text, int is_read)
{
	struct ff1_string string;

	if ((code_form_read(form, text, strlen(text), &string) == 0) != is_read)
		fail_msg("\"%s\" as %s: %s", text, form->pattern, is_read ? "not read" : "read");
}

static void test_one_spelling(void **state)
{
	struct code_form form = form_of("NOON-####-####", CODE_ALPHABET);
	char text[CODE_WIDTH_MAX + 1] = { 0 };
	struct ff1_string string = { .first = 12345, .last = 678901 }, again;

	(void)state;
	code_form_write(&form, &string, text);
	assert_int_equal(strlen(text), form.width);
	assert_string_equal(text, "NOON-2E3T-NQZP");
	assert_int_equal(code_form_read(&form, "noon2e3tnqzp", 12, &again), 0);
	assert_memory_equal(&again, &string, sizeof(again));
	assert_reads(&form, "  N-O-o n--2E3T N QZP- ", 1);
	assert_reads(&form, "NOON2E3TNQZ", 0);
	assert_reads(&form, "NOON2E3TNQZPP", 0);
	assert_reads(&form, "N00N-2E3T-NQZP", 0);
	assert_reads(&form, "NOON-2E3T-NQZ0", 0);
	assert_reads(&form, "NOON-2E3T-NQZO", 0);
	assert_reads(&form, "NOON-2E3T-NQZ\xc5\xbf", 0);
	assert_reads(&form, "NOON_2E3T-NQZP", 0);
	assert_reads(&form, "NOON-2E3T-NQZP\n", 1);
	assert_reads(&form, "NOON-2E3T-NQZP\1", 0);
	assert_reads(&form, "", 0);
}

static void test_case_of_the_alphabet(void **state)
{
	struct code_form lower = form_of("Ab-######", "abcdefghjk");
	struct code_form mixed = form_of("Ab-######", "abcdefghjkABC");
	struct code_form digits = form_of("ab######", "9876543210");

	(void)state;
	assert_string_equal(lower.pattern, "ab-######");
	assert_reads(&lower, "AB-ABCDEF", 1);
	assert_string_equal(mixed.pattern, "Ab-######");
	assert_reads(&mixed, "Ab-abcABC", 1);
	assert_reads(&mixed, "ab-abcABC", 0);
	assert_reads(&mixed, "Ab-abcABD", 0);
	assert_string_equal(digits.pattern, "AB######");
	assert_string_equal(digits.alphabet, "0123456789");
	assert_reads(&digits, "aB123456", 1);
}

static void test_same_and_overlapping(void **state)
{
	struct code_form a = form_of("NOON-####-####", CODE_ALPHABET);
	struct code_form dashes = form_of("noon########", CODE_ALPHABET);
	struct code_form longer = form_of("NOON-####-#####", CODE_ALPHABET);
	struct code_form other = form_of("MOON-####-####", CODE_ALPHABET);
	struct code_form within = form_of("############", "NOPQRSTUVW");
	struct code_form apart = form_of("############", "0123456789");
	struct code_form exact = form_of("NOON########", "abcdefghABCDE");
	struct code_form lower = form_of("noon########", "abcdefghABCDE");

	(void)state;
	assert_true(code_forms_same(&a, &dashes) && code_forms_overlap(&a, &dashes));
	assert_false(code_forms_same(&a, &longer) || code_forms_overlap(&a, &longer));
	assert_false(code_forms_same(&a, &other) || code_forms_overlap(&a, &other));
	assert_true(code_forms_overlap(&a, &within) && code_forms_overlap(&within, &a));
	assert_false(code_forms_same(&a, &within));
	assert_false(code_forms_overlap(&a, &apart));
	assert_true(code_forms_overlap(&a, &exact));
	assert_true(code_forms_overlap(&a, &lower));
	assert_false(code_forms_overlap(&exact, &lower));
}

static void test_chance(void **state)
{
	struct code_form form = form_of("#####-####-####", CODE_ALPHABET);
	struct code_form small = form_of("NOON-####-####", CODE_ALPHABET);
	char why[CODE_WHY_SIZE], text[CODE_CHANCE_SIZE];

	(void)state;
	assert_true(form.size == (unsigned __int128)1 << 65);
	assert_int_equal(code_chance_codes_max(&form), 36893488147);
	assert_int_equal(code_chance_codes_max(&small), 1099);
	assert_int_equal(code_chance_check(&small, 0, 0, 1099, why), 0);
	assert_int_equal(code_chance_check(&small, 1000, 0, 99, why), 0);
	assert_int_equal(code_chance_check(&small, 1000, 0, 100, why), -1);
	assert_string_equal(
		why, "100 codes and 1000 that exist are too many for NOON-####-####: 32^8 = "
		     "1.1e+12 texts: a guess hits with 1 in 1e+09; allowed is 1 in 1e+09 or less, "
		     "which is 1099 codes; 9 symbols are enough");
	assert_int_equal(code_chance_check(&small, 0, 1000, 100, why), -1);
	assert_int_equal(code_chance_check(&small, 0, 549, 550, why), 0);
	assert_int_equal(code_chance_check(&form, 0, 100000000, 100000000, why), 0);
	assert_int_equal(code_chance_check(&form, 0, 1000000000, 1000000000, why), -1);
	assert_non_null(strstr(why, "would be there twice"));
	assert_string_equal(code_chance_text(&form, 1000000, text),
			    "32^13 = 3.7e+19 texts: a guess hits with 1 in 3.7e+13");
}

/* Spaces and dashes as they are in pasted texts, and what is near to them or is cut. */
static void test_pasted(void **state)
{
	static const char *const ignored[] = {
		" ",
		"-",
		"\t",
		"\n",
		"\r",
		"\v",
		"\f",
		"\xc2\x85",
		"\xc2\xa0",
		"\xc2\xad",
		"\xe1\x9a\x80",
		"\xe2\x80\x80",
		"\xe2\x80\x83",
		"\xe2\x80\x89",
		"\xe2\x80\x8b",
		"\xe2\x80\x8c",
		"\xe2\x80\x8d",
		"\xe2\x80\x8e",
		"\xe2\x80\x8f",
		"\xe2\x80\x90",
		"\xe2\x80\x91",
		"\xe2\x80\x92",
		"\xe2\x80\x93",
		"\xe2\x80\x94",
		"\xe2\x80\x95",
		"\xe2\x80\xa8",
		"\xe2\x80\xaf",
		"\xe2\x81\x9f",
		"\xe2\x81\xa0",
		"\xe2\x88\x92",
		"\xe3\x80\x80",
		"\xef\xb9\x98",
		"\xef\xb9\xa3",
		"\xef\xbb\xbf",
		"\xef\xbc\x8d",
	};
	static const char *const wrong[] = {
		"\1",           "_",
		"\xc2",         "\xa0",
		"\xc3\xa0",     "\xe2\x80",
		"\xe2\x80\x96", "\xe2\x80\xb0",
		"\xe2\x88\x93", "\xe2\x80\xc0",
		"\xe0\x82\xa0", "\xf0\x80\x80",
		"\xc0\xa0",     "\xe3\x80\x81",
		"\x7f",
	};
	struct code_form form = form_of("NOON-####-####", CODE_ALPHABET);
	char text[64], spelled[CODE_OTHERS_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
		snprintf(text, sizeof(text), "%sNOON%s2E3T%sNQZP%s", ignored[i], ignored[i],
			 ignored[i], ignored[i]);
		assert_reads(&form, text, 1);
		assert_int_equal(code_ignored_length(ignored[i], strlen(ignored[i])),
				 strlen(ignored[i]));
		assert_int_equal(code_text_spell(text, strlen(text), spelled), 0);
		assert_string_equal(spelled, "NOON2E3TNQZP");
		assert_int_equal(code_text_spell(ignored[i], strlen(ignored[i]), spelled), -1);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), "NOON2E3TNQZP%s", wrong[i]);
		assert_reads(&form, text, 0);
		assert_int_equal(code_ignored_length(wrong[i], strlen(wrong[i])), 0);
	}
	assert_int_equal(code_ignored_length("", 0), 0);
}

static void test_spelling_of_others(void **state)
{
	char text[CODE_OTHERS_SIZE];
	static const char longest[] =
		"0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123";

	(void)state;
	assert_int_equal(code_text_spell("noon 26-a_/\"", 12, text), 0);
	assert_string_equal(text, "NOON26A_/\"");
	assert_int_equal(code_text_spell(longest, strlen(longest), text), 0);
	assert_int_equal(strlen(text), 64);
	assert_int_equal(code_text_spell("", 0, text), -1);
	assert_int_equal(code_text_spell(" - ", 3, text), -1);
	assert_int_equal(code_text_spell("a\1b", 3, text), -1);
	assert_int_equal(code_text_spell("a\0b", 3, text), -1);
	assert_int_equal(code_text_spell("caf\xc3\xa9", 5, text), -1);
	assert_int_equal(
		code_text_spell("01234567890123456789012345678901234567890123456789012345678901234",
				65, text),
		-1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_pasted),
		cmocka_unit_test(test_refuses_forms),
		cmocka_unit_test(test_one_spelling),
		cmocka_unit_test(test_case_of_the_alphabet),
		cmocka_unit_test(test_same_and_overlapping),
		cmocka_unit_test(test_chance),
		cmocka_unit_test(test_spelling_of_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
