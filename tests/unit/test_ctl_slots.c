#include "ctl/output.h"
#include "ctl/slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01JD8Z6Q4T1M0V5K9X3B7C2N8R"

static int add(struct slots *slots, int64_t user, const char *records)
{
	return slots_add_records(slots, user, records, strlen(records));
}

static void test_reads_records(void **state)
{
	struct slots slots = { 0 };
	char batch[ULID_SIZE];

	(void)state;
	assert_int_equal(add(&slots, 42, "2:" BATCH ":0:a:b c\n1:" BATCH ":255:\n100:" BATCH ":7:k"), 0);
	slots_sort(&slots);
	assert_int_equal(slots.n, 3);
	assert_int_equal(slots.list[0].number, 1);
	assert_int_equal(slots.list[0].index, 255);
	assert_int_equal(slots.list[1].number, 2);
	assert_int_equal(slots.list[2].number, 100);
	assert_int_equal(slots.list[2].user, 42);
	assert_string_equal(ulid_format(&slots.list[1].batch, batch), BATCH);
	slots_fini(&slots);
}

static void test_refuses_records(void **state)
{
	static const char *const wrong[] = {
		"",
		"1",
		"1:" BATCH,
		"1:" BATCH ":0",
		"0:" BATCH ":0:",
		"01:" BATCH ":0:",
		"101:" BATCH ":0:",
		"1:" BATCH ":256:",
		"1:" BATCH ":00:",
		"1:" BATCH "X:0:",
		"1:81JD8Z6Q4T1M0V5K9X3B7C2N8R:0:",
		"1:" BATCH ":0:\n",
		"\n1:" BATCH ":0:",
		"1:" BATCH ":0:\x7f",
		"1:" BATCH ":0:k\njunk",
	};
	struct slots slots = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (add(&slots, 1, wrong[i]) == 0)
			fail_msg("taken: \"%s\"", wrong[i]);
	assert_int_equal(slots.n, 0);
	slots_fini(&slots);
}

/* HSCAN may tell a field twice; one slot with two receives is something else. */
static void test_sort_keeps_each_once(void **state)
{
	struct slots slots = { 0 };

	(void)state;
	assert_int_equal(add(&slots, 2, "1:" BATCH ":0:"), 0);
	assert_int_equal(add(&slots, 1, "1:" BATCH ":1:"), 0);
	assert_int_equal(add(&slots, 2, "1:" BATCH ":0:"), 0);
	assert_int_equal(add(&slots, 1, "1:" BATCH ":9:"), 0);
	slots_sort(&slots);
	assert_int_equal(slots.n, 3);
	assert_int_equal(slots.list[0].user, 1);
	assert_int_equal(slots.list[1].user, 1);
	assert_int_equal(slots.list[2].user, 2);
	assert_false(slot_same_receive(&slots.list[0], &slots.list[1]));
	slots_fini(&slots);
}

static void test_grouped(void **state)
{
	char out[OUTPUT_GROUPED_SIZE];

	(void)state;
	assert_string_equal(output_grouped(0, out), "0");
	assert_string_equal(output_grouped(999, out), "999");
	assert_string_equal(output_grouped(1000, out), "1,000");
	assert_string_equal(output_grouped(-123456, out), "-123,456");
	assert_string_equal(output_grouped(INT64_MIN, out), "-9,223,372,036,854,775,808");
}

/* Numbers that a double would change, or write with an exponent. */
static void test_numbers_are_exact(void **state)
{
	cJSON *object = output_object();
	char *text;

	(void)state;
	output_number(object, "a", INT64_MAX);
	output_number(object, "b", 1000000000000000);
	output_text(object, "c", "");
	text = cJSON_PrintUnformatted(object);
	assert_string_equal(text, "{\"a\":9223372036854775807,\"b\":1000000000000000,\"c\":null}");
	free(text);
	cJSON_Delete(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_records),   cmocka_unit_test(test_refuses_records),
		cmocka_unit_test(test_sort_keeps_each_once), cmocka_unit_test(test_grouped),
		cmocka_unit_test(test_numbers_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
