/* Names of locks from templates. */
#include "lock/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TEMPLATE "lock:coupon:{coupon}:user:{user}"

static const char *name_of(const char *coupon, const char *user)
{
	static char out[LOCK_NAME_SIZE];
	char why[LOCK_NAME_WHY_SIZE];
	const struct lock_argument arguments[] = { { "coupon", coupon }, { "user", user } };

	assert_int_equal(lock_name_format(out, TEMPLATE, arguments, 2, why), 0);
	return out;
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(name_of("7", "42"), "lock:coupon:7:user:42");
	assert_string_equal(name_of("7", "auth0|65f1.c2-_~@x"),
			    "lock:coupon:7:user:auth0|65f1.c2-_~@x");
	assert_string_equal(name_of("7", "a:b{c}d%e/f g\n\xc3\xa9"),
			    "lock:coupon:7:user:a%3Ab%7Bc%7Dd%25e%2Ff%20g%0A%C3%A9");
	assert_string_equal(name_of("", ""), "lock:coupon::user:");
}

static void test_values_do_not_run_together(void **state)
{
	char first[LOCK_NAME_SIZE];

	(void)state;
	strcpy(first, name_of("1:user:2", "3"));
	assert_string_not_equal(first, name_of("1", "2:user:3"));
	strcpy(first, name_of("a%3A", "b"));
	assert_string_not_equal(first, name_of("a:", "b"));
}

static void refuse(const char *template, const char *words)
{
	const struct lock_argument arguments[] = { { "a", "1" } };
	char out[LOCK_NAME_SIZE], why[LOCK_NAME_WHY_SIZE];

	assert_int_equal(lock_name_format(out, template, arguments, 1, why), -1);
	assert_non_null(strstr(why, words));
}

static void test_refused(void **state)
{
	char template[LOCK_NAME_MAX + 4];

	(void)state;
	refuse("{b}{a}", "no argument {b}");
	refuse("x", "has no {a}");
	refuse("{a", "without a name and }");
	refuse("{}", "without a name and }");
	refuse("{{a}}", "without a name and }");
	refuse("{a}}", "} without {");
	memset(template, 'x', LOCK_NAME_MAX);
	strcpy(template + LOCK_NAME_MAX, "{a}");
	refuse(template, "has 201 bytes");
}

static void test_longest(void **state)
{
	char value[LOCK_NAME_MAX + 1], out[LOCK_NAME_SIZE], why[LOCK_NAME_WHY_SIZE];

	(void)state;
	memset(value, 'x', LOCK_NAME_MAX);
	value[LOCK_NAME_MAX] = '\0';
	assert_int_equal(lock_name_format(out, "{v}", &(struct lock_argument){ "v", value }, 1,
					  why),
			 0);
	assert_string_equal(out, value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_values_do_not_run_together),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_longest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
