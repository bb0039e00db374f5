/* The hosts that requests may name, and the origins of web pages. */
#include "common/serve/http_origin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void test_hosts(void **state)
{
	static const char *const own[] = { "127.0.0.1",    "127.0.0.1:7480", "[::1]",
					   "[::1]:7480",   "localhost",      "LocalHost:1",
					   "shop.example", "Gateway:7480" };
	static const char *const foreign[] = { "",
					       "x",
					       "evil.example",
					       "evil.example:7480",
					       "shop.example.evil",
					       "localhost.evil",
					       "shop",
					       "127.0.0.1.evil",
					       "127.1",
					       "0x7f.1",
					       "2130706433",
					       "::1",
					       "[::1",
					       "[x]",
					       "[127.0.0.1]",
					       "localhost:x",
					       "localhost:1:2",
					       "[::1]x",
					       "a@localhost",
					       ",",
					       "shop.example,gateway",
					       "localhost:80 x" };
	const char *names = "shop.example,gateway";

	(void)state;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		assert_true(http_hosts_has(names, own[i]));
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		assert_false(http_hosts_has(names, foreign[i]));
	assert_false(http_hosts_has("", "shop.example"));
	assert_true(http_hosts_has("", "localhost"));
}

static void test_origins(void **state)
{
	static const char names[] = "shop.example", host[] = "127.0.0.1:7480";

	(void)state;
	assert_true(http_hosts_has_origin(names, "http://127.0.0.1:7480", host));
	assert_true(http_hosts_has_origin(names, "https://shop.example", host));
	assert_true(http_hosts_has_origin(names, "http://Shop.example:3000", host));
	assert_false(http_hosts_has_origin(names, "http://127.0.0.1:3000", host));
	assert_false(http_hosts_has_origin(names, "http://localhost:7480", host));
	assert_false(http_hosts_has_origin(names, "https://evil.example", host));
	assert_false(http_hosts_has_origin(names, "https://shop.example.evil", host));
	assert_false(http_hosts_has_origin(names, "null", host));
	assert_false(http_hosts_has_origin(names, "null", "null"));
	assert_false(http_hosts_has_origin(names, "http://", host));
	assert_false(http_hosts_has_origin("", "http://shop.example", ""));
}

/* Whether the program starts with them: a wrong list ends it. */
static int is_allowed(const char *origins)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		close(STDERR_FILENO);
		http_origins_check(origins);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) == 0;
}

static void test_lists_of_origins(void **state)
{
	static const char *const allowed[] = {
		"",
		"https://shop.example",
		"http://shop.example:3000,https://shop.example",
		"http://127.0.0.1:8080",
		"https://[::1]",
		"http://[fd00::1]:8080,http://localhost",
		"http://x:443",
		"https://x:80",
	};
	static const char *const wrong[] = {
		"*",
		"null",
		"shop.example",
		"https://",
		"https://*.shop.example",
		"https://shop.example/",
		"https://shop.example:443",
		"http://shop.example:80",
		"https://shop.example:0",
		"https://shop.example:65536",
		"https://shop.example:",
		"https://shop.example:08",
		"https://Shop.example",
		"HTTPS://shop.example",
		"ftp://shop.example",
		"https://user@shop.example",
		"https://[::1",
		"https://[x]",
		"https://[FD00::1]",
		"https://[::1]x",
		"https://a,",
		",https://a",
		"https://a,,https://b",
		"https://a https://b",
		"https://a, https://b",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		assert_true(is_allowed(allowed[i]));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_false(is_allowed(wrong[i]));
}

static int has(const char *origins, const char *origin)
{
	const char *found = http_origins_find(origins, origin, strlen(origin));

	assert_true(!found || memcmp(found, origin, strlen(origin)) == 0);
	return found != NULL;
}

static void test_origins_are_compared_whole(void **state)
{
	static const char origins[] = "https://shop.example,http://shop.example:3000";

	(void)state;
	assert_true(has(origins, "https://shop.example"));
	assert_true(has(origins, "http://shop.example:3000"));
	assert_false(has(origins, "http://shop.example"));
	assert_false(has(origins, "http://shop.example:300"));
	assert_false(has(origins, "https://shop.example:3000"));
	assert_false(has(origins, "https://shop.example.evil"));
	assert_false(has(origins, "https://shop"));
	assert_false(has(origins, "HTTPS://shop.example"));
	assert_false(has(origins, origins));
	assert_false(has(origins, "null"));
	assert_false(has(origins, ""));
	assert_false(has("", ""));
	assert_false(has("", "https://shop.example"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts),
		cmocka_unit_test(test_origins),
		cmocka_unit_test(test_lists_of_origins),
		cmocka_unit_test(test_origins_are_compared_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
