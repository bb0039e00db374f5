/* Whose connection it is: the network that limits by client are kept for. */
#include "common/serve/network.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <string.h>

static uint64_t peer(const char *text)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	struct sockaddr_in four = { .sin_family = AF_INET };

	if (strchr(text, ':')) {
		assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
		return peer_of_address((const struct sockaddr *)&six);
	}
	assert_int_equal(inet_pton(AF_INET, text, &four.sin_addr), 1);
	return peer_of_address((const struct sockaddr *)&four);
}

static void test_addresses(void **state)
{
	(void)state;
	assert_true(peer("192.0.2.1") == peer("192.0.2.1"));
	assert_true(peer("192.0.2.1") != peer("192.0.2.2"));
	assert_true(peer("::ffff:192.0.2.1") == peer("192.0.2.1"));
	assert_true(peer("2001:db8:0:1::1") == peer("2001:db8:0:1:ffff:ffff:ffff:ffff"));
	assert_true(peer("2001:db8:0:1::1") != peer("2001:db8:0:2::1"));
}

static void test_unix_sockets(void **state)
{
	const struct sockaddr one = { .sa_family = AF_UNIX }, other = { .sa_family = AF_UNIX };

	(void)state;
	assert_true(peer_of_address(&one) == peer_of_address(&other));
	assert_true(peer_of_address(&one) != peer("127.0.0.1"));
}

static int is_in(const char *list, const char *text)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	char why[NETWORKS_WHY_SIZE];
	struct networks networks;

	assert_int_equal(networks_parse(&networks, list, why), 0);
	assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
	return networks_have_address(&networks, (const struct sockaddr *)&six);
}

/* Of any length; a socket of IPv6 shows an address of IPv4 in this form. */
static void test_networks(void **state)
{
	(void)state;
	assert_true(is_in("192.0.2.1,10.0.0.0/9", "::ffff:10.127.255.255"));
	assert_false(is_in("192.0.2.1,10.0.0.0/9", "::ffff:10.128.0.0"));
	assert_true(is_in("192.0.2.1,10.0.0.0/9", "::ffff:192.0.2.1"));
	assert_true(is_in("fd00::/9", "fd7f::1"));
	assert_false(is_in("fd00::/9", "fd80::1"));
	assert_false(is_in("0.0.0.0/0", "fd00::1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_addresses),
					    cmocka_unit_test(test_unix_sockets),
					    cmocka_unit_test(test_networks) };

	return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
