/* Batch ids: one canonical spelling, the same 128 bits as PostgreSQL's uuid. */
#include "common/message/receive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_spelling(void **state)
{
	static const struct {
		const char *text;
		const char *uuid;
	} cases[] = {
		{ "00000000000000000000000000", "00000000-0000-0000-0000-000000000000" },
		{ "00000000000000000000000001", "00000000-0000-0000-0000-000000000001" },
		{ "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "ffffffff-ffff-ffff-ffff-ffffffffffff" },
		{ "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01563e3a-b5d3-d676-4c61-efb99302bd5b" },
	};
	char text[ULID_SIZE], uuid[ULID_UUID_SIZE];
	struct ulid ulid, back;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(ulid_parse(&ulid, cases[i].text, ULID_LEN), 0);
		assert_string_equal(ulid_format(&ulid, text), cases[i].text);
		assert_string_equal(ulid_to_uuid(&ulid, uuid), cases[i].uuid);
		assert_int_equal(ulid_from_uuid(&back, uuid), 0);
		assert_memory_equal(&ulid, &back, sizeof(ulid));
	}
}

/* Each single bit is preserved in every notation. */
static void test_each_bit(void **state)
{
	char text[ULID_SIZE], uuid[ULID_UUID_SIZE];

	(void)state;
	for (int bit = 0; bit < 128; bit++) {
		struct ulid ulid = { { 0 } }, back;

		ulid.bytes[bit / 8] = (uint8_t)(1u << (bit % 8));
		assert_int_equal(ulid_parse(&back, ulid_format(&ulid, text), ULID_LEN), 0);
		assert_memory_equal(&ulid, &back, sizeof(ulid));
		assert_int_equal(ulid_from_uuid(&back, ulid_to_uuid(&ulid, uuid)), 0);
		assert_memory_equal(&ulid, &back, sizeof(ulid));
	}
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"01ARZ3NDEKTSV4RRFFQ69G5FA",
		"01ARZ3NDEKTSV4RRFFQ69G5FAVV", /* length */
		"81ARZ3NDEKTSV4RRFFQ69G5FAV",
		"Z1ARZ3NDEKTSV4RRFFQ69G5FAV", /* beyond 128 bits */
		"01arz3ndektsv4rrffq69g5fav",
		"01ARZ3NDEKTSV4RRFFQ69G5FAI",
		"01ARZ3NDEKTSV4RRFFQ69G5FAL",
		"01ARZ3NDEKTSV4RRFFQ69G5FAO",
		"01ARZ3NDEKTSV4RRFFQ69G5FAU",
		"01ARZ3NDEKTSV4RRFFQ69G5FA-",
		" 1ARZ3NDEKTSV4RRFFQ69G5FAV",
	};
	static const char *const uuids[] = {
		"",
		"01563e3a-b5d3-d676-4c61-efb99302bd5",
		"01563e3a-b5d3-d676-4c61-efb99302bd5b0",
		"01563E3A-b5d3-d676-4c61-efb99302bd5b",
		"01563e3a0b5d3-d676-4c61-efb99302bd5b",
		"01563e3a-b5d3-d676-4c61-efb99302bd5g",
		"{1563e3a-b5d3-d676-4c61-efb99302bd5}",
	};
	struct ulid ulid;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(ulid_parse(&ulid, texts[i], strlen(texts[i])), -1);
	assert_int_equal(ulid_parse(&ulid, "01ARZ3NDEKTSV4RRFFQ69G5FA\0", ULID_LEN), -1);
	for (size_t i = 0; i < sizeof(uuids) / sizeof(uuids[0]); i++)
		assert_int_equal(ulid_from_uuid(&ulid, uuids[i]), -1);
}

static void test_new(void **state)
{
	struct ulid a, b;
	char text[ULID_SIZE];

	(void)state;
	ulid_new(&a, 1469918176385); /* the time in the specification's example */
	ulid_new(&b, 1469918176385);
	assert_memory_equal(ulid_format(&a, text), "01ARYZ6S41", 10);
	assert_memory_equal(a.bytes, b.bytes, 6);
	assert_memory_not_equal(a.bytes + 6, b.bytes + 6, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spelling),
		cmocka_unit_test(test_each_bit),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_new),
	};

	return cmocka_run_group_tests_name("ulid", tests, NULL, NULL);
}
