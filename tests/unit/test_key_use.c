/* How often keys were used, over processes. */
#include "gateway/auth/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
	(void)state;
	key_uses_init();
	return 0;
}

static char *told(void)
{
	struct evbuffer *out = evbuffer_new();
	size_t len;
	char *text;

	key_uses_prometheus(out);
	len = evbuffer_get_length(out);
	text = calloc(1, len + 1);
	evbuffer_remove(out, text, len);
	evbuffer_free(out);
	return text;
}

static void test_each_key_has_its_own(void **state)
{
	static const char *const ids[] = { "0000000000", "zzzzzzzzzz", "3k9v0d7xqa" };
	char *text;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(key_use_place(ids[i]), i);
	assert_int_equal(key_use_place(ids[1]), 1);
	key_use(1, 1500, 0);
	key_use(1, 2500, 1);
	key_use(2, 3000, 0);
	text = told();
	assert_non_null(strstr(text, "\ncouponmq_key_requests_total{key=\"zzzzzzzzzz\"} 2\n"));
	assert_non_null(strstr(text, "\ncouponmq_key_refused_total{key=\"zzzzzzzzzz\"} 1\n"));
	assert_non_null(strstr(text, "\ncouponmq_key_last_used_seconds{key=\"zzzzzzzzzz\"} 2.5\n"));
	assert_non_null(strstr(text, "\ncouponmq_key_requests_total{key=\"3k9v0d7xqa\"} 1\n"));
	assert_null(strstr(text, "0000000000"));
	assert_null(strstr(text, KEY_USE_OTHERS));
	free(text);
}

static void test_each_use_is_taken_once(void **state)
{
	struct key_last_use uses[3];

	(void)state;
	assert_int_equal(key_uses_take(uses, 3), 0);
	key_use(key_use_place("zzzzzzzzzz"), 1500, 0);
	key_use(key_use_place("3k9v0d7xqa"), 3000, 1);
	key_use(key_use_place("zzzzzzzzzz"), 2500, 0);
	assert_int_equal(key_uses_take(uses, 1), 1);
	assert_string_equal(uses[0].id, "zzzzzzzzzz");
	assert_int_equal(uses[0].ms, 2500);
	assert_int_equal(key_uses_take(uses, 3), 1);
	assert_string_equal(uses[0].id, "3k9v0d7xqa");
	assert_int_equal(uses[0].ms, 3000);
	assert_int_equal(key_uses_take(uses, 3), 0);
	key_use(key_use_place("zzzzzzzzzz"), 3500, 0);
	assert_int_equal(key_uses_take(uses, 3), 1);
	assert_int_equal(uses[0].ms, 3500);
}

#define PROCESSES 4

/* Each key has one place, whichever process was the first; those beyond the last share one. */
static void test_processes_share_them(void **state)
{
	char id[11], line[100], *text;

	(void)state;
	for (int process = 0; process < PROCESSES; process++) {
		if (fork() > 0)
			continue;
		for (unsigned n = 0; n < KEY_USES_MAX + 10; n++) {
			snprintf(id, sizeof(id), "%010u", n);
			key_use(key_use_place(id), 1000, 0);
		}
		_exit(0);
	}
	for (int process = 0; process < PROCESSES; process++)
		wait(NULL);
	text = told();
	for (unsigned n = 0; n < KEY_USES_MAX / 2; n++) {
		snprintf(line, sizeof(line), "\ncouponmq_key_requests_total{key=\"%010u\"} %d\n", n,
			 PROCESSES);
		assert_non_null(strstr(text, line));
	}
	snprintf(line, sizeof(line), "\ncouponmq_key_requests_total{key=\"%s\"} %d\n",
		 KEY_USE_OTHERS, 10 * PROCESSES);
	assert_non_null(strstr(text, line));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_each_key_has_its_own, setup),
		cmocka_unit_test_setup(test_each_use_is_taken_once, setup),
		cmocka_unit_test_setup(test_processes_share_them, setup),
	};

	return cmocka_run_group_tests_name("key_use", tests, NULL, NULL);
}
