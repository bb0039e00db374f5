/* Replies of the gateway as the client engine reads them, and the lines of a rush's plan. */
#include "rush/tally.h"
#include "rush/plan.h"
#include "client/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define RECEIVE "1001.42.01JD8Z6Q4T1M0V5K9X3B7C2N8R.0"

static void test_scans(void **state)
{
	static const struct {
		const char *line;
		int64_t request;
		int code;
		int names;
	} lines[] = {
		{ "{\"id\":0,\"code\":0,\"status\":\"accepted\",\"receive\":\"" RECEIVE
		  "\",\"slot\":1}",
		  0, 0, 1 },
		{ "{\"id\":7,\"code\":0,\"status\":\"issued\",\"receive\":\"" RECEIVE
		  "\",\"slot\":100}",
		  7, 0, 1 },
		{ "{\"id\":7,\"code\":0,\"status\":\"accepted\",\"coupon\":\"1001\","
		  "\"receive\":\"" RECEIVE "\",\"slot\":1}",
		  7, 0, 1 },
		{ "{\"id\":99999999,\"code\":0,\"status\":\"queued\",\"receive\":\"" RECEIVE
		  "\",\"slot\":1}",
		  99999999, 0, 1 },
		{ "{\"id\":3,\"code\":2,\"status\":\"out_of_stock\",\"message\":\"coupon 1001 is "
		  "sold out\"}",
		  3, 2, 0 },
		{ "{\"id\":3,\"code\":20,\"status\":\"busy\",\"message\":\"x\"}", 3, 20, 0 },
	};
	struct json_arena *arena = json_arena_new();

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct client_reply reply;
		size_t len = strlen(lines[i].line);

		assert_int_equal(client_reply_read(arena, lines[i].line, len, &reply), 0);
		assert_int_equal(reply.request, lines[i].request);
		assert_int_equal(reply.code, lines[i].code);
		assert_int_equal(reply.receive != NULL, lines[i].names);
		if (lines[i].names)
			assert_string_equal(reply.receive, RECEIVE);
	}
	json_arena_free(arena);
}

/* Another spelling of the same, and unknown members. */
static void test_other_spellings(void **state)
{
	static const char *const lines[] = {
		"{\"code\":0,\"id\":7,\"status\":\"accepted\",\"receive\":\"" RECEIVE
		"\",\"slot\":1}",
		"{\"id\":7, \"code\":0,\"status\":\"accepted\",\"receive\":\"" RECEIVE
		"\",\"slot\":1}",
		"{\"id\":7,\"code\":0,\"status\":\"accepted\",\"receive\":\"" RECEIVE
		"\",\"slot\":1,\"more\":true}",
		"{\"id\":7,\"code\":0,\"status\":\"accepted\",\"coupon\":1001,\"receive\":"
		"\"" RECEIVE "\",\"slot\":1}",
		"{\"id\":7,\"code\":0,\"status\":\"accepted\",\"coupon\":\"01\",\"receive\":"
		"\"" RECEIVE "\",\"slot\":1}",
		"{\"id\":7,\"code\":22,\"status\":\"unknown\",\"receive\":\"" RECEIVE
		"\",\"slot\":1,\"message\":\"x\"}",
		"{\"id\":7,\"code\":9,\"status\":\"rejected\",\"receive\":\"" RECEIVE
		"\",\"slot\":1,\"reason\":\"slot_taken\"}",
	};
	struct json_arena *arena = json_arena_new();

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct client_reply reply;

		assert_int_equal(client_reply_read(arena, lines[i], strlen(lines[i]), &reply), 0);
		assert_int_equal(reply.request, 7);
		assert_string_equal(reply.receive, RECEIVE);
	}
	json_arena_free(arena);
}

static void test_the_time_to_wait(void **state)
{
	static const struct {
		const char *line;
		int64_t wait_ms;
	} cases[] = {
		{ "{\"code\":23,\"status\":\"rate_limited\",\"retry_after_ms\":50}", 50 },
		{ "{\"code\":20,\"retry_after_ms\":3600000}", 3600000 },
		{ "{\"code\":23,\"retry_after_ms\":3600001}", 0 },
		{ "{\"code\":23,\"retry_after_ms\":-1}", 0 },
		{ "{\"code\":23,\"retry_after_ms\":\"50\"}", 0 },
		{ "{\"code\":23}", 0 },
	};
	struct json_arena *arena = json_arena_new();
	struct client_reply reply;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(client_reply_read(arena, cases[i].line, strlen(cases[i].line),
						   &reply),
				 0);
		assert_int_equal(reply.retry_after_ms, cases[i].wait_ms);
	}
	json_arena_free(arena);
}

/* Every beginning of a reply, and every byte of it replaced. */
static void test_broken_lines(void **state)
{
	const char *line = "{\"id\":12,\"code\":0,\"status\":\"accepted\",\"receive\":\"" RECEIVE
			   "\",\"slot\":1}";
	struct json_arena *arena = json_arena_new();
	struct client_reply reply;
	char copy[256];

	(void)state;
	for (size_t len = 0; len < strlen(line); len++)
		assert_int_equal(client_reply_read(arena, line, len, &reply), -1);
	for (size_t i = 0; i < strlen(line); i++) {
		strcpy(copy, line);
		copy[i] = '\x01';
		assert_int_equal(client_reply_read(arena, copy, strlen(copy), &reply), -1);
	}
	assert_int_equal(client_reply_read(arena, "[]", 2, &reply), -1);
	assert_int_equal(client_reply_read(arena, "{}", 2, &reply), -1);
	assert_int_equal(client_reply_read(arena, "{\"code\":20}", 11, &reply), 0);
	assert_int_equal(reply.request, -1);
	assert_int_equal(reply.retry_after_ms, 0);
	json_arena_free(arena);
}

