/* What webhooks are signed with, where they may be sent to, and when they are tried again. */
#include "events/endpoint.h"
#include "events/post.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include <cmocka.h>

/* The sample of the libraries of Standard Webhooks. */
#define SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define SIGNATURE "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

#define SAMPLE "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, "{\"test\": 2432232314}"

static void test_signature_of_the_sample(void **state)
{
	char out[SIGNATURES_SIZE];

	(void)state;
	assert_int_equal(signature_write(SAMPLE, SECRET, out), 0);
	assert_string_equal(out, SIGNATURE);
}

static void test_signatures_of_several_secrets(void **state)
{
	char out[SIGNATURES_SIZE];

	(void)state;
	assert_int_equal(signature_write(SAMPLE, SECRET " " SECRET, out), 0);
	assert_string_equal(out, SIGNATURE " " SIGNATURE);
	assert_int_equal(signature_write(SAMPLE, SECRET " " SECRET " " SECRET " " SECRET, out), 0);
	assert_int_equal(strlen(out), 4 * strlen(SIGNATURE) + 3);
	assert_int_equal(signature_write(SAMPLE, SECRET " " SECRET " " SECRET " " SECRET " " SECRET,
					 out),
			 -1);
	assert_int_equal(signature_write(SAMPLE, "", out), -1);
	assert_int_equal(signature_write(SAMPLE, SECRET "  " SECRET, out), -1);
	assert_int_equal(signature_write(SAMPLE, "whsec_", out), -1);
}

static void test_secrets(void **state)
{
	static const char *const wrong[] = {
		"",
		"whsec_",
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS=", /* 23 bytes */
		"whsec_ MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-", /* of the alphabet for URLs */
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa\xc3\xa9",
		"whsec_"
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
		"AAAAAAAA", /* 66 bytes */
	};
	struct secret secret;

	(void)state;
	assert_int_equal(secret_parse(&secret, SECRET, strlen(SECRET)), 0);
	assert_int_equal(secret.n, 24);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (secret_parse(&secret, wrong[i], strlen(wrong[i])) == 0)
			fail_msg("%s was read", wrong[i]);
}

static void test_made_secrets_are_read_and_differ(void **state)
{
	char one[SECRET_TEXT_SIZE], other[SECRET_TEXT_SIZE];
	char one_digits[SECRET_FINGERPRINT_SIZE], other_digits[SECRET_FINGERPRINT_SIZE];
	struct secret secret;

	(void)state;
	secret_make(one);
	secret_make(other);
	assert_int_equal(secret_parse(&secret, one, strlen(one)), 0);
	assert_int_equal(secret.n, 32);
	secret_fingerprint(&secret, one_digits);
	assert_int_equal(secret_parse(&secret, other, strlen(other)), 0);
	secret_fingerprint(&secret, other_digits);
	assert_int_equal(strlen(one_digits), 16);
	assert_string_not_equal(one_digits, other_digits);
}

