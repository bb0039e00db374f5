/* Replies of the gateway over HTTP, in one piece and cut anywhere. */
#include "client/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST 64
#define OK "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
#define NEXT "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"

/*
 * Feeds the bytes up to `cut` and then the others, each from heap memory of its own, as long as the
 * reply is not complete. Returns how many were taken, or -1.
 */
static long feed(struct http_response *reply, const char *bytes, size_t len, size_t cut)
{
	long taken = 0;

	for (int part = 0; part < 2 && taken >= 0; part++) {
		size_t at = part ? cut : 0, n = part ? len - cut : cut;
		char *copy = malloc(n + 1);
		long one = 0;

		assert_non_null(copy);
		memcpy(copy, bytes + at, n);
		if (n > 0 && !reply->is_complete)
			one = http_response_feed(reply, copy, n);
		taken = one < 0 ? -1 : taken + one;
		free(copy);
	}
	return taken;
}

/* The reply, before another one; its body without the end of its line. */
static void expect(const char *text, int status, const char *body)
{
	char bytes[1024];
	size_t len = (size_t)snprintf(bytes, sizeof(bytes), "%s%s", text, NEXT);
	struct http_response reply = { 0 };

	reply.most = MOST;
	http_response_reset(&reply);
	for (size_t cut = 0; cut <= strlen(text); cut++) {
		assert_int_equal(feed(&reply, bytes, len, cut), strlen(text));
		assert_true(reply.is_complete);
		assert_int_equal(reply.parser.status_code, status);
		assert_int_equal(http_response_text_len(&reply), strlen(body));
		assert_memory_equal(reply.body, body, strlen(body));
		http_response_reset(&reply);
		assert_int_equal(feed(&reply, NEXT, strlen(NEXT), 0), strlen(NEXT));
		assert_int_equal(reply.parser.status_code, 503);
		http_response_reset(&reply);
	}
	free(reply.body);
}

static void test_replies(void **state)
{
	(void)state;
	expect(OK "Content-Length: 11\r\n\r\n{\"code\":0}\n", 200, "{\"code\":0}");
	expect("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\nConnection: close\r\n"
	       "Retry-After: 1\r\n\r\n{}",
	       429, "{}");
	expect(OK "content-length: 3\r\nX:\r\n\r\na\nb", 200, "a\nb");
}

static void test_incomplete(void **state)
{
	static const char text[] = OK "Content-Length: 4\r\n\r\n{}\r\n";
	struct http_response reply = { 0 };

	(void)state;
	reply.most = MOST;
	http_response_reset(&reply);
	for (size_t n = 1; n < sizeof(text) - 1; n++) {
		assert_int_equal(http_response_feed(&reply, text, n), n);
		assert_false(reply.is_complete);
		http_response_reset(&reply);
	}
	free(reply.body);
}

/* At whatever place it is cut, it never becomes a reply. */
static void refused(const char *text)
{
	for (size_t cut = 0; cut <= strlen(text); cut++) {
		struct http_response reply = { 0 };

		reply.most = MOST;
		http_response_reset(&reply);
		assert_int_equal(feed(&reply, text, strlen(text), cut), -1);
		assert_false(reply.is_complete);
		free(reply.body);
	}
}

static void test_no_replies(void **state)
{
	(void)state;
	refused("{\"code\":20,\"status\":\"busy\"}\n");
	refused("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
	refused("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}");
	refused("HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 2\r\n\r\n{}");
	refused("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n{}");
	refused(OK "\r\n{}");
	refused(OK "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
	refused(OK "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ");
	refused(OK "Content-Length: -2\r\n\r\n{}");
	refused(OK "Content-Length: 65\r\n\r\n{}");
	refused(OK "Content-Length: 18446744073709551615\r\n\r\n{}");
	refused("HTTP/1.1 304 Not Modified\r\n\r\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replies),
		cmocka_unit_test(test_incomplete),
		cmocka_unit_test(test_no_replies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