static void test_plan_lines(void **state)
{
	struct rush_plan plan = { .users = { .n = 3, .first = 42 },
				  .requests_per_user = 2,
				  .requests_n = 6 };
	char line[RUSH_LINE_MAX + 1];

	(void)state;
	rush_coupons_add(&plan.coupons, 1001);
	line[rush_plan_line(&plan, 0, line)] = '\0';
	assert_string_equal(line,
			    "{\"id\":0,\"op\":\"issue\",\"coupon\":\"1001\",\"user\":\"42\"}\n");
	line[rush_plan_line(&plan, 3, line)] = '\0';
	assert_string_equal(line,
			    "{\"id\":3,\"op\":\"issue\",\"coupon\":\"1001\",\"user\":\"43\"}\n");
	plan.keys = 1;
	plan.ack = RUSH_ISSUED;
	line[rush_plan_line(&plan, 5, line)] = '\0';
	assert_string_equal(line, "{\"id\":5,\"op\":\"issue\",\"coupon\":\"1001\",\"user\":\"44\","
				  "\"key\":\"rush-44\","
				  "\"ack\":\"issued\"}\n");
	plan.ack = RUSH_ACCEPTED;
	plan.users.form = RUSH_UUID;
	line[rush_plan_line(&plan, 4, line)] = '\0';
	assert_string_equal(line, "{\"id\":4,\"op\":\"issue\",\"coupon\":\"1001\","
				  "\"user\":\"00000000-0000-4000-8000-00000000002c\","
				  "\"key\":\"rush-00000000-0000-4000-8000-00000000002c\"}\n");
	rush_plan_fini(&plan);
}

/* All requests of a user are for one coupon, which the users of a seed are spread over. */
static void test_plan_lines_of_many_coupons(void **state)
{
	struct rush_plan plan = { .users = { .n = 50, .first = 100, .seeded = 1, .seed = 3 },
				  .requests_per_user = 2,
				  .requests_n = 100 };
	char line[RUSH_LINE_MAX + 1], text[ID_SIZE];
	int seen[3] = { 0 };

	(void)state;
	for (int64_t id = 1; id <= 3; id++)
		rush_coupons_add(&plan.coupons, id * INT64_C(1790000000000000001));
	for (uint32_t i = 0; i < plan.requests_n; i++) {
		uint32_t coupon = rush_plan_coupon(&plan, i / 2);

		line[rush_plan_line(&plan, i, line)] = '\0';
		id_format(plan.coupons.list[coupon], text);
		assert_non_null(strstr(line, text));
		seen[coupon]++;
	}
	for (int i = 0; i < 3; i++)
		assert_in_range(seen[i], 15, 60);
	rush_plan_fini(&plan);
}

static void test_plan_longest_line_fits(void **state)
{
	struct rush_plan plan = { .users = { .n = 100000000, .form = RUSH_UUID },
				  .requests_per_user = 1,
				  .requests_n = 100000000,
				  .keys = 1,
				  .ack = RUSH_ACCEPTED };
	char line[2 * RUSH_LINE_MAX];

	(void)state;
	rush_coupons_add(&plan.coupons, INT64_MAX);
	for (int ack = RUSH_ACCEPTED; ack <= RUSH_ISSUED; ack++) {
		plan.ack = (enum rush_ack)ack;
		assert_in_range(rush_plan_line(&plan, 99999999, line), 1, RUSH_LINE_MAX);
	}
	rush_plan_fini(&plan);
}

static void test_plan_due(void **state)
{
	struct rush_plan plan = { .rate = 3 };

	(void)state;
	assert_int_equal(rush_plan_due_us(&plan, 0), 0);
	assert_int_equal(rush_plan_due_us(&plan, 1), 333333);
	assert_int_equal(rush_plan_due_us(&plan, 99999999), 33333333000000);
}

static void test_percentiles(void **state)
{
	int64_t values[1000] = { 0 };

	(void)state;
	assert_int_equal(rush_percentile(values, 0, 5000), 0);
	for (int i = 0; i < 1000; i++)
		values[i] = i + 1;
	assert_int_equal(rush_percentile(values, 1000, 5000), 500);
	assert_int_equal(rush_percentile(values, 1000, 9000), 900);
	assert_int_equal(rush_percentile(values, 1000, 9990), 999);
	assert_int_equal(rush_percentile(values, 1000, 10000), 1000);
	assert_int_equal(rush_percentile(values, 1, 5000), 1);
	assert_int_equal(rush_percentile(values, 3, 5000), 2);
	assert_int_equal(rush_percentile(values, 2, 5000), 1);
	assert_int_equal(rush_percentile(values, 99, 9900), 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scans),
		cmocka_unit_test(test_other_spellings),
		cmocka_unit_test(test_the_time_to_wait),
		cmocka_unit_test(test_broken_lines),
		cmocka_unit_test(test_plan_lines),
		cmocka_unit_test(test_plan_lines_of_many_coupons),
		cmocka_unit_test(test_plan_longest_line_fits),
		cmocka_unit_test(test_plan_due),
		cmocka_unit_test(test_percentiles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
