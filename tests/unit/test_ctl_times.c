/* The forms of times as people write them. */
#include "ctl/times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define EVENING_MS 1798135200000 /* 2026-12-24T18:00:00Z */
#define DAY_MS 1798070400000     /* 2026-12-24T00:00:00Z */

static void reads(const char *text, enum time_form form, int64_t wanted_ms)
{
	int64_t ms = -1;

	assert_int_equal(time_form(text, &ms), form);
	assert_int_equal(ms, wanted_ms);
}

static void test_reads(void **state)
{
	(void)state;
	reads("2026-12-24", TIME_DAY, DAY_MS);
	reads("2026-12-24T18:00", TIME_LOCAL, EVENING_MS);
	reads("2026-12-24 18:00", TIME_LOCAL, EVENING_MS);
	reads("2026-12-24t18:00:00", TIME_LOCAL, EVENING_MS);
	reads("2026-12-24T18:00:00.5", TIME_LOCAL, EVENING_MS + 500);
	reads("2026-12-24T18:00Z", TIME_INSTANT, EVENING_MS);
	reads("2026-12-24T18:00+01:00", TIME_INSTANT, EVENING_MS - 3600000);
	reads("2026-12-24T18:00:00.25-05:30", TIME_INSTANT, EVENING_MS + 19800250);
	reads("2028-02-29", TIME_DAY, 1835395200000);
}

static void test_refuses(void **state)
{
	static const char *const wrong[] = {
		"",
		"2026",
		"2026-12",
		"2026-12-2",
		"2026-12-24T",
		"2026-12-24Z",
		"2026-12-24+01:00",
		"2026-12-24T18",
		"2026-12-24T18:0",
		"2026-12-24T18:00:",
		"2026-12-24T18:00+1:00",
		"2026-12-24T18:00Z+01:00",
		"2026-12-24T24:00",
		"2026-12-24T18:60",
		"2027-02-29",
		"2026-13-01",
		"2026-00-10",
		"24.12.2026",
		"12/24/2026",
		"26-12-24",
		" 2026-12-24",
		"2026-12-24 ",
		"2026-12-24\n",
		"tomorrow",
		"2026-12-24T18:00:00.000000000000000000000000000000000000000Z",
	};
	int64_t ms;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(time_form(wrong[i], &ms), TIME_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
