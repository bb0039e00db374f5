/* AMQP_URL with one host and with several, and the sentences about what is none. */
#include "common/rabbit/connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_one_host(void **state)
{
	static const struct {
		const char *url, *user, *password, *vhost, *host;
		int is_tls;
	} cases[] = {
		{ "amqp://u:p@r1:5673/v", "u", "p", "v", "r1:5673", 0 },
		{ "amqp://u:p@r1/%2f", "u", "p", "/", "r1:5672", 0 },
		{ "amqps://u:p@r1/a%2fb", "u", "p", "a/b", "r1:5671", 1 },
		{ "amqp://", "guest", "guest", "/", "localhost:5672", 0 },
		{ "amqp://u:p,%40%2f@[::1]:5673", "u", "p,@/", "/", "[::1]:5673", 0 },
		{ "amqp://u:p@r1/v,w", "u", "p", "v,w", "r1:5672", 0 },
		{ "amqp://%80%FF:%c3%a9%25%3A@r1/%e4%3F", "\x80\xff", "\xc3\xa9%:", "\xe4?",
		  "r1:5672", 0 },
	};
	char error[RABBIT_ERROR_SIZE], text[RABBIT_HOST_SIZE];
	struct rabbit_url url;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(rabbit_url_parse(&url, cases[i].url, error), 0);
		assert_int_equal(url.hosts_n, 1);
		assert_string_equal(url.hosts[0].info.user, cases[i].user);
		assert_string_equal(url.hosts[0].info.password, cases[i].password);
		assert_string_equal(url.hosts[0].info.vhost, cases[i].vhost);
		assert_string_equal(rabbit_host_text(&url.hosts[0], text), cases[i].host);
		assert_int_equal(url.hosts[0].info.ssl, cases[i].is_tls);
		rabbit_url_fini(&url);
	}
}

static void test_several_hosts(void **state)
{
	static const char *const urls[] = { "amqp://u:p%2c@r1:5673,r2,[fd00::2],[::1]:7/v",
					    "amqps://u:p%2c@r1:5673,r2,[fd00::2],[::1]:7/v" };
	static const char *const hosts[][4] = {
		{ "r1:5673", "r2:5672", "[fd00::2]:5672", "[::1]:7" },
		{ "r1:5673", "r2:5671", "[fd00::2]:5671", "[::1]:7" }
	};
	char error[RABBIT_ERROR_SIZE], text[RABBIT_HOST_SIZE];
	struct rabbit_url url;

	(void)state;
	for (int k = 0; k < 2; k++) {
		assert_int_equal(rabbit_url_parse(&url, urls[k], error), 0);
		assert_int_equal(url.hosts_n, 4);
		for (size_t i = 0; i < url.hosts_n; i++) {
			assert_string_equal(rabbit_host_text(&url.hosts[i], text), hosts[k][i]);
			assert_string_equal(url.hosts[i].info.user, "u");
			assert_string_equal(url.hosts[i].info.password, "p,");
			assert_string_equal(url.hosts[i].info.vhost, "v");
			assert_int_equal(url.hosts[i].info.ssl, k);
		}
		rabbit_url_fini(&url);
	}
	/* without a user */
	assert_int_equal(rabbit_url_parse(&url, "amqp://r1,r2", error), 0);
	assert_int_equal(url.hosts_n, 2);
	assert_string_equal(url.hosts[1].info.host, "r2");
	rabbit_url_fini(&url);
}