static const struct {
	const char *address;
	const char *kind; /* NULL: of the Internet */
} addresses[] = {
	{ "8.8.8.8", NULL },
	{ "1.0.0.1", NULL },
	{ "9.255.255.255", NULL },
	{ "11.0.0.0", NULL },
	{ "100.63.255.255", NULL },
	{ "100.128.0.0", NULL },
	{ "172.15.255.255", NULL },
	{ "172.32.0.0", NULL },
	{ "192.167.255.255", NULL },
	{ "192.169.0.0", NULL },
	{ "223.255.255.255", NULL },
	{ "0.0.0.0", "this network" },
	{ "0.1.2.3", "this network" },
	{ "10.0.0.0", "private" },
	{ "10.255.255.255", "private" },
	{ "100.64.0.0", "of a carrier's NAT" },
	{ "100.100.100.200", "of a carrier's NAT" },
	{ "100.127.255.255", "of a carrier's NAT" },
	{ "127.0.0.1", "loopback" },
	{ "127.255.255.255", "loopback" },
	{ "168.63.129.16", "of a cloud's own services" },
	{ "168.63.129.17", NULL },
	{ "169.254.169.254", "link-local" },
	{ "172.16.0.0", "private" },
	{ "172.31.255.255", "private" },
	{ "192.0.0.192", "reserved" },
	{ "192.0.2.1", "for documentation" },
	{ "192.88.99.1", "reserved" },
	{ "192.168.0.1", "private" },
	{ "198.18.0.1", "for benchmarks" },
	{ "198.19.255.255", "for benchmarks" },
	{ "198.20.0.0", NULL },
	{ "198.51.100.1", "for documentation" },
	{ "203.0.113.1", "for documentation" },
	{ "224.0.0.1", "multicast" },
	{ "239.255.255.255", "multicast" },
	{ "240.0.0.1", "reserved" },
	{ "255.255.255.255", "reserved" },
	{ "2606:4700::1111", NULL },
	{ "2000::1", NULL },
	{ "2001:200::1", NULL },
	{ "3ffe:ffff::", NULL },
	{ "::", "unspecified" },
	{ "::1", "loopback" },
	{ "::2", "reserved" },
	{ "::127.0.0.1", "reserved" },
	{ "::ffff:127.0.0.1", "IPv4 written as IPv6" },
	{ "::ffff:8.8.8.8", "IPv4 written as IPv6" },
	{ "64:ff9b::8.8.8.8", NULL },
	{ "64:ff9b::127.0.0.1", "loopback" },
	{ "64:ff9b::169.254.169.254", "link-local" },
	{ "64:ff9b:1::8.8.8.8", "reserved" },
	{ "100::1", "reserved" },
	{ "2001::1", "reserved" },
	{ "2001:db8::1", "for documentation" },
	{ "2002:7f00:1::", "6to4" },
	{ "3fff::1", "for documentation" },
	{ "4000::1", "reserved" },
	{ "5f00::1", "reserved" },
	{ "fc00::1", "private" },
	{ "fd00:ec2::254", "private" },
	{ "fe80::1", "link-local" },
	{ "fec0::1", "site-local" },
	{ "ff02::1", "multicast" },
};

static void test_addresses(void **state)
{
	struct networks none = { .n = 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		const char *kind = networks_refusal_text(&none, addresses[i].address);

		if (!kind != !addresses[i].kind || (kind && strcmp(kind, addresses[i].kind) != 0))
			fail_msg("%s is %s", addresses[i].address, kind ? kind : "allowed");
	}
}

static void test_socket_addresses(void **state)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_un local = { .sun_family = AF_UNIX };
	struct networks none = { .n = 0 };

	(void)state;
	v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_string_equal(networks_refusal(&none, (struct sockaddr *)&v4), "loopback");
	v4.sin_addr.s_addr = htonl(0x08080808);
	assert_null(networks_refusal(&none, (struct sockaddr *)&v4));
	assert_int_equal(inet_pton(AF_INET6, "fe80::1", &v6.sin6_addr), 1);
	assert_string_equal(networks_refusal(&none, (struct sockaddr *)&v6), "link-local");
	assert_string_equal(networks_refusal(&none, (struct sockaddr *)&local), "not of IP");
}

static void test_allowed_networks(void **state)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	char why[NETWORKS_WHY_SIZE];
	struct networks allowed;

	(void)state;
	assert_int_equal(networks_parse(&allowed, "10.1.0.0/16,127.0.0.1,fd00::/8,::1", why), 0);
	assert_int_equal(allowed.n, 4);
	assert_null(networks_refusal_text(&allowed, "10.1.255.255"));
	assert_non_null(networks_refusal_text(&allowed, "10.2.0.0"));
	assert_null(networks_refusal_text(&allowed, "127.0.0.1"));
	assert_non_null(networks_refusal_text(&allowed, "127.0.0.2"));
	assert_null(networks_refusal_text(&allowed, "fd12::1"));
	assert_non_null(networks_refusal_text(&allowed, "fc12::1"));
	assert_null(networks_refusal_text(&allowed, "::1"));
	/* What is allowed for IPv4 does not hold for its other spelling. */
	assert_non_null(networks_refusal_text(&allowed, "::ffff:127.0.0.1"));
	assert_int_equal(networks_parse(&allowed, "0.0.0.0/0", why), 0);
	assert_null(networks_refusal_text(&allowed, "127.0.0.1"));
	assert_non_null(networks_refusal_text(&allowed, "::1"));
	assert_int_equal(networks_parse(&allowed, "10.0.0.0/9", why), 0);
	assert_null(networks_refusal_text(&allowed, "10.127.255.255"));
	assert_non_null(networks_refusal_text(&allowed, "10.128.0.0"));
	/* A socket of IPv6 shows an address of IPv4 in this form. */
	assert_int_equal(inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr), 1);
	assert_true(networks_have_address(&allowed, (struct sockaddr *)&v6));
	assert_int_equal(networks_parse(&allowed, "", why), 0);
	assert_int_equal(allowed.n, 0);
}

