/* Cursors: written and read again they are the same place, and only for their user. */
#include "gateway/listen/request.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct user_id user_make(const char *text)
{
	struct user_id user;

	assert_int_equal(user_id_parse(&user, text, strlen(text)), 0);
	return user;
}

static int parse(const char *user_text, const char *text, struct coupon_cursor *cursor)
{
	const struct user_id user = user_make(user_text);

	return coupon_cursor_parse(cursor, &user, text, strlen(text));
}

static char *text_make(const char *user_text, const struct coupon_cursor *cursor,
		       char out[COUPON_CURSOR_SIZE])
{
	const struct user_id user = user_make(user_text);

	coupon_cursor_format(cursor, &user, out);
	assert_int_equal(strlen(out), COUPON_CURSOR_LEN);
	return out;
}

static const struct coupon_cursor places[] = {
	{ .at_us = 0, .coupon = 1, .slot = 1 },
	{ .at_us = 1700000000123456, .coupon = 1001, .slot = 2 },
	{ .at_us = 253402300799999999, .coupon = INT64_MAX - 1, .slot = 99 },
	{ .at_us = INT64_MAX, .coupon = INT64_MAX, .slot = 100 },
};

static void test_there_and_back(void **state)
{
	static const char *const users[] = { "4", "42", "auth0|65f1c2", "\"\\~!" };
	struct coupon_cursor again;
	char text[COUPON_CURSOR_SIZE];

	(void)state;
	for (size_t u = 0; u < 4; u++) {
		for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
			text_make(users[u], &places[i], text);
			assert_int_equal(parse(users[u], text, &again), 0);
			assert_true(again.at_us == places[i].at_us &&
				    again.coupon == places[i].coupon &&
				    again.slot == places[i].slot);
			for (size_t other = 0; other < 4; other++)
				assert_int_equal(parse(users[other], text, &again),
						 other == u ? 0 : -1);
		}
	}
}

/* It is kept by clients: the text of a place never changes while its version is 1. */
static void test_its_text(void **state)
{
	char text[COUPON_CURSOR_SIZE];

	(void)state;
	text_make("42", &places[1], text);
	assert_string_equal(text, "0100060a2418202240"
				  "00000000000003e9"
				  "0002"
				  "0e199985b6470a9e");
}

static void test_out_of_range(void **state)
{
	static const struct coupon_cursor wrong[] = {
		{ .at_us = -1, .coupon = 1, .slot = 1 },  { .at_us = 0, .coupon = 0, .slot = 1 },
		{ .at_us = 0, .coupon = -1, .slot = 1 },  { .at_us = 0, .coupon = 1, .slot = 0 },
		{ .at_us = 0, .coupon = 1, .slot = 101 },
	};
	struct coupon_cursor again;
	char text[COUPON_CURSOR_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(parse("42", text_make("42", &wrong[i], text), &again), -1);
}

/* Another digit at any place, a missing or a further one, and another spelling are refused. */
static void test_damaged(void **state)
{
	struct coupon_cursor again;
	char text[COUPON_CURSOR_SIZE], wrong[COUPON_CURSOR_SIZE + 1];

	(void)state;
	text_make("42", &places[1], text);
	for (size_t at = 0; at < COUPON_CURSOR_LEN; at++) {
		strcpy(wrong, text);
		for (int byte = 1; byte < 256; byte++) {
			wrong[at] = (char)byte;
			assert_int_equal(parse("42", wrong, &again),
					 wrong[at] == text[at] ? 0 : -1);
		}
	}
	for (size_t len = 0; len < COUPON_CURSOR_LEN; len++) {
		memcpy(wrong, text, len);
		wrong[len] = '\0';
		assert_int_equal(parse("42", wrong, &again), -1);
	}
	strcpy(wrong, text);
	strcat(wrong, "0");
	assert_int_equal(parse("42", wrong, &again), -1);
	strcpy(wrong, text);
	for (char *at = wrong; *at; at++)
		*at = (char)toupper((unsigned char)*at);
	assert_int_equal(parse("42", wrong, &again), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_its_text),
		cmocka_unit_test(test_out_of_range),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests_name("coupon_cursor", tests, NULL, NULL);
}
