/* HTTP requests in one piece and cut anywhere: complete, refused, and where the next one begins. */
#include "gateway/listen/http_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BODY_LIMIT 64
#define HEAD_LIMIT 16384
#define END "Host: x\r\n\r\n"
#define POST "POST /v1/ping HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define NEXT "GET / HTTP/1.1\r\n" END

/*
 * Feeds the bytes up to `cut` and then the others, each from heap memory of its own. Returns how
 * many were taken.
 */
static size_t feed(struct http_request *request, const char *bytes, size_t len, size_t cut)
{
	size_t taken = 0;

	for (int part = 0; part < 2; part++) {
		size_t at = part ? cut : 0, n = part ? len - cut : cut;
		char *copy = malloc(n + 1);

		if (n > 0 && !request->complete && !request->refusal) {
			memcpy(copy, bytes + at, n);
			taken += http_request_feed(request, copy, n);
		}
		free(copy);
	}
	return taken;
}

static void expect_complete(const char *text, const char *target, const char *body, int keeps)
{
	char bytes[1024];
	size_t len = (size_t)snprintf(bytes, sizeof(bytes), "%s%s", text, NEXT);

	for (size_t cut = 0; cut <= strlen(text); cut++) {
		struct http_request request;

		http_request_init(&request, BODY_LIMIT);
		assert_int_equal(feed(&request, bytes, len, cut), strlen(text));
		assert_true(request.complete);
		assert_int_equal(request.refusal, 0);
		assert_string_equal(request.texts[TEXT_TARGET].bytes, target);
		assert_string_equal(request.texts[TEXT_BODY].bytes ? request.texts[TEXT_BODY].bytes
								   : "",
				    body);
		assert_int_equal(http_should_keep_alive(&request.parser) != 0, keeps);
		http_request_reset(&request);
		feed(&request, NEXT, strlen(NEXT), strlen(NEXT));
		assert_true(request.complete);
		assert_string_equal(request.texts[TEXT_TARGET].bytes, "/");
		assert_int_equal(request.texts[TEXT_BODY].len, 0);
		http_request_free(&request, 0);
	}
}

