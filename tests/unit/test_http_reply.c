/*
 * Replies over HTTP on a real connection: what the headers of a request make of them. The requests
 * end in wire.h, which answers issue with what it got.
 */
#include "gateway/listen/http.h"
#include "tests/fuzz/wire.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define HOST "Host: localhost\r\n"
#define TRACEPARENT "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
#define PROBLEM "Accept: application/problem+json\r\n"
#define PAGE "Origin: " WIRE_ORIGIN "\r\n"
#define ISSUE "{\"coupon\":\"1\",\"user\":\"2\"}"

static struct wire wire;
static struct wire_text reply;
static int is_ready = 1;

static int ready(void *context, cJSON **body)
{
	(void)context;
	*body = cJSON_CreateObject();
	return is_ready;
}

/* Sends a request and returns the status of its reply, which is in `reply`, with a NUL. */
static int ask(const char *line, const char *headers, const char *body)
{
	char text[4096], type[128] = "";
	int len;

	if (body)
		snprintf(type, sizeof(type),
			 "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
	len = snprintf(text, sizeof(text), "%s HTTP/1.1\r\n" HOST "%s%s\r\n%s", line, headers, type,
		       body ? body : "");
	assert_true(len > 0 && (size_t)len < sizeof(text));
	wire_run(&wire, (const uint8_t *)text, (size_t)len, 0, &reply);
	assert_true(reply.len > 12 && reply.len < reply.room);
	reply.bytes[reply.len] = '\0';
	return atoi(reply.bytes + 9);
}

/* The value of a header of the reply; NULL: it has none. The next call overwrites it. */
static const char *header(const char *name)
{
	static char value[512];
	const char *end = strstr(reply.bytes, "\r\n\r\n"), *at = reply.bytes;
	char sought[64];
	int len = snprintf(sought, sizeof(sought), "\r\n%s: ", name);

	assert_non_null(end);
	at = strstr(at, sought);
	if (!at || at > end)
		return NULL;
	at += len;
	assert_null(memmem(at, (size_t)(end - at), sought, (size_t)len)); /* there once */
	len = (int)strcspn(at, "\r");
	assert_true((size_t)len < sizeof(value));
	memcpy(value, at, (size_t)len);
	value[len] = '\0';
	return value;
}

static void expect_header(const char *name, const char *wanted)
{
	const char *value = header(name);

	if (!wanted) {
		assert_null(value);
		return;
	}
	assert_non_null(value);
	assert_string_equal(value, wanted);
}

static const char *body(void)
{
	return strstr(reply.bytes, "\r\n\r\n") + 4;
}

static void expect_key(const char *headers, const char *object, const char *wanted)
{
	char member[128];

	assert_int_equal(ask("POST /v1/issue", headers, object), 200);
	assert_int_equal(wire.dispatched, 1);
	snprintf(member, sizeof(member), "\"key\":\"%s\"}", wanted);
	assert_non_null(strstr(body(), member));
}

static void expect_no_key(const char *headers, const char *object, const char *why)
{
	assert_int_equal(ask("POST /v1/issue", headers, object), 400);
	assert_int_equal(wire.dispatched, 0);
	assert_non_null(strstr(body(), why));
}

static void test_idempotency_key(void **state)
{
	static const char with_key[] = "{\"coupon\":\"1\",\"user\":\"2\",\"key\":\"a b\"}";

	(void)state;
	expect_key("", ISSUE, "");
	expect_key("Idempotency-Key: \"a b\"\r\n", ISSUE, "a b");
	expect_key("idempotency-key: a b \r\n", ISSUE, "a b");
	expect_key("Idempotency-Key: \"a b\"\r\n", with_key, "a b");
	expect_no_key("Idempotency-Key: a\r\n", with_key,
		      "differs from the header Idempotency-Key");
	expect_no_key("Idempotency-Key:\r\n", ISSUE, "Idempotency-Key is");
	expect_no_key("Idempotency-Key: \"a\r\n", ISSUE, "Idempotency-Key is");
	expect_no_key("Idempotency-Key: a\r\nIdempotency-Key: a\r\n", ISSUE, "one key");
	/* What changes nothing may be repeated without a key. */
	assert_int_equal(ask("POST /v1/ping", "Idempotency-Key: \"a\r\n", "{}"), 200);
	assert_int_equal(ask("GET /v1/ping", "Idempotency-Key: \"a\r\n", NULL), 200);
	/* It is not kept for the next request of the connection. */
	assert_int_equal(ask("POST /v1/issue",
			     "Content-Length: 25\r\nContent-Type: application/json\r\n"
			     "Idempotency-Key: first\r\n\r\n" ISSUE
			     "POST /v1/issue HTTP/1.1\r\n" HOST,
			     ISSUE),
			 200);
	assert_int_equal(wire.dispatched, 2);
	assert_non_null(strstr(body(), "\"key\":\"first\""));
	assert_non_null(strstr(body(), "\"key\":\"\""));
}

static void test_what_is_accepted(void **state)
{
	(void)state;
	assert_int_equal(ask("GET /v1/ping", "Accept: text/html\r\n", NULL), 406);
	assert_int_equal(wire.dispatched, 0);
	expect_header("Content-Type", "application/json");
	assert_int_equal(ask("POST /v1/issue", "Accept: text/html\r\n", ISSUE), 406);
	assert_int_equal(wire.dispatched, 0);
	assert_int_equal(ask("GET /v1/ping", "Accept: text/html, */*;q=0.1\r\n", NULL), 200);
	assert_int_equal(ask("GET /v1/ping", "Accept: text/html\r\nAccept: */*\r\n", NULL), 200);
	assert_int_equal(ask("GET /v1/ping", PROBLEM, NULL), 200);
	expect_header("Content-Type", "application/json");
	expect_header("Vary", "Origin");
	/* Probes ask for what they like. */
	assert_int_equal(ask("GET /healthz", "Accept: text/html\r\n", NULL), 200);
	assert_int_equal(ask("GET /metrics", "Accept: application/json\r\n", NULL), 200);
}

static void expect_problem(const char *line, const char *object, const char *wanted)
{
	int status = ask(line, PROBLEM, object);
	const char *text;

	assert_true(status >= 400);
	expect_header("Content-Type", "application/problem+json");
	expect_header("Vary", "Accept, Origin");
	text = header("Content-Length");
	assert_int_equal(atoi(text), strlen(body()));
	assert_string_equal(body(), wanted);
}

static void test_problems(void **state)
{
	(void)state;
	expect_problem(
		"POST /v1/issue", "{\"id\":9007199254740991,\"coupon\":\"1\"}",
		"{\"type\":\"/openapi.json#bad_request\",\"title\":\"the request is malformed\","
		"\"detail\":\"user: is missing\",\"id\":9007199254740991,"
		"\"code\":40,\"answer\":\"bad_request\",\"message\":\"user: is missing\"}");
	/* The id is the client's, whatever it looks like. */
	expect_problem(
		"POST /v1/issue", "{\"id\":\"\\\",\\\"status\\\":\\u00fc\",\"coupon\":\"1\"}",
		"{\"type\":\"/openapi.json#bad_request\",\"title\":\"the request is malformed\","
		"\"detail\":\"user: is missing\","
		"\"id\":\"\\\",\\\"status\\\":\xc3\xbc\","
		"\"code\":40,\"answer\":\"bad_request\",\"message\":\"user: is missing\"}");
	expect_problem("GET /nothing", NULL,
		       "{\"type\":\"about:blank\",\"title\":\"Not Found\","
		       "\"detail\":\"no such path\",\"code\":40,\"answer\":\"bad_request\","
		       "\"message\":\"no such path\"}");
	assert_int_equal(ask("GET /v1/ping?x=1", "", NULL), 400);
	expect_header("Content-Type", "application/json");
	expect_header("Vary", "Accept, Origin");
}

static void expect_retry_after(const char *code, int status, const char *wanted)
{
	char object[128];

	snprintf(object, sizeof(object),
		 "{\"id\":\",\\\"retry_after_ms\\\":9\",\"code\":\"%s\","
		 "\"user\":\"1\"}",
		 code);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ask("POST /v1/claim", i ? PROBLEM : "", object), status);
		expect_header("Retry-After", wanted);
		assert_true(i == (strstr(body(), "\"answer\":") != NULL));
	}
}