static void test_wrong_networks(void **state)
{
	static const char *const wrong[] = {
		"10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0/8", "10",
		"fd00::/129",  "fd00::1/8",  "localhost", ",",           "::1,,::1", "10.0.0.0/8 ",
		"10.0.0.0/+8", "1.1.1.1/ 8", "*",         "fe80::1%lo",
	};
	char why[NETWORKS_WHY_SIZE];
	struct networks allowed;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (networks_parse(&allowed, wrong[i], why) == 0)
			fail_msg("%s was read", wrong[i]);
	assert_int_equal(networks_parse(&allowed, "1.1.1.1,10.0.0.1/8", why), -1);
	assert_non_null(strstr(why, "\"10.0.0.1/8\" is not a network: allowed are"));
}

static void test_urls(void **state)
{
	static const char *const right[] = {
		"https://example.com",
		"https://example.com/hooks/1?x=y",
		"HTTPS://EXAMPLE.com:443/",
		"https://example.com:1024/",
		"https://8.8.8.8/",
		"https://[2606:4700::1111]:8443/x",
		"https://xn--bcher-kva.example/",
	};
	struct rules rules = { .is_http_allowed = 0 };
	char why[URL_WHY_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		if (url_check(right[i], &rules, why))
			fail_msg("%s: %s", right[i], why);
	rules.is_http_allowed = 1;
	assert_int_equal(url_check("http://example.com:80/", &rules, why), 0);
}

static void test_wrong_urls(void **state)
{
	static const char *const wrong[][2] = {
		{ "", "allowed is a URL" },
		{ "example.com", "allowed is a URL" },
		{ "/hooks", "allowed is a URL" },
		{ "https://", "allowed is a URL" },
		{ "https:///x", "allowed is a URL" },
		{ "http://example.com/", "the scheme is \"http\": allowed is https" },
		{ "ftp://example.com/", "the scheme is \"ftp\"" },
		{ "gopher://example.com/", "the scheme is \"gopher\"" },
		{ "file:///etc/passwd", "allowed is a URL" },
		{ "https://user@example.com/", "a user or a password" },
		{ "https://user:secret@example.com/", "a user or a password" },
		{ "https://example.com/#x", "a fragment" },
		{ "https://example.com:0/", "the port is 0: allowed are 443, 80 and 1024" },
		{ "https://example.com:25/", "the port is 25" },
		{ "https://example.com:1023/", "the port is 1023" },
		{ "https://example.com:65536/", "allowed is a URL" },
		{ "https://exa mple.com/", "printable ASCII without spaces" },
		{ "https://example.com/\r\nHost: x", "printable ASCII" },
		{ "https://ex\xc3\xa4mple.com/", "printable ASCII" },
		{ "https://example.com\\@127.0.0.1/", "backslashes" },
		{ "https://127.0.0.1/", "the address 127.0.0.1 is loopback" },
		{ "https://127.1/", "the address 127.0.0.1 is loopback" },
		{ "https://0x7f000001/", "the address 127.0.0.1 is loopback" },
		{ "https://2130706433/", "the address 127.0.0.1 is loopback" },
		{ "https://0177.0.0.1/", "the address 127.0.0.1 is loopback" },
		{ "https://0/", "the address 0.0.0.0 is this network" },
		{ "https://%31%32%37.0.0.1/", "" },
		{ "https://169.254.169.254/latest/meta-data/", "is link-local" },
		{ "https://[::1]/", "the address ::1 is loopback" },
		{ "https://[::ffff:127.0.0.1]/", "is IPv4 written as IPv6" },
		{ "https://[::ffff:7f00:1]/", "is IPv4 written as IPv6" },
		{ "https://[64:ff9b::7f00:1]/", "is loopback" },
		{ "https://[fe80::1%25eth0]/", "is link-local" },
		{ "https://[fd00::1]/", "is private" },
	};
	struct rules rules = { .is_http_allowed = 0 };
	char why[URL_WHY_SIZE], text[URL_BYTES_MAX + 2];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		if (url_check(wrong[i][0], &rules, why) == 0)
			fail_msg("%s is allowed", wrong[i][0]);
		if (!strstr(why, wrong[i][1]))
			fail_msg("%s: %s", wrong[i][0], why);
	}
	memset(text, 'a', sizeof(text));
	memcpy(text, "https://example.com/", 20);
	text[URL_BYTES_MAX] = '\0';
	assert_int_equal(url_check(text, &rules, why), 0);
	text[URL_BYTES_MAX] = 'a';
	text[URL_BYTES_MAX + 1] = '\0';
	assert_int_equal(url_check(text, &rules, why), -1);
	assert_string_equal(why, "it has 2049 bytes: allowed are 2048");
}

