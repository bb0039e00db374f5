/* The arguments of a statement, byte by byte, and what the failures of statements mean. */
#include "common/clock.h"
#include "common/postgres/argument.h"
#include "common/postgres/postgres_session.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* One dimension, no NULLs, the element type, the number of elements, the first one's number. */
#define HEAD(type, n) "\0\0\0\1\0\0\0\0" type "\0\0\0" n "\0\0\0\1"

static void array_expect(struct postgres_array *array, const void *bytes, size_t size)
{
	const struct postgres_argument argument = postgres_array(array);
	char number[NUMBER_SIZE];
	int len, is_binary;
	const char *value = postgres_argument_value(&argument, number, &len, &is_binary);

	assert_true(is_binary);
	assert_int_equal(len, size - 1); /* a literal's NUL */
	assert_memory_equal(value, bytes, size - 1);
	postgres_array_fini(array);
}
#define EXPECT(array, literal) array_expect((array), literal, sizeof(literal))

static struct postgres_array numbers(enum postgres_type type, int64_t a, int64_t b)
{
	struct postgres_array array;

	postgres_array_init(&array, type);
	postgres_array_add_number(&array, a);
	postgres_array_add_number(&array, b);
	return array;
}

static void test_numbers(void **state)
{
	struct postgres_array int2 = numbers(POSTGRES_INT2, INT16_MAX, INT16_MIN);
	struct postgres_array int4 = numbers(POSTGRES_INT4, INT32_MAX, -1);
	struct postgres_array int8 = numbers(POSTGRES_INT8, 0x0102030405060708, INT64_MIN);

	(void)state;
	EXPECT(&int2, HEAD("\0\0\0\x15", "\2") "\0\0\0\2\x7f\xff\0\0\0\2\x80\0");
	EXPECT(&int4, HEAD("\0\0\0\x17", "\2") "\0\0\0\4\x7f\xff\xff\xff\0\0\0\4\xff\xff\xff\xff");
	EXPECT(&int8, HEAD("\0\0\0\x14", "\2") "\0\0\0\x8\1\2\3\4\5\6\7\x8"
					       "\0\0\0\x8\x80\0\0\0\0\0\0\0");
}

/* No text needs quotes, and none is read as NULL. */
static void test_texts(void **state)
{
	struct postgres_array array;

	(void)state;
	postgres_array_init(&array, POSTGRES_TEXT);
	postgres_array_add_text(&array, "", 0);
	postgres_array_add_text(&array, "{\"a\\,'b}", 8);
	postgres_array_add_text(&array, "NULL", 4);
	EXPECT(&array, HEAD("\0\0\0\x19", "\3") "\0\0\0\0\0\0\0\x8{\"a\\,'b}\0\0\0\4NULL");
}

static void test_uuids(void **state)
{
	const struct ulid ulid = { "0123456789abcdef" };
	struct postgres_array array;

	(void)state;
	postgres_array_init(&array, POSTGRES_UUID);
	postgres_array_add_uuid(&array, &ulid);
	EXPECT(&array, HEAD("\0\0\xb\x86", "\1") "\0\0\0\x10"
						 "0123456789abcdef");
}

static void test_empty_and_cleared(void **state)
{
	struct postgres_array array;

	(void)state;
	postgres_array_init(&array, POSTGRES_INT8);
	EXPECT(&array, HEAD("\0\0\0\x14", "\0"));
	postgres_array_add_number(&array, 7);
	postgres_array_clear(&array);
	assert_int_equal(array.n, 0);
	postgres_array_add_number(&array, 1);
	EXPECT(&array, HEAD("\0\0\0\x14", "\1") "\0\0\0\x8\0\0\0\0\0\0\0\1");
}

static void test_many(void **state)
{
	struct postgres_array array;

	(void)state;
	postgres_array_init(&array, POSTGRES_INT4);
	for (int64_t i = 0; i < 70000; i++)
		postgres_array_add_number(&array, i);
	assert_int_equal(array.n, 70000);
	assert_int_equal(array.len, 20 + 70000 * 8);
	assert_memory_equal(array.data + 12, "\0\1\x11\x70", 4);
	postgres_array_fini(&array);
	assert_null(array.data);
}