static void test_none(void **state)
{
	static const struct {
		const char *url, *sentence;
	} cases[] = {
		{ "", "AMQP_URL is not of the form" },
		{ "secret", "AMQP_URL is not of the form" },
		{ "http://u:secret@r1", "AMQP_URL is not of the form" },
		{ "amqp://u:secret@r1:port/v", "AMQP_URL is not of the form" },
		{ "amqp://u:se/cret@r1,r2/v", "AMQP_URL is not of the form" },
		{ "amqp://u:secret@r1:65536", "AMQP_URL is not of the form" },
		{ "amqp://u:secret%@r1", "AMQP_URL is not of the form" },
		{ "amqp://u:secret%g0@r1", "AMQP_URL is not of the form" },
		{ "amqp://u:secret@r1/%00", "AMQP_URL is not of the form" },
		{ "amqp://u:secret@r1/v/w", "AMQP_URL is not of the form" },
		{ "amqp://u:sec?secret@r1/v", "AMQP_URL is not of the form" },
		{ "amqp://u:secret@r1/v?heartbeat=5", "AMQP_URL has \"?heartbeat\"" },
		{ "amqp://u:secret@r1,r2/v#x", "AMQP_URL has \"#x\"" },
		{ "amqp://u:secret@r1,/v", "host 2 of AMQP_URL" },
		{ "amqp://u:secret@,r1/v", "host 1 of AMQP_URL" },
		{ "amqp://u:secret@r1,,r2/v", "host 2 of AMQP_URL" },
		{ "amqp://u:secret@r1:x,r2/v", "host 1 of AMQP_URL" },
		{ "amqp://u:secret@r1,r2:70000,r3/v", "host 2 of AMQP_URL" },
		{ "amqp://u:secret@r1,::1,r3/v", "host 2 of AMQP_URL" },
		{ "amqp://u:secret@r1,[::1/v", "host 2 of AMQP_URL" },
		{ "amqp://u:sec@secret,r2/v@w", "AMQP_URL is not of the form" },
		{ "amqp://u:se@secret@r1,r2/v", "host 1 of AMQP_URL" },
		{ "amqp://u:s@1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17/v", "more than 16 hosts" },
	};
	struct rabbit_url url;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char error[RABBIT_ERROR_SIZE] = "";

		assert_int_equal(rabbit_url_parse(&url, cases[i].url, error), -1);
		if (!strstr(error, cases[i].sentence) || strstr(error, "secret"))
			fail_msg("%s: %s", cases[i].url, error);
		rabbit_url_fini(&url);
	}
}

static void test_the_management_api(void **state)
{
	static const char *const wrong[] = { "",
					     "amqp://u:secret@r1",
					     "http://u:secret@r1:port",
					     "http://u:secret@r1,,r2",
					     "http://u:secret@r1/api",
					     "ftp://u:secret@r1" };
	char error[RABBIT_ERROR_SIZE], text[RABBIT_HOST_SIZE];
	struct rabbit_url url;

	(void)state;
	assert_int_equal(rabbit_api_parse(&url, "http://u:p%40@r1,[::1]:99/", error), 0);
	assert_int_equal(url.hosts_n, 2);
	assert_string_equal(url.hosts[1].info.password, "p@");
	assert_string_equal(rabbit_host_text(&url.hosts[0], text), "r1:15672");
	assert_string_equal(rabbit_host_text(&url.hosts[1], text), "[::1]:99");
	rabbit_url_fini(&url);
	assert_int_equal(rabbit_api_parse(&url, "https://u:p@[::1]", error), 0);
	assert_string_equal(rabbit_host_text(&url.hosts[0], text), "[::1]:15671");
	assert_int_equal(url.hosts[0].info.ssl, 1);
	rabbit_url_fini(&url);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(rabbit_api_parse(&url, wrong[i], error), -1);
		if (!strstr(error, "COUPON_RABBITMQ_API") || strstr(error, "secret"))
			fail_msg("%s: %s", wrong[i], error);
		rabbit_url_fini(&url);
	}
}

/* Each host is first at times, and none is lost. */
static void test_shuffled(void **state)
{
	char error[RABBIT_ERROR_SIZE];
	struct rabbit_url url;
	int first[5] = { 0 };

	(void)state;
	assert_int_equal(rabbit_url_parse(&url, "amqp://h:1,h:2,h:3,h:4/v", error), 0);
	for (int i = 0; i < 400; i++) {
		int sum = 0;

		rabbit_url_shuffle(&url);
		first[url.hosts[0].info.port]++;
		for (int k = 0; k < 4; k++)
			sum += 1 << url.hosts[k].info.port;
		assert_int_equal(sum, 2 + 4 + 8 + 16);
	}
	for (int port = 1; port <= 4; port++)
		assert_true(first[port] > 0);
	rabbit_url_fini(&url);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_host), cmocka_unit_test(test_several_hosts),
		cmocka_unit_test(test_none),     cmocka_unit_test(test_the_management_api),
		cmocka_unit_test(test_shuffled),
	};

	return cmocka_run_group_tests_name("rabbit_url", tests, NULL, NULL);
}
