/* REDIS_URL. */
#include "common/redis/redis.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_taken(void **state)
{
	static const struct {
		const char *text, *host;
		int port;
		const char *user, *password;
		int database;
		int is_tls;
	} cases[] = {
		{ "redis://localhost", "localhost", 6379, NULL, NULL, 0, 0 },
		{ "redis://127.0.0.1:7479/0", "127.0.0.1", 7479, NULL, NULL, 0, 0 },
		{ "redis://h:1/", "h", 1, NULL, NULL, 0, 0 },
		{ "redis://h:65535/15", "h", 65535, NULL, NULL, 15, 0 },
		{ "redis://:secret@h", "h", 6379, NULL, "secret", 0, 0 },
		{ "redis://me:secret@h:7000/3", "h", 7000, "me", "secret", 3, 0 },
		{ "redis://me:a%40b%3Ac%2Fd+e@h", "h", 6379, "me", "a@b:c/d+e", 0, 0 },
		{ "redis://m%20e:p@h", "h", 6379, "m e", "p", 0, 0 },
		{ "redis://%80%FF:%c3%a9%25@h", "h", 6379, "\x80\xff", "\xc3\xa9%", 0, 0 },
		{ "redis://[::1]:7000/1", "::1", 7000, NULL, NULL, 1, 0 },
		{ "rediss://h", "h", 6379, NULL, NULL, 0, 1 },
		{ "rediss://me:secret@h:7000/3", "h", 7000, "me", "secret", 3, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct redis_url url;

		assert_int_equal(redis_url_parse(&url, cases[i].text), 0);
		assert_string_equal(url.host, cases[i].host);
		assert_int_equal(url.port, cases[i].port);
		assert_int_equal(url.database, cases[i].database);
		assert_int_equal(url.is_tls, cases[i].is_tls);
		if (cases[i].user)
			assert_string_equal(url.user, cases[i].user);
		else
			assert_null(url.user);
		if (cases[i].password)
			assert_string_equal(url.password, cases[i].password);
		else
			assert_null(url.password);
		redis_url_fini(&url);
		assert_null(url.host);
	}
}

static void test_sentinels(void **state)
{
	struct redis_url url;

	(void)state;
	assert_int_equal(redis_url_parse(&url,
					 "redis+sentinel://me:a%40b@s1,s2:7000,[::1]:7001/shop/3"),
			 0);
	assert_null(url.host);
	assert_string_equal(url.user, "me");
	assert_string_equal(url.password, "a@b");
	assert_string_equal(url.name, "shop");
	assert_int_equal(url.database, 3);
	assert_int_equal(url.is_tls, 0);
	assert_int_equal(url.sentinels_n, 3);
	assert_string_equal(url.sentinels[0].name, "s1");
	assert_int_equal(url.sentinels[0].port, 26379);
	assert_string_equal(url.sentinels[1].name, "s2");
	assert_int_equal(url.sentinels[1].port, 7000);
	assert_string_equal(url.sentinels[2].name, "::1");
	assert_int_equal(url.sentinels[2].port, 7001);
	redis_url_fini(&url);
	assert_int_equal(redis_url_parse(&url, "rediss+sentinel://:secret@s1/a.b-c_d"), 0);
	assert_int_equal(url.is_tls, 1);
	assert_null(url.user);
	assert_string_equal(url.password, "secret");
	assert_string_equal(url.name, "a.b-c_d");
	assert_int_equal(url.database, 0);
	redis_url_fini(&url);
}

static void test_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"localhost",
		"localhost:6379",
		"http://h",
		"redisss://h",
		"REDISS://h",
		"rediss://",
		"redis://",
		"redis:///0",
		"redis://h/x",
		"redis://h/-1",
		"redis://h/1x",
		"redis://h/1000001",
		"redis://h/0/1",
		"redis://h:70000",
		"redis://h:x",
		"redis://h:0",
		"redis://user@h",
		"redis://h h",
		"redis://[]:1",
		"redis://h/ 1",
		"redis://h/+1",
		"redis://h?db=9",
		"redis://h/0?db=9",
		"redis://h/0#9",
		"redis://:p%00@h",
		"redis://:p%0g@h",
		"redis://:p%@h",
		"redis+sentinel://",
		"redis+sentinel://s1",
		"redis+sentinel://s1/",
		"redis+sentinel:///shop",
		"redis+sentinel://s1,/shop",
		"redis+sentinel://,s1/shop",
		"redis+sentinel://s1:0/shop",
		"redis+sentinel://s1:x/shop",
		"redis+sentinel://s1/shop/x",
		"redis+sentinel://s1/shop/1/",
		"redis+sentinel://s1/sh op",
		"redis+sentinel://s1/shop?x",
		"redis+sentinel://s1?x/shop",
		"redis+sentinel://me@s1/shop",
		"redis+sentinel://me:p@s1,me:p@s2/shop@",
		"redis+sentinel://1,2,3,4,5,6,7,8,9,10/shop",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct redis_url url;

		if (redis_url_parse(&url, texts[i]) == 0)
			fail_msg("%s was taken", texts[i]);
		assert_null(url.host);
		assert_null(url.password);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_sentinels),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("redis_url", tests, NULL, NULL);
}
