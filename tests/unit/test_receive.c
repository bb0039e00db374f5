/* Receives: <coupon>.<user>.<batch>.<index> in one spelling, and what an idempotency key may be. */
#include "common/message/receive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01ARZ3NDEKTSV4RRFFQ69G5FAV"

static void test_round_trip(void **state)
{
	static const char *const texts[] = {
		"1.1." BATCH ".0",
		"1001.42." BATCH ".9",
		"1001.42." BATCH ".255",
		"9223372036854775807.9223372036854775807." BATCH ".100",
	};
	char out[RECEIVE_SIZE];
	struct receive receive;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(receive_parse(&receive, texts[i], strlen(texts[i])), 0);
		assert_int_equal(receive_format(&receive, out), strlen(texts[i]));
		assert_string_equal(out, texts[i]);
	}
	assert_true(receive.coupon == INT64_MAX && user_id_number(&receive.user) == INT64_MAX);
	assert_int_equal(receive.index, 100);
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"",
		".",
		"...",
		"1",
		"1.2",
		"1.2." BATCH,
		"1.2." BATCH ".",
		"1.2." BATCH ".256",
		"1.2." BATCH ".00",
		"1.2." BATCH ".01",
		"1.2." BATCH ".-1",
		"1.2." BATCH ".1.",
		"1.2." BATCH ".1.1",
		"0.2." BATCH ".1",
		"1.0." BATCH ".1",
		"01.2." BATCH ".1",
		"1.2.01arz3ndektsv4rrffq69g5fav.1",
		"1..2." BATCH ".1",
		" 1.2." BATCH ".1",
		"1.2." BATCH ".1 ",
		"9223372036854775808.2." BATCH ".1",
		"1.2." BATCH "A.1",
	};
	struct receive receive;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(receive_parse(&receive, texts[i], strlen(texts[i])), -1);
	assert_int_equal(receive_parse(&receive, "1.2." BATCH ".1\0", sizeof("1.2." BATCH ".1")),
			 -1);
}

static void test_keys(void **state)
{
	char key[RECEIVE_KEY_MAX + 1];

	(void)state;
	memset(key, 'k', sizeof(key));
	assert_true(receive_key_valid("k", 1));
	assert_true(receive_key_valid(" ~:\"\\", 5));
	assert_true(receive_key_valid(key, RECEIVE_KEY_MAX));
	assert_false(receive_key_valid(key, RECEIVE_KEY_MAX + 1));
	assert_false(receive_key_valid("", 0));
	for (int c = 0; c < 256; c++) {
		key[0] = (char)c;
		assert_int_equal(receive_key_valid(key, 3) != 0, c >= 0x20 && c <= 0x7e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests_name("receive", tests, NULL, NULL);
}