static void test_scalars(void **state)
{
	const struct postgres_argument arguments[] = { postgres_number(INT64_MIN),
						       postgres_text("it's"), postgres_text(NULL) };
	char number[NUMBER_SIZE];
	int len, is_binary;

	(void)state;
	assert_string_equal(postgres_argument_value(&arguments[0], number, &len, &is_binary),
			    "-9223372036854775808");
	assert_false(is_binary);
	assert_string_equal(postgres_argument_value(&arguments[1], number, &len, &is_binary),
			    "it's");
	assert_false(is_binary);
	assert_null(postgres_argument_value(&arguments[2], number, &len, &is_binary));
}

static void test_failures(void **state)
{
	static const struct {
		const char *sqlstate;
		enum postgres_failure failure;
		int of_coupon;
	} cases[] = {
		{ "55P03", POSTGRES_BLOCKED, 1 },   /* lock_not_available */
		{ "57014", POSTGRES_CANCELLED, 1 }, /* query_canceled */
		{ "22003", POSTGRES_REFUSED, 1 },   /* numeric_value_out_of_range */
		{ "22P02", POSTGRES_REFUSED, 1 },   /* invalid_text_representation */
		{ "23505", POSTGRES_REFUSED, 1 },   /* unique_violation */
		{ "23514", POSTGRES_REFUSED, 1 },   /* check_violation */
		{ "40001", POSTGRES_AGAIN, 1 },     /* serialization_failure */
		{ "40P01", POSTGRES_AGAIN, 1 },     /* deadlock_detected */
		{ "40003", POSTGRES_UNFIT, 0 },     /* statement_completion_unknown */
		{ "55006", POSTGRES_UNFIT, 0 },     /* object_in_use */
		{ "57P01", POSTGRES_UNFIT, 0 },     /* admin_shutdown */
		{ "57P03", POSTGRES_UNFIT, 0 },     /* cannot_connect_now */
		{ "53100", POSTGRES_UNFIT, 0 },     /* disk_full */
		{ "25006", POSTGRES_UNFIT, 0 },     /* read_only_sql_transaction */
		{ "42501", POSTGRES_UNFIT, 0 },     /* insufficient_privilege */
		{ "08006", POSTGRES_UNFIT, 0 },     /* connection_failure */
		{ "XX000", POSTGRES_UNFIT, 0 },     /* internal_error */
		{ "", POSTGRES_DOWN, 0 },           { NULL, POSTGRES_DOWN, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(postgres_classify(cases[i].sqlstate), cases[i].failure);
		assert_int_equal(postgres_of_coupon(cases[i].failure), cases[i].of_coupon);
	}
	assert_false(postgres_of_coupon(POSTGRES_OK));
}

/* What a check cannot show is unknown, whichever of the others is well. */
static void test_the_judge_of_commits(void **state)
{
	static const struct {
		struct postgres_commit commit;
		enum postgres_verdict verdict;
		const char *why;
	} cases[] = {
		{ { "1", "1", "", 0, 0 }, POSTGRES_SHOWN, "" },
		{ { "1", "1", "", 1, 1 }, POSTGRES_SHOWN, "" },
		{ { "1", "1", "", 1, 0 }, POSTGRES_AWAITED, "" },
		{ { "1", "2", "", 0, 0 }, POSTGRES_UNSHOWN, "read its settings again" },
		{ { "1", "2", "", 1, 1 }, POSTGRES_UNSHOWN, "read its settings again" },
		{ { "1", "", "", 0, 1 }, POSTGRES_UNSHOWN, "read its settings again" },
		{ { "1", "1", "it is empty", 0, 1 }, POSTGRES_UNSHOWN, "it is empty" },
		{ { "1", "1", "it is empty", 1, 1 }, POSTGRES_UNSHOWN, "it is empty" },
		{ { "1", "2", "it is empty", 1, 0 }, POSTGRES_UNSHOWN, "it is empty" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct postgres_commit commit = cases[i].commit;

		assert_int_equal(postgres_commit_judge(&commit), cases[i].verdict);
		assert_non_null(strstr(commit.why, cases[i].why));
	}
}

static void test_nothing_listens(void **state)
{
	const struct postgres_options options = { .url = "host=/nonexistent",
						  .connect_timeout_ms = 1000 };
	struct postgres *postgres = postgres_new(&options);

	(void)state;
	assert_int_equal(postgres_connect(postgres, 0), -1);
	assert_non_null(strstr(postgres_why(postgres), "/nonexistent"));
	assert_null(strchr(postgres_why_long(postgres), '\n'));
	assert_false(postgres_up(postgres));
	assert_int_equal(postgres_fd(postgres), -1);
	assert_int_equal(postgres_failure(postgres), POSTGRES_DOWN);
	postgres_free(postgres);
}

static void test_reconnects_after_a_pause(void **state)
{
	const struct postgres_options options = { .url = "host=/nonexistent",
						  .connect_timeout_ms = 1000,
						  .reconnects = 1 };
	struct postgres *postgres = postgres_new(&options);
	int64_t retry_ms;

	(void)state;
	assert_string_equal(postgres_why(postgres), "connecting");
	assert_int_equal(postgres_step(postgres, clock_monotonic_ms()), POSTGRES_LOST);
	retry_ms = postgres_deadline_ms(postgres);
	assert_in_range(retry_ms, clock_monotonic_ms(), clock_monotonic_ms() + 2000);
	assert_int_equal(postgres_step(postgres, retry_ms - 1), POSTGRES_NOTHING);
	assert_int_equal(postgres_connect(postgres, retry_ms - 1), -1);
	assert_int_equal(postgres_deadline_ms(postgres), retry_ms);
	assert_int_equal(postgres_step(postgres, retry_ms), POSTGRES_LOST);
	postgres_free(postgres);
}

/* A server that is busy with too many connections gets more time, not more attempts. */
static void test_an_attempt_after_a_late_one_has_more_time(void **state)
{
	static const int64_t limits_ms[] = { 1000, 2000, 4000, 8000, 8000 };
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int silent = socket(AF_INET, SOCK_STREAM, 0);
	char url[64];
	struct postgres_options options = { .url = url,
					    .connect_timeout_ms = 1000,
					    .reconnects = 1 };
	struct postgres *postgres;
	int64_t now_ms = clock_monotonic_ms();

	(void)state;
	assert_int_equal(bind(silent, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(silent, 16), 0);
	assert_int_equal(getsockname(silent, (struct sockaddr *)&address, &len), 0);
	snprintf(url, sizeof(url), "host=127.0.0.1 port=%d", ntohs(address.sin_port));
	postgres = postgres_new(&options);
	for (size_t i = 0; i < sizeof(limits_ms) / sizeof(limits_ms[0]); i++) {
		assert_int_equal(postgres_step(postgres, now_ms), POSTGRES_NOTHING);
		assert_int_equal(postgres_deadline_ms(postgres), now_ms + limits_ms[i]);
		assert_int_equal(postgres_step(postgres, now_ms + limits_ms[i]), POSTGRES_LOST);
		now_ms = postgres_deadline_ms(postgres); /* when the pause ends */
	}
	postgres_free(postgres);
	close(silent);
}

static void test_the_hosts_begin_with_another_one(void **state)
{
	static const struct {
		const char *list;
		size_t place;
		const char *rotated;
	} cases[] = {
		{ "a,b,c", 0, "a,b,c" }, { "a,b,c", 1, "b,c,a" }, { "a,b,c", 2, "c,a,b" },
		{ "a,b,c", 3, "a,b,c" }, { ",5433", 1, "5433," }, { "a,", 1, ",a" },
		{ "a", 1, NULL },        { "", 1, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *rotated = postgres_list_rotate(cases[i].list, cases[i].place);

		if (cases[i].rotated)
			assert_string_equal(rotated, cases[i].rotated);
		else
			assert_null(rotated);
		free(rotated);
	}
	assert_int_equal(postgres_url_hosts_n("postgresql://u:p@a:1,b,c/d"), 3);
	assert_int_equal(postgres_url_hosts_n("host=a dbname=d"), 1);
	assert_int_equal(postgres_url_hosts_n("hostaddr=127.0.0.1,127.0.0.2"), 2);
	assert_int_equal(postgres_url_hosts_n("dbname=d"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_uuids),
		cmocka_unit_test(test_empty_and_cleared),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_scalars),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_the_judge_of_commits),
		cmocka_unit_test(test_nothing_listens),
		cmocka_unit_test(test_reconnects_after_a_pause),
		cmocka_unit_test(test_an_attempt_after_a_late_one_has_more_time),
		cmocka_unit_test(test_the_hosts_begin_with_another_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