static void test_ends_of_attempts(void **state)
{
	static const struct {
		int status;
		enum post_end end; /* of an attempt that is not the last */
	} cases[] = {
		{ 200, POST_DELIVERED }, { 202, POST_DELIVERED }, { 204, POST_DELIVERED },
		{ 299, POST_DELIVERED }, { 0, POST_RETRY },       { 100, POST_RETRY },
		{ 301, POST_RETRY },     { 302, POST_RETRY },     { 307, POST_RETRY },
		{ 304, POST_RETRY },     { 400, POST_RETRY },     { 401, POST_RETRY },
		{ 404, POST_RETRY },     { 429, POST_RETRY },     { 500, POST_RETRY },
		{ 503, POST_RETRY },     { 410, POST_GONE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct post_result result = { .status = cases[i].status };

		assert_int_equal(post_end_of(&result, 9, 10), cases[i].end);
		assert_int_equal(post_end_of(&result, 10, 10),
				 cases[i].end == POST_RETRY ? POST_FAILED : cases[i].end);
	}
	assert_string_equal(post_end_name(POST_GONE), "gone");
}

static void test_pauses(void **state)
{
	static const struct {
		int status;
		int64_t retry_after_s;
		int64_t pause_ms;
	} cases[] = {
		{ 429, 0, 0 },
		{ 429, 7, 7000 },
		{ 503, 3600, 3600000 },
		{ 503, 3601, 3600000 },
		{ 503, INT64_MAX, 3600000 },
		{ 500, 7, 0 },
		{ 200, 7, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct post_result result = { .status = cases[i].status,
					      .retry_after_s = cases[i].retry_after_s };

		assert_int_equal(post_pause_ms(&result), cases[i].pause_ms);
	}
}

static void test_delays(void **state)
{
	static const int64_t after_s[] = { 5,     300,   1800,  7200,  18000, 36000,
					   50400, 72000, 86400, 86400, 86400 };
	const int64_t n_most = (int64_t)(sizeof(after_s) / sizeof(after_s[0]));

	(void)state;
	for (int64_t n = 1; n <= n_most; n++) {
		assert_int_equal(post_retry_ms(n, 5000, 0), 1000 * after_s[n - 1]);
		assert_int_equal(post_retry_ms(n, 10, 0), 2 * after_s[n - 1]);
		for (uint32_t random = 0; random < 100000; random += 997) {
			int64_t ms = post_retry_ms(n, 5000, random);

			assert_true(ms >= 1000 * after_s[n - 1] && ms <= 1250 * after_s[n - 1]);
		}
	}
	assert_int_equal(post_retry_ms(100, 60000, 0), 12 * 86400000LL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signature_of_the_sample),
		cmocka_unit_test(test_signatures_of_several_secrets),
		cmocka_unit_test(test_secrets),
		cmocka_unit_test(test_made_secrets_are_read_and_differ),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_socket_addresses),
		cmocka_unit_test(test_allowed_networks),
		cmocka_unit_test(test_wrong_networks),
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_wrong_urls),
		cmocka_unit_test(test_ends_of_attempts),
		cmocka_unit_test(test_pauses),
		cmocka_unit_test(test_delays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