static void test_complete_requests(void **state)
{
	(void)state;
	expect_complete(NEXT, "/", "", 1);
	expect_complete("GET /a?b=c%20d#e HTTP/1.1\r\n" END, "/a?b=c%20d#e", "", 1);
	expect_complete("\r\n\r\n" NEXT, "/", "", 1);
	expect_complete("PUT / HTTP/1.1\r\n" END, "/", "", 1);
	expect_complete("OPTIONS * HTTP/1.1\r\n" END, "*", "", 1);
	expect_complete(POST "\r\n", "/v1/ping", "", 1);
	expect_complete(POST "Content-Length: 2\r\n\r\n{}", "/v1/ping", "{}", 1);
	expect_complete("HEAD / HTTP/1.1\r\nX: a\r\nEmpty:\r\n" END, "/", "", 1);
	expect_complete("GET http://x/a HTTP/1.1\r\n" END, "http://x/a", "", 1);
	expect_complete("GET / HTTP/1.0\r\n\r\n", "/", "", 0);
	expect_complete("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "/", "", 1);
	expect_complete("GET / HTTP/1.1\r\nConnection: Close\r\n" END, "/", "", 0);
	expect_complete("GET / HTTP/1.1\r\nContent-Length: 3\r\n" END "abc", "/", "abc", 1);
	expect_complete(CHUNKED "1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n", "/v1/ping", "{}", 1);
	expect_complete(CHUNKED "2\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", "/v1/ping", "{}", 1);
	expect_complete("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n" END, "/", "",
			1);
}

static int has_tag(const char *value, const char *tag)
{
	struct http_request request;
	char bytes[256];
	int has;

	http_request_init(&request, BODY_LIMIT);
	snprintf(bytes, sizeof(bytes), "GET / HTTP/1.1\r\nIf-None-Match: %s\r\n" END, value);
	feed(&request, bytes, strlen(bytes), strlen(bytes) / 2);
	assert_true(request.complete);
	has = http_request_has_tag(&request, tag);
	http_request_reset(&request);
	feed(&request, NEXT, strlen(NEXT), strlen(NEXT));
	assert_false(http_request_has_tag(&request, tag));
	http_request_free(&request, 0);
	return has;
}

static void test_the_tag_that_a_client_has(void **state)
{
	(void)state;
	assert_true(has_tag("\"0123456789ab\"", "0123456789ab"));
	assert_true(has_tag("W/\"0123456789ab\"", "0123456789ab"));
	assert_true(has_tag("*", "0123456789ab"));
	assert_false(has_tag("0123456789ab", "0123456789ab"));
	assert_false(has_tag("\"0123456789ac\"", "0123456789ab"));
	assert_false(has_tag("\"0123456789abc\"", "0123456789ab"));
	assert_false(has_tag("W/\"0123456789ab\"x", "0123456789ab"));
	assert_false(has_tag("", "0123456789ab"));
}

static void expect_refused(const char *bytes, size_t len, int status)
{
	for (size_t cut = 0; cut <= len; cut += len > 4096 ? 997 : 1) {
		struct http_request request;

		http_request_init(&request, BODY_LIMIT);
		feed(&request, bytes, len, cut);
		assert_false(request.complete);
		assert_int_equal(request.refusal, status);
		assert_non_null(request.refusal_text);
		http_request_free(&request, 0);
	}
}

static void test_refused_requests(void **state)
{
	static const struct {
		int status;
		const char *text;
	} refused[] = {
		{ 400, "\x16\x03\x01" },
		{ 400, "GET / HTTP/2.0\r\n\r\n" },
		{ 400, "GET /a b HTTP/1.1\r\n\r\n" },
		{ 400, "GET / HTTP/1.1\r\nno colon\r\n\r\n" },
		{ 400, "GET / HTTP/1.1\r\nX : y\r\n\r\n" },
		{ 400, POST "Content-Length: x\r\n\r\n" },
		{ 400, POST "Content-Length: -1\r\n\r\n" },
		{ 400, POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n" },
		{ 400, CHUNKED "x\r\n" },
		{ 400, POST "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n" },
		{ 400, POST "Transfer-Encoding: gzip\r\n\r\n" },
		{ 400, POST "Transfer-Encoding: chunked, gzip\r\n\r\n" },
		{ 501, POST "Transfer-Encoding: gzip, chunked\r\n\r\n" },
		{ 501, POST "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" },
		{ 413, POST "Content-Length: 65\r\n\r\n" },
		{ 413,
		  CHUNKED "41\r\n"
			  "0123456789012345678901234567890123456789012345678901234567890123456" },
		{ 417, POST "Expect: 200-ok\r\nContent-Length: 2\r\n\r\n" },
		{ 501, "CONNECT x:1 HTTP/1.1\r\n" END },
		{ 501, "BREW / HTTP/1.1\r\n" END },
		{ 501, "get / HTTP/1.1\r\n" END },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		expect_refused(refused[i].text, strlen(refused[i].text), refused[i].status);
}

/* What the parser lets pass, and other programs may read otherwise. */
static void test_requests_that_are_no_http(void **state)
{
	static const char *const refused[] = {
		"GET / HTTP/1.1\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n\n",
		"GET / HTTP/1.1\r\nHost: x\r\n\rX",
		"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"\rGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX:\r\n\tb\r\n\r\n",
		"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: x\r\nHost:\r\n\r\n",
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		CHUNKED "1\n{\r\n0\r\n\r\n",
		CHUNKED "1;a\n{\r\n0\r\n\r\n",
		CHUNKED "1\rx{\r\n0\r\n\r\n",
		CHUNKED "1\r\n{\n0\r\n\r\n",
		CHUNKED "1\r\n{xx0\r\n\r\n",
		CHUNKED "1\r\n{\rx0\r\n\r\n",
		CHUNKED "1\r\n{\r\n0\r\nTrailer: x\n\r\n",
		CHUNKED "1\r\n{\r\n0\r\nTrailer: x\r\n y\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		expect_refused(refused[i], strlen(refused[i]), 400);
}

static int is_json(const char *type)
{
	struct http_request request;
	char bytes[256];
	int is;

	http_request_init(&request, BODY_LIMIT);
	snprintf(bytes, sizeof(bytes), POST "Content-Type: %s\r\n\r\n", type);
	feed(&request, bytes, strlen(bytes), strlen(bytes) / 2);
	assert_true(request.complete);
	is = http_request_is_json(&request);
	http_request_reset(&request);
	feed(&request, NEXT, strlen(NEXT), strlen(NEXT));
	assert_false(http_request_is_json(&request));
	http_request_free(&request, 0);
	return is;
}

static void test_the_type_of_a_body(void **state)
{
	(void)state;
	assert_true(is_json("application/json"));
	assert_true(is_json("Application/JSON; charset=utf-8"));
	assert_true(is_json("application/json;charset=utf-8"));
	assert_true(is_json("application/json \t"));
	assert_false(is_json(""));
	assert_false(is_json("text/plain"));
	assert_false(is_json("text/plain; application/json"));
	assert_false(is_json("application/jsonx"));
	assert_false(is_json("application/json-patch+json"));
	assert_false(is_json("application/json, text/plain"));
	assert_false(is_json("text/plain\r\nContent-Type: application/json"));
}

static void test_headers_that_are_there_once(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\naccept: a/b \r\nX-REQUEST-ID:  id-1 \t\r\n"
				   "Idempotency-Key: k\r\nAccept:c/d\r\nIdempotency-Key: l\r\n" END;

	(void)state;
	for (size_t cut = 0; cut < sizeof(text); cut++) {
		struct http_request request;

		http_request_init(&request, BODY_LIMIT);
		feed(&request, text, sizeof(text) - 1, cut);
		assert_true(request.complete);
		assert_string_equal(http_request_one(&request, TEXT_REQUEST_ID), "id-1");
		assert_string_equal(request.texts[TEXT_ACCEPT].bytes, "a/b , c/d");
		assert_true(request.seen & 1u << TEXT_KEY);
		assert_null(http_request_one(&request, TEXT_KEY));
		assert_null(http_request_one(&request, TEXT_TRACEPARENT));
		http_request_reset(&request);
		feed(&request, NEXT, strlen(NEXT), strlen(NEXT));
		assert_null(http_request_one(&request, TEXT_REQUEST_ID));
		assert_int_equal(request.seen, 1u << TEXT_HOST);
		assert_int_equal(request.twice, 0);
		http_request_free(&request, 0);
	}
}

/* They come behind the body, when the request was already judged by its head. */
static void test_trailers_are_no_headers(void **state)
{
	static const char text[] = CHUNKED "0\r\nHost: y\r\nOrigin: http://x\r\n"
					   "Idempotency-Key: k\r\n\r\n";
	struct http_request request;

	(void)state;
	for (size_t cut = 0; cut < sizeof(text); cut++) {
		http_request_init(&request, BODY_LIMIT);
		feed(&request, text, sizeof(text) - 1, cut);
		assert_true(request.complete);
		assert_string_equal(request.texts[TEXT_HOST].bytes, "x");
		assert_int_equal(request.seen, 1u << TEXT_HOST | 1u << TEXT_TRANSFER_ENCODING);
		http_request_free(&request, 0);
	}
}

/* Whether it was looked at or not: of a refused request it was not. */
static void test_a_secret_is_wiped(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nAuthorization: Bearer secret\r\n";
	static const char *const ends[] = { END, "Host : x\r\n\r\n" };

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct http_request request;
		char whole[128];
		int len = snprintf(whole, sizeof(whole), "%s%s", text, ends[i % 2]);

		http_request_init(&request, BODY_LIMIT);
		feed(&request, whole, (size_t)len, 40);
		assert_int_equal(request.complete, i % 2 == 0);
		assert_string_equal(request.texts[TEXT_AUTHORIZATION].bytes, "Bearer secret");
		if (i < 2)
			http_request_reset(&request);
		else
			http_request_free(&request, 1024);
		for (size_t at = 0; at < strlen("Bearer secret"); at++)
			assert_int_equal(request.texts[TEXT_AUTHORIZATION].bytes[at], 0);
		http_request_free(&request, 0);
	}
}

/* A request with `n` headers, each but Host with a value of `len` bytes. */
static char *headers_make(int n, size_t len)
{
	char *text = malloc(64 + (size_t)n * (len + 8)), *at = text;

	at += sprintf(at, "GET / HTTP/1.1\r\nHost: x\r\n");
	for (int i = 1; i < n; i++) {
		at += sprintf(at, "X: ");
		memset(at, 'y', len);
		at += len;
		at += sprintf(at, "\r\n");
	}
	sprintf(at, "\r\n");
	return text;
}

static void test_headers_are_limited(void **state)
{
	char *many = headers_make(101, 1), *long_one = headers_make(2, HEAD_LIMIT);
	char *most = headers_make(100, 100), *line = calloc(1, HEAD_LIMIT + 64);
	struct http_request request;

	(void)state;
	expect_refused(many, strlen(many), 431);
	expect_refused(long_one, strlen(long_one), 431);
	memset(mempcpy(line, "GET /", 5), 'a', HEAD_LIMIT);
	expect_refused(line, strlen(line), 414);
	strcat(line, " HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_refused(line, strlen(line), 414);
	free(line);
	http_request_init(&request, BODY_LIMIT);
	feed(&request, most, strlen(most), 1000);
	assert_true(request.complete);
	assert_int_equal(request.headers_n, 100);
	http_request_free(&request, 0);
	free(many);
	free(long_one);
	free(most);
}

static void test_continue_is_wanted_until_the_body_begins(void **state)
{
	static const char head[] = POST "eXpect: 100-Continue\r\nContent-Length: 2\r\n\r\n";
	static const char none[] = POST "Expect: 100-continue\r\n\r\n";
	struct http_request request;

	(void)state;
	http_request_init(&request, BODY_LIMIT);
	assert_int_equal(http_request_feed(&request, head, sizeof(head) - 1), sizeof(head) - 1);
	assert_true(request.wants_continue);
	assert_int_equal(http_request_feed(&request, "{}", 2), 2);
	assert_false(request.wants_continue);
	assert_true(request.complete);
	http_request_reset(&request);
	http_request_feed(&request, none, sizeof(none) - 1);
	assert_true(request.complete);
	assert_false(request.wants_continue);
	http_request_free(&request, 0);
}

static void test_large_texts_are_not_kept(void **state)
{
	char target[4096];
	struct http_request request;

	(void)state;
	memset(target, 'a', sizeof(target));
	http_request_init(&request, BODY_LIMIT);
	http_request_feed(&request, "GET /", 5);
	http_request_feed(&request, target, sizeof(target));
	assert_int_equal(request.texts[TEXT_TARGET].len, sizeof(target) + 1);
	http_request_free(&request, 1024);
	assert_null(request.texts[TEXT_TARGET].bytes);
	http_request_free(&request, 0);
}

static int limit_heads(void **state)
{
	(void)state;
	http_parser_set_max_header_size(HEAD_LIMIT);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_complete_requests),
		cmocka_unit_test(test_the_tag_that_a_client_has),
		cmocka_unit_test(test_refused_requests),
		cmocka_unit_test(test_requests_that_are_no_http),
		cmocka_unit_test(test_the_type_of_a_body),
		cmocka_unit_test(test_headers_that_are_there_once),
		cmocka_unit_test(test_trailers_are_no_headers),
		cmocka_unit_test(test_a_secret_is_wiped),
		cmocka_unit_test(test_headers_are_limited),
		cmocka_unit_test(test_continue_is_wanted_until_the_body_begins),
		cmocka_unit_test(test_large_texts_are_not_kept),
	};

	return cmocka_run_group_tests(tests, limit_heads, NULL);
}
