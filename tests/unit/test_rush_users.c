/* Which user rush asks for next. */
#include "rush/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MANY 200000

static const char *text_of(const struct rush_users *users, uint32_t i)
{
	static struct user_id user;

	user = rush_users_id(users, i);
	assert_int_equal(user.len, strlen(user.text));
	assert_in_range(user.len, 1, RUSH_USER_MAX);
	return user.text;
}

static void test_in_sequence(void **state)
{
	struct rush_users users = { .n = 1000, .first = 9 };

	(void)state;
	assert_string_equal(text_of(&users, 0), "9");
	assert_string_equal(text_of(&users, 1), "10");
	users.first = INT64_MAX - 999;
	assert_string_equal(text_of(&users, 999), "9223372036854775807");
	users.form = RUSH_UUID;
	users.first = 1001;
	assert_string_equal(text_of(&users, 0), "00000000-0000-4000-8000-0000000003e9");
	assert_string_equal(text_of(&users, 1), "00000000-0000-4000-8000-0000000003ea");
	users.first = RUSH_NUMBER_MAX - 999;
	assert_string_equal(text_of(&users, 999), "00000000-0000-4000-bfff-ffffffffffff");
}

static int text_compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx, y one of 89ab */
static void uuid_check(const char *text)
{
	static const char form[] = "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx";

	assert_int_equal(strlen(text), sizeof(form) - 1);
	for (size_t i = 0; form[i]; i++)
		switch (form[i]) {
		case 'x':
			assert_non_null(strchr("0123456789abcdef", text[i]));
			break;
		case 'y':
			assert_non_null(strchr("89ab", text[i]));
			break;
		default:
			assert_int_equal(text[i], form[i]);
		}
}

static void distinct_check(const struct rush_users *users)
{
	char(*texts)[RUSH_USER_MAX + 1] = calloc(users->n, sizeof(*texts));

	assert_non_null(texts);
	for (uint32_t i = 0; i < users->n; i++) {
		strcpy(texts[i], text_of(users, i));
		if (users->form == RUSH_UUID)
			uuid_check(texts[i]);
		else
			assert_in_range(strtoull(texts[i], NULL, 10), 1, UINT64_C(1) << 62);
	}
	qsort(texts, users->n, sizeof(*texts), text_compare);
	for (uint32_t i = 1; i < users->n; i++)
		assert_string_not_equal(texts[i - 1], texts[i]);
	free(texts);
}

static void test_distinct(void **state)
{
	static const int64_t seeds[] = { 0, 1, INT64_C(9007199254740991) };

	(void)state;
	for (size_t s = 0; s < sizeof(seeds) / sizeof(seeds[0]); s++)
		for (int form = RUSH_INT; form <= RUSH_UUID; form++) {
			struct rush_users users = { .n = MANY,
						    .first = 1,
						    .form = (enum rush_form)form,
						    .seeded = 1,
						    .seed = seeds[s] };

			distinct_check(&users);
			users.first = RUSH_NUMBER_MAX - MANY + 1;
			distinct_check(&users);
		}
}

/* The ids of a seed stay what they are: a rush can be repeated with a later version. */
static void test_same_seed(void **state)
{
	struct rush_users users = { .n = 1001, .first = 1, .seeded = 1, .seed = 7 };

	(void)state;
	assert_string_equal(text_of(&users, 0), "693682003860555215");
	assert_string_equal(text_of(&users, 1), "3106116732800243212");
	assert_string_equal(text_of(&users, 1000), "2090231180005980176");
	users.form = RUSH_UUID;
	assert_string_equal(text_of(&users, 0), "b6461db3-8cfc-42f0-89a0-741b733085ce");
	assert_string_equal(text_of(&users, 1), "1f4d72bf-d16a-4321-ab1b-24b62974960b");
	assert_string_equal(text_of(&users, 1000), "48ab021f-3a19-4184-9d01-fe2f06b3b80f");
}

/* A number has one id, wherever the range begins: two ranges of a seed have no id in common. */
static void test_ranges_of_a_seed(void **state)
{
	struct rush_users one = { .n = 1000, .first = 1, .seeded = 1, .seed = 7 }, other = one;

	(void)state;
	other.first = 501;
	for (uint32_t i = 0; i < 500; i++) {
		struct user_id a = rush_users_id(&one, 500 + i), b = rush_users_id(&other, i);

		assert_true(user_id_same(&a, &b));
	}
}

/* Neighbours differ in all parts of the id, and ids are evenly spread. */
static void test_spread(void **state)
{
	struct rush_users users = { .n = 16000, .first = 1, .seeded = 1, .seed = 3 };
	uint32_t ints[16] = { 0 }, firsts[16] = { 0 }, lasts[16] = { 0 };

	(void)state;
	for (uint32_t i = 0; i < users.n; i++) {
		const char *text, digits[] = "0123456789abcdef";

		users.form = RUSH_INT;
		ints[(strtoull(text_of(&users, i), NULL, 10) - 1) >> 58]++;
		users.form = RUSH_UUID;
		text = text_of(&users, i);
		firsts[strchr(digits, text[0]) - digits]++;
		lasts[strchr(digits, text[35]) - digits]++;
	}
	for (int i = 0; i < 16; i++) {
		assert_in_range(ints[i], 800, 1200);
		assert_in_range(firsts[i], 800, 1200);
		assert_in_range(lasts[i], 800, 1200);
	}
}

/*
 * Every choice is about as frequent, whether users are in sequence or not, and neighbours differ.
 * The choices of a seed stay what they are, as its ids do.
 */
static void test_choices(void **state)
{
	struct rush_users users = { .n = 100000, .first = 1 };
	uint32_t counts[10], same;

	(void)state;
	assert_int_equal(rush_users_choice(&users, 5, 1), 0);
	for (int seed = 0; seed < 3; seed++) {
		users.seeded = seed > 0;
		users.seed = seed;
		memset(counts, 0, sizeof(counts));
		same = 0;
		for (uint32_t i = 0; i < users.n; i++) {
			uint32_t choice = rush_users_choice(&users, i, 10);

			assert_in_range(choice, 0, 9);
			counts[choice]++;
			same += i > 0 && choice == rush_users_choice(&users, i - 1, 10);
		}
		for (int i = 0; i < 10; i++)
			assert_in_range(counts[i], 9500, 10500);
		assert_in_range(same, 9500, 10500);
	}
	users = (struct rush_users){ .n = 3, .first = 1, .seeded = 1, .seed = 7 };
	assert_int_equal(rush_users_choice(&users, 0, 10000), 5233);
	assert_int_equal(rush_users_choice(&users, 1, 10000), 1360);
	users.first = 2;
	assert_int_equal(rush_users_choice(&users, 0, 10000), 1360);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_sequence), cmocka_unit_test(test_distinct),
		cmocka_unit_test(test_same_seed),   cmocka_unit_test(test_ranges_of_a_seed),
		cmocka_unit_test(test_spread),      cmocka_unit_test(test_choices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