static void test_retry_after(void **state)
{
	(void)state;
	expect_retry_after("1", 429, "1");
	expect_retry_after("1000", 429, "1");
	expect_retry_after("1001", 429, "2");
	expect_retry_after("3600000", 429, "3600");
	expect_retry_after("3600001", 429, "1"); /* as 0: none that says anything */
	expect_retry_after("x", 503, "3");
	is_ready = 0;
	assert_int_equal(ask("GET /readyz", "", NULL), 503);
	expect_header("Retry-After", "3");
	is_ready = 1;
	assert_int_equal(ask("GET /readyz", "", NULL), 200);
	expect_header("Retry-After", NULL);
	assert_int_equal(ask("POST /v1/issue", "", ISSUE), 200);
	expect_header("Retry-After", NULL);
}

static void test_too_many_connections(void **state)
{
	int others[100]; /* as many as there may be */

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		others[i] = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(connect(others[i], (const struct sockaddr *)&wire.address,
					 sizeof(wire.address)),
				 0);
	}
	assert_int_equal(ask("GET /v1/ping", TRACEPARENT, NULL), 429);
	expect_header("Retry-After", "1");
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		close(others[i]);
	assert_int_equal(ask("GET /v1/ping", "", NULL), 200);
}

static int is_made(const char *id)
{
	size_t hex = strspn(id, "0123456789abcdef");

	return hex == 16 && id[16] == '-' && strspn(id + 17, "0123456789") == 14 && !id[31];
}

