/* The network of a connection's peer, by which limits count clients. */
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_addresses),
					    cmocka_unit_test(test_unix_sockets) };

	return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
