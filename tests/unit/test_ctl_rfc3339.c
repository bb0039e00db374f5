/* Times that operators write. */
#include "common/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int64_t parsed(const char *text)
{
	int64_t wall_ms;

	assert_int_equal(rfc3339_parse(text, &wall_ms), 0);
	return wall_ms;
}

static void test_reads(void **state)
{
	(void)state;
	assert_int_equal(parsed("1970-01-01T00:00:00Z"), 0);
	assert_int_equal(parsed("1970-01-01t00:00:01z"), 1000);
	assert_int_equal(parsed("9999-12-31T23:59:59.999Z"), 253402300799999);
	assert_int_equal(parsed("9999-12-31T23:59:59+01:00"), 253402297199000);
	assert_int_equal(parsed("1970-01-01 00:00:00.5Z"), 500);
	assert_int_equal(parsed("1970-01-01T00:00:00.123999Z"), 123);
	assert_int_equal(parsed("1969-12-31T23:59:59.999Z"), -1);
	assert_int_equal(parsed("1970-01-01T01:00:00+01:00"), 0);
	assert_int_equal(parsed("1969-12-31T16:30:00-07:30"), 0);
	assert_int_equal(parsed("2000-02-29T00:00:00Z"), 951782400000);
	assert_int_equal(parsed("2026-11-21T12:00:00Z"), 1795262400000);
	assert_int_equal(parsed("2016-12-31T23:59:60Z"), parsed("2017-01-01T00:00:00Z"));
}

static void test_refuses(void **state)
{
	static const char *const wrong[] = {
		"",
		"2026-11-21",
		"2026-11-21T12:00:00",
		"2026-11-21T12:00Z",
		"2026-11-21T12:00:00 Z",
		"2026-11-21T12:00:00Zx",
		"2026-11-21T12:00:00.Z",
		"2026-11-21T24:00:00Z",
		"2026-11-21T12:60:00Z",
		"2026-11-21T12:00:61Z",
		"2026-11-31T12:00:00Z",
		"2026-02-29T12:00:00Z",
		"1900-02-29T12:00:00Z",
		"2026-13-01T12:00:00Z",
		"2026-00-01T12:00:00Z",
		"2026-01-00T12:00:00Z",
		"2026-1-01T12:00:00Z",
		"+026-01-01T12:00:00Z",
		"2026-11-21T12:00:00+24:00",
		"2026-11-21T12:00:00+01:60",
		"2026-11-21T12:00:00+0100",
		"2026-11-21T12:00:00+01",
		"1795262400",
	};
	int64_t wall_ms;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (rfc3339_parse(wrong[i], &wall_ms) == 0)
			fail_msg("taken: \"%s\"", wrong[i]);
}

/* Every day of 500 years, through what clock_rfc3339() writes. */
static void test_there_and_back(void **state)
{
	char text[CLOCK_RFC3339_SIZE];

	(void)state;
	for (int64_t day = 0; day < 500 * 366; day++) {
		int64_t wall_ms = day * 86400000 + day * 7919 % 86400000;

		assert_int_equal(parsed(clock_rfc3339(wall_ms, text)), wall_ms);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_there_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