static void test_request_ids(void **state)
{
	char longest[256] = "X-Request-Id: ", first[64];

	(void)state;
	assert_int_equal(ask("GET /v1/ping", "x-request-id: r-1~!\r\n", NULL), 200);
	expect_header("X-Request-Id", "r-1~!");
	assert_int_equal(ask("GET /nothing", "X-Request-Id: r-2\r\n", NULL), 404);
	expect_header("X-Request-Id", "r-2");
	memset(longest + strlen(longest), 'x', 128);
	strcpy(longest + 14 + 128, "\r\n");
	assert_int_equal(ask("GET /v1/ping", longest, NULL), 200);
	assert_int_equal(strlen(header("X-Request-Id")), 128);
	assert_int_equal(ask("GET /v1/ping", "", NULL), 200);
	assert_true(is_made(header("X-Request-Id")));
	strcpy(first, header("X-Request-Id"));
	assert_int_equal(ask("GET /v1/ping", "X-Request-Id: a b\r\n", NULL), 200);
	assert_true(is_made(header("X-Request-Id")));
	assert_string_not_equal(header("X-Request-Id"), first);
	assert_int_equal(ask("GET /v1/ping", "X-Request-Id: a\r\nX-Request-Id: b\r\n", NULL), 200);
	assert_true(is_made(header("X-Request-Id")));
	strcpy(longest + 14 + 128, "x\r\n");
	assert_int_equal(ask("GET /v1/ping", longest, NULL), 200);
	assert_true(is_made(header("X-Request-Id")));
	/* Also of one that is answered later. */
	wire.later = 1;
	strcpy(longest + 14 + 128, "\r\n" PAGE);
	assert_int_equal(ask("POST /v1/issue", longest, ISSUE), 200);
	assert_int_equal(strlen(header("X-Request-Id")), 128);
	expect_header("Access-Control-Allow-Origin", WIRE_ORIGIN);
	wire.later = 0;
	/* Nothing of a head that was refused is repeated. */
	assert_int_equal(ask("GET /v1/ping", "X-Request-Id: r\r\nHost: twice\r\n", NULL), 400);
	assert_true(is_made(header("X-Request-Id")));
}

static void test_made_ids_count_on(void **state)
{
	struct http http = { 0 };
	struct http_connection connection = { .http = &http };
	struct config config = { .http_origins = (char *)"" };
	char head[HTTP_HEAD_SIZE + 1];

	(void)state;
	http.config = &config;
	http_ids_init(&http.ids);
	strcpy(http.ids.text + 17, "00000000000199");
	head[http_head_write(&connection, 200, HTTP_JSON, NULL, 0, head)] = '\0';
	assert_non_null(strstr(head, "-00000000000200\r\n"));
	connection.request.reply.has_id = 0;
	strcpy(http.ids.text + 17, "99999999999999");
	head[http_head_write(&connection, 200, HTTP_JSON, NULL, 0, head)] = '\0';
	assert_non_null(strstr(head, "-00000000000000\r\n"));
}

