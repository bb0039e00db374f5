/* A user's records in Redis: those that issue.lua writes are read, and no others. */
#include "coupon/slot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01JD8Z6Q4T1M0V5K9X3B7C2N8R"
#define KEY_51 "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
#define KEY_255 KEY_51 KEY_51 KEY_51 KEY_51 KEY_51

static void test_reads_each(void **state)
{
	const char *text = "2:" BATCH ":0:a:b \"\\\n1:" BATCH ":255:\n100:" BATCH ":7:" KEY_255;
	struct slot record;

	(void)state;
	assert_int_equal(slot_next(&text, &record), 0);
	assert_int_equal(record.number, 2);
	assert_int_equal(record.key_len, 6);
	assert_memory_equal(record.tail, "a:b \"\\", 6);
	assert_int_equal(slot_next(&text, &record), 0);
	assert_int_equal(record.index, 255);
	assert_int_equal(record.key_len, 0);
	assert_int_equal(slot_next(&text, &record), 0);
	assert_int_equal(record.number, 100);
	assert_int_equal(record.key_len, 255);
	assert_null(text);
	assert_int_equal(slot_next(&text, &record), -1);
}

/* No other reader of the record checks it: PostgreSQL would refuse a whole query for it. */
static void test_a_key_that_is_none_is_unreadable(void **state)
{
	struct slot record;
	char records[64], *byte;

	(void)state;
	snprintf(records, sizeof(records), "1:%s:0:kXk", BATCH);
	byte = strrchr(records, 'X');
	for (int c = 1; c <= UINT8_MAX; c++) {
		const char *text = records;
		int wanted = (c >= ' ' && c <= '~') || c == '\n' ? 0 : -1;

		*byte = (char)c;
		if (slot_next(&text, &record) != wanted)
			fail_msg("byte 0x%02x", (unsigned)c);
		assert_true(wanted == 0 || text == records);
	}
}

static void test_stays_at_what_is_malformed(void **state)
{
	static const char *const wrong[] = {
		"",
		"1:" BATCH,
		"1:" BATCH ":0",
		"0:" BATCH ":0:",
		"01:" BATCH ":0:",
		"101:" BATCH ":0:",
		"1:" BATCH ":256:",
		"1:" BATCH ":00:",
		"1:8" BATCH ":0:",
		"1:" BATCH ":0:" KEY_255 "k",
		"1:" BATCH ":0:k\r",
		"1:" BATCH ":0:\xff",
		"1:" BATCH ":0:\x7f\n3:" BATCH ":0:",
	};
	struct slot record;
	char records[512];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *text = records;

		snprintf(records, sizeof(records), "2:%s:9:k\n%s", BATCH, wrong[i]);
		assert_int_equal(slot_next(&text, &record), 0);
		if (slot_next(&text, &record) == 0)
			fail_msg("taken: \"%s\"", wrong[i]);
		assert_non_null(text);
		assert_string_equal(text, wrong[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_each),
		cmocka_unit_test(test_a_key_that_is_none_is_unreadable),
		cmocka_unit_test(test_stays_at_what_is_malformed),
	};

	return cmocka_run_group_tests_name("user_records", tests, NULL, NULL);
}
