/* The slots of users in both stores, as couponctl compares them. */
#include "ctl/audit/audit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BATCH "01JD8Z6Q4T1M0V5K9X3B7C2N8R"

static redisReply text_reply(const char *text)
{
	return (redisReply){ .type = REDIS_REPLY_STRING,
			     .str = (char *)(uintptr_t)text,
			     .len = strlen(text) };
}

static int add(struct slots *slots, int64_t user, const char *records)
{
	char user_text[NUMBER_SIZE];
	redisReply user_reply = text_reply(number_text(user, user_text)),
		   reply = text_reply(records);
	size_t before = slots->n;
	int rc = slots_add_user(slots, &user_reply, &reply);

	if (rc)
		slots->n = before;
	return rc;
}

static void test_reads_records(void **state)
{
	struct slots slots = { 0 };
	char batch[ULID_SIZE];

	(void)state;
	assert_int_equal(add(&slots, 42,
			     "2:" BATCH ":0:a:b c\n1:" BATCH ":255:\n100:" BATCH ":7:k"),
			 0);
	slots_sort(&slots);
	assert_int_equal(slots.n, 3);
	assert_int_equal(slots.list[0].number, 1);
	assert_int_equal(slots.list[0].index, 255);
	assert_int_equal(slots.list[1].number, 2);
	assert_int_equal(slots.list[2].number, 100);
	assert_string_equal(slots.list[2].user.text, "42");
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
		"1:" BATCH ":0:k\n1:" BATCH ":1:",
	};
	struct slots slots = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (add(&slots, 1, wrong[i]) == 0)
			fail_msg("taken: \"%s\"", wrong[i]);
	assert_int_equal(slots.n, 0);
	slots_fini(&slots);
}

/* HSCAN may return a field twice; one slot with two receives is another case. */
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
	assert_string_equal(slots.list[0].user.text, "1");
	assert_string_equal(slots.list[1].user.text, "1");
	assert_string_equal(slots.list[2].user.text, "2");
	assert_false(slot_same_receive(&slots.list[0], &slots.list[1]));
	slots_fini(&slots);
}

static int add_text(struct slots *slots, const char *user, const char *records)
{
	redisReply user_reply = text_reply(user), reply = text_reply(records);

	return slots_add_user(slots, &user_reply, &reply);
}

/* Byte by byte, as the collation "C" of PostgreSQL orders them. */
static void test_sort_by_any_user(void **state)
{
	static const char *const sorted[] = { "!",   "\"",  "%s",  "042", "10", "2",
					      "42",  "420", "42:", "A",   "\\", "a",
					      "a.b", "aa",  "{\"", "|",   "~",  "~~" };
	size_t n = sizeof(sorted) / sizeof(sorted[0]);
	struct slots slots = { 0 };
	char text[RECEIVE_SIZE];

	(void)state;
	for (size_t i = n; i-- > 0;) {
		assert_int_equal(add_text(&slots, sorted[i], "1:" BATCH ":0:"), 0);
		assert_int_equal(add_text(&slots, sorted[i], "1:" BATCH ":0:"), 0);
	}
	slots_sort(&slots);
	assert_int_equal(slots.n, n);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(slots.list[i].user.text, sorted[i]);
	assert_string_equal(slot_receive_format(&slots.list[12], 7, text), "7.a.b." BATCH ".0");
	slots_fini(&slots);
}

static enum slot_found look_up(const struct slot *wanted, const char *key, const char *records)
{
	redisReply reply = text_reply(records);

	return slot_look_up(wanted, key, &reply);
}

static void test_look_up(void **state)
{
	struct slot wanted = { .user = user_id_of_number(42), .number = 2, .index = 7 };
	const char *records = "1:" BATCH ":0:a\n2:" BATCH ":7:key\n3:" BATCH ":9:";

	(void)state;
	assert_int_equal(ulid_parse(&wanted.batch, BATCH, ULID_LEN), 0);
	assert_int_equal(look_up(&wanted, "key", records), SLOT_SAME);
	assert_int_equal(look_up(&wanted, NULL, records), SLOT_SAME);
	assert_int_equal(look_up(&wanted, "", records), SLOT_OTHER_KEY);
	assert_int_equal(look_up(&wanted, "ke", records), SLOT_OTHER_KEY);
	wanted.index = 8;
	assert_int_equal(look_up(&wanted, "key", records), SLOT_OTHER);
	wanted.number = 4;
	assert_int_equal(look_up(&wanted, NULL, records), SLOT_NONE);
	assert_int_equal(look_up(&wanted, NULL, "1:" BATCH ":0:\n"), SLOT_MALFORMED);
}

static void test_set(void **state)
{
	struct slot slot = { .user = user_id_of_number(1), .number = 1 };
	struct slot_set set = { .max = 5000 };

	(void)state;
	assert_false(slot_set_has(&set, &slot));
	for (int64_t user = 1; user <= 6000; user++) {
		slot.user = user_id_of_number(user);
		assert_int_equal(slot_set_add(&set, &slot), user <= 5000);
	}
	assert_int_equal(set.n, 5000);
	for (int64_t user = 1; user <= 6000; user++) {
		slot = (struct slot){ .user = user_id_of_number(user), .number = 1 };
		assert_int_equal(slot_set_has(&set, &slot), user <= 5000);
		slot.number = 2;
		assert_false(slot_set_has(&set, &slot));
		slot.number = 1;
		slot.index = 1;
		assert_false(slot_set_has(&set, &slot));
		slot.index = 0;
		slot.batch.bytes[15] = 1;
		assert_false(slot_set_has(&set, &slot));
	}
	slot_set_fini(&set);
}

/* Also users that differ only in their last byte, or in their length. */
static void test_set_of_any_user(void **state)
{
	struct slot slot = { .number = 1 };
	struct slot_set set = { .max = 5000 };
	char text[USER_ID_MAX];

	(void)state;
	memset(text, 'u', sizeof(text));
	for (size_t len = 1; len <= USER_ID_MAX; len++) {
		for (char c = '!'; c < '~'; c += 2) {
			text[len - 1] = c;
			assert_int_equal(user_id_parse(&slot.user, text, len), 0);
			assert_int_equal(slot_set_add(&set, &slot), 1);
		}
		text[len - 1] = 'u';
	}
	assert_int_equal(set.n, USER_ID_MAX * 47);
	for (size_t len = 1; len <= USER_ID_MAX; len++) {
		for (char c = '!'; c <= '~'; c++) {
			text[len - 1] = c;
			assert_int_equal(user_id_parse(&slot.user, text, len), 0);
			assert_int_equal(slot_set_has(&set, &slot), (c - '!') % 2 == 0);
		}
		text[len - 1] = 'u';
	}
	slot_set_fini(&set);
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
		cmocka_unit_test(test_reads_records),
		cmocka_unit_test(test_refuses_records),
		cmocka_unit_test(test_sort_keeps_each_once),
		cmocka_unit_test(test_look_up),
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_sort_by_any_user),
		cmocka_unit_test(test_set_of_any_user),
		cmocka_unit_test(test_grouped),
		cmocka_unit_test(test_numbers_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