static void test_methods(void **state)
{
	static const struct {
		const char *line;
		int status;
		const char *allow;
	} asked[] = {
		{ "OPTIONS /v1/issue", 204, "POST, OPTIONS" },
		{ "OPTIONS /v1/ping", 204, "GET, HEAD, POST, OPTIONS" },
		{ "OPTIONS /v1/users/1/coupons", 204, "GET, HEAD, OPTIONS" },
		{ "OPTIONS /healthz", 204, "GET, HEAD, OPTIONS" },
		{ "OPTIONS *", 204, "GET, HEAD, POST, OPTIONS" },
		{ "OPTIONS /nothing", 404, NULL },
		{ "GET *", 404, NULL },
		{ "GET /v1/issue", 405, "POST, OPTIONS" },
		{ "HEAD /v1/issue", 405, "POST, OPTIONS" },
		{ "PUT /v1/ping", 405, "GET, HEAD, POST, OPTIONS" },
		{ "POST /v1/users/1/coupons", 405, "GET, HEAD, OPTIONS" },
		{ "HEAD /v1/ping", 200, NULL },
		{ "HEAD /v1/users/1/coupons?limit=x", 400, NULL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		int status = ask(asked[i].line, "", NULL);

		assert_int_equal(status, asked[i].status);
		expect_header("Allow", asked[i].allow);
		expect_header("Access-Control-Allow-Origin", NULL);
		if (status == 204) {
			expect_header("Content-Length", NULL);
			expect_header("Content-Type", NULL);
		}
		if (status == 204 || strncmp(asked[i].line, "HEAD", 4) == 0)
			assert_string_equal(body(), "");
	}
}

static void expect_page(int may_read)
{
	expect_header("Access-Control-Allow-Origin", may_read ? WIRE_ORIGIN : NULL);
	expect_header("Access-Control-Allow-Credentials", NULL);
	assert_non_null(strstr(header("Vary"), "Origin"));
}

static void test_pages_of_listed_origins(void **state)
{
	(void)state;
	assert_int_equal(ask("OPTIONS /v1/issue", PAGE "Access-Control-Request-Method: POST\r\n",
			     NULL),
			 204);
	expect_page(1);
	expect_header("Access-Control-Allow-Methods", "GET, HEAD, POST");
	expect_header("Access-Control-Allow-Headers",
		      "Authorization, Content-Type, Idempotency-Key, X-Request-Id, traceparent");
	expect_header("Access-Control-Max-Age", "7200");
	assert_int_equal(ask("POST /v1/issue", PAGE, ISSUE), 200);
	expect_page(1);
	expect_header("Access-Control-Expose-Headers",
		      "RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id");
	expect_header("Access-Control-Allow-Methods", NULL);
	assert_int_equal(ask("GET /v1/ping?x=1", PAGE, NULL), 400);
	expect_page(1);
	assert_int_equal(ask("GET /nothing", PAGE, NULL), 404);
	expect_page(1);
	assert_int_equal(ask("GET /v1/ping", "", NULL), 200);
	expect_page(0);
	assert_int_equal(ask("OPTIONS /v1/issue", "Origin: https://evil.example\r\n", NULL), 403);
	expect_page(0);
	assert_int_equal(ask("POST /v1/issue", "Origin: https://shop.example.evil\r\n", ISSUE),
			 403);
	expect_page(0);
	assert_int_equal(wire.dispatched, 0);
	/* A name of COUPON_HTTP_HOSTS may send, and not read. */
	assert_int_equal(ask("POST /v1/issue", "Origin: http://shop\r\n", ISSUE), 200);
	expect_page(0);
	assert_int_equal(ask("POST /v1/issue", PAGE PAGE, ISSUE), 403);
	expect_page(0);
}

static void test_users_in_the_path(void **state)
{
	(void)state;
	assert_int_equal(ask("GET /v1/users/auth0%7Ca%2Fb/coupons?limit=100", "", NULL), 200);
	assert_int_equal(wire.dispatched, 1);
	assert_int_equal(ask("GET /v1/users/a%20b/coupons", "", NULL), 400);
	assert_non_null(strstr(body(), "\"message\":\"user: byte 2 is not allowed"));
	assert_int_equal(ask("GET /v1/users/1/coupons?user=1", "", NULL), 400);
	assert_int_equal(ask("GET /v1/users/1/coupons?coupon=1", "", NULL), 400);
	assert_int_equal(ask("GET /v1/users/1/coupons#x", "", NULL), 400);
	assert_int_equal(ask("GET /v1/users/../coupons", "", NULL), 400);
	assert_int_equal(ask("GET /v1/users/1/2/coupons", "", NULL), 404);
	assert_int_equal(wire.dispatched, 0);
}

static int setup(void **state)
{
	(void)state;
	wire_init(&wire);
	wire_listen(&wire, http_accept,
		    http_new(wire.base, &wire.config, wire.intake, WIRE_LIMIT_BYTES, ready, NULL));
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idempotency_key),
		cmocka_unit_test(test_what_is_accepted),
		cmocka_unit_test(test_problems),
		cmocka_unit_test(test_request_ids),
		cmocka_unit_test(test_made_ids_count_on),
		cmocka_unit_test(test_methods),
		cmocka_unit_test(test_pages_of_listed_origins),
		cmocka_unit_test(test_users_in_the_path),
		cmocka_unit_test(test_retry_after),
		cmocka_unit_test(test_too_many_connections),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
