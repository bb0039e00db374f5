/* Targets of requests: which operation a path is, its user, and what becomes of a query. */
#include "gateway/listen/http_value.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct http_request request;

static int parse(const char *text, struct http_target *target)
{
	char bytes[512];
	int len = snprintf(bytes, sizeof(bytes), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", text);

	http_request_free(&request, 0);
	http_request_init(&request, 64);
	http_request_feed(&request, bytes, (size_t)len);
	assert_true(request.complete);
	return http_target_parse(&request, target);
}

static enum request_op op_of(const char *text)
{
	struct http_target target;

	assert_int_equal(parse(text, &target), 0);
	return http_target_op(&target);
}

static void test_operations(void **state)
{
	(void)state;
	assert_int_equal(op_of("/v1/issue"), OP_ISSUE);
	assert_int_equal(op_of("/v1/coupons?user=1#x"), OP_COUPONS);
	assert_int_equal(op_of("http://y:80/v1/ping"), OP_PING);
	assert_string_equal(request.texts[TEXT_HOST].bytes, "y:80");
	assert_int_equal(op_of("/v1/users/42/coupons"), OP_COUPONS);
	assert_int_equal(op_of("/v1/users/a%2Fb/coupons?limit=1"), OP_COUPONS);
	assert_int_equal(op_of("*"), OP_COUNT);
	assert_int_equal(op_of("/"), OP_COUNT);
	assert_int_equal(op_of("/v1/"), OP_COUNT);
	assert_int_equal(op_of("/v1/users"), OP_COUNT);
	assert_int_equal(op_of("/v1/users/42"), OP_COUNT);
	assert_int_equal(op_of("/v1/users/42/"), OP_COUNT);
	assert_int_equal(op_of("/v1/users/42/coupon"), OP_COUNT);
	assert_int_equal(op_of("/v1/users/42/coupons/"), OP_COUNT);
	assert_int_equal(op_of("/v1/users/a/b/coupons"), OP_COUNT);
	assert_int_equal(op_of("/v1/users/42%2Fcoupons"), OP_COUNT);
	assert_int_equal(op_of("/v1/Users/42/coupons"), OP_COUNT);
	assert_int_equal(op_of("/v1/issue/42/coupons"), OP_COUNT);
}

static void test_a_host_in_the_target_is_of_this_request_only(void **state)
{
	static const char old[] = "GET http://y/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
	static const char next[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	struct http_target target;

	(void)state;
	http_request_free(&request, 0);
	http_request_init(&request, 64);
	http_request_feed(&request, old, sizeof(old) - 1);
	assert_int_equal(http_target_parse(&request, &target), 0);
	assert_string_equal(request.texts[TEXT_HOST].bytes, "y");
	http_request_reset(&request);
	http_request_feed(&request, next, sizeof(next) - 1);
	assert_true(request.complete);
	assert_string_equal(request.texts[TEXT_HOST].bytes, "x");
}

/* The text is cut once. */
static void test_a_request_that_is_handled_again(void **state)
{
	struct http_target target;

	(void)state;
	assert_int_equal(parse("http://y:80/v1/status?coupon=1&user=2", &target), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(http_target_parse(&request, &target), 0);
		assert_int_equal(http_target_op(&target), OP_STATUS);
		assert_string_equal(target.query, "coupon=1&user=2");
		assert_string_equal(request.texts[TEXT_HOST].bytes, "y:80");
	}
}

static void expect_user(const char *segment, const char *wanted)
{
	char text[256], why[USER_ID_WHY_SIZE];
	struct http_target target;
	struct user_id user;

	snprintf(text, sizeof(text), "/v1/users/%s/coupons", segment);
	assert_int_equal(parse(text, &target), 0);
	assert_int_equal(http_target_op(&target), OP_COUPONS);
	assert_int_equal(http_target_user(&target, &user, why), 0);
	assert_string_equal(user.text, wanted);
	assert_int_equal(user.len, strlen(wanted));
}

static void expect_no_user(const char *segment, const char *wanted)
{
	char text[512], why[USER_ID_WHY_SIZE];
	struct http_target target;
	struct user_id user;

	snprintf(text, sizeof(text), "/v1/users/%s/coupons", segment);
	assert_int_equal(parse(text, &target), 0);
	assert_int_equal(http_target_op(&target), OP_COUPONS);
	assert_int_equal(http_target_user(&target, &user, why), -1);
	assert_non_null(strstr(why, wanted));
}

#define TEN "0123456789"
#define SIXTY TEN TEN TEN TEN TEN TEN

static void test_users(void **state)
{
	(void)state;
	expect_user("42", "42");
	expect_user("auth0%7C65f1c2", "auth0|65f1c2");
	expect_user("auth0|65f1c2", "auth0|65f1c2");
	expect_user("a%2Fb%2f", "a/b/");
	expect_user("%252F", "%2F");
	expect_user("a+b", "a+b");
	expect_user("%3F%23%25", "?#%");
	expect_user("...", "...");
	expect_user(".a", ".a");
	expect_user(SIXTY "%7e%7e%7e%7e", SIXTY "~~~~");
	expect_no_user("", "has 0 bytes");
	expect_no_user(SIXTY "abcde", "has 65 bytes");
	expect_no_user(SIXTY SIXTY SIXTY, "percent-encoded");
	expect_no_user("a%20b", "byte 2 is not allowed");
	expect_no_user("%C3%BC", "byte 1 is not allowed");
	expect_no_user("42%00", "percent-encoded");
	expect_no_user("a%2", "percent-encoded");
	expect_no_user(".", "cannot be a segment");
	expect_no_user("..", "cannot be a segment");
	expect_no_user("%2E%2e", "cannot be a segment");
}

static void expect_object(const char *query, const char *user, const char *wanted)
{
	struct user_id id;
	char *text;

	assert_null(http_query_fault(query));
	assert_true(!user || user_id_parse(&id, user, strlen(user)) == 0);
	text = http_query_object(query, user ? "user" : NULL, user ? id.text : NULL);
	assert_string_equal(text, wanted);
	free(text);
}

static void test_queries(void **state)
{
	(void)state;
	expect_object("", NULL, "{}");
	expect_object("coupon=1&user=a%7Cb", NULL, "{\"coupon\":\"1\",\"user\":\"a|b\"}");
	expect_object("limit=5", "42", "{\"user\":\"42\",\"limit\":\"5\"}");
	/* Twice the same member: the object is refused. */
	expect_object("user=43", "42", "{\"user\":\"42\",\"user\":\"43\"}");
	assert_string_equal(http_query_fault("a=%41%x"), "%x");
	assert_string_equal(http_query_fault("a=1%00x"), "%00x");
	assert_null(http_query_object("=", NULL, NULL));
}

static int teardown(void **state)
{
	(void)state;
	http_request_free(&request, 0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_a_host_in_the_target_is_of_this_request_only),
		cmocka_unit_test(test_a_request_that_is_handled_again),
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_queries),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
