/*
 * Log lines: one event a line, quoted where needed, JSON that any parser accepts, and limited in
 * rate.
 */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/message/json.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char captured[1 << 20];
static int saved_stderr, file;

static void capture_begin(void)
{
	char path[] = "/tmp/couponmq-test-log-XXXXXX";

	saved_stderr = dup(STDERR_FILENO);
	file = mkstemp(path);
	assert_true(saved_stderr >= 0 && file >= 0);
	unlink(path);
	dup2(file, STDERR_FILENO);
}

/* Reads the text written since capture_begin(); returns the number of lines. */
static int capture_end(void)
{
	ssize_t n;
	int lines = 0;

	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	n = pread(file, captured, sizeof(captured) - 1, 0);
	close(file);
	assert_true(n >= 0);
	captured[n] = '\0';
	for (const char *p = captured; (p = strchr(p, '\n')); p++)
		lines++;
	return lines;
}

static void test_text(void **state)
{
	(void)state;
	log_init("prog", LOG_LEVEL_INFO, 0);
	capture_begin();
	log_info("plain", LOG_S("a", "value"), LOG_I("n", -42), LOG_I("big", INT64_MIN));
	log_warn("quoted", LOG_S("space", "two words"), LOG_S("empty", ""), LOG_S("null", NULL),
		 LOG_S("eq", "a=b"), LOG_S("quote", "say \"hi\\\""));
	log_error("lines", LOG_S("text", "one\ntwo\r\tthree"));
	log_error("terminal", LOG_S("text", "\x1b[2J\xc3\xa9"), LOG_S("c1", "a\xc2\x9b\x31m"));
	log_debug("hidden", LOG_S("a", "b"));
	log_info("times", LOG_US_AS_MS("a", 0), LOG_US_AS_MS("b", 1053));
	assert_int_equal(capture_end(), 5);
	assert_non_null(strstr(captured, "text=\"\\u001b[2J\xc3\xa9\" c1=\"a\\u009b1m\"\n"));
	assert_non_null(strstr(captured, " event=times a=0.000 b=1.053\n"));
	assert_non_null(strstr(
		captured,
		" level=info program=prog event=plain a=value n=-42 big=-9223372036854775808\n"));
	assert_non_null(strstr(captured, " event=quoted space=\"two words\" empty=\"\" null=\"\" "
					 "eq=\"a=b\" quote=\"say \\\"hi\\\\\\\"\"\n"));
	assert_non_null(strstr(captured, "text=\"one\\u000atwo\\u000d\\u0009three\"\n"));
	assert_memory_equal(captured, "time=20", 7);
}

/* No user ends its value, or the line. */
static void test_users(void **state)
{
	(void)state;
	log_init("prog", LOG_LEVEL_INFO, 0);
	capture_begin();
	log_info("users", LOG_S("a", "\"x\""), LOG_S("b", "\\"), LOG_S("c", "a=b"),
		 LOG_S("d", "%s%n"), LOG_S("e", "a,b:{c}|'$&;<>`~!#*"));
	assert_int_equal(capture_end(), 1);
	assert_non_null(strstr(captured, " a=\"\\\"x\\\"\" b=\"\\\\\" c=\"a=b\" d=%s%n "
					 "e=a,b:{c}|'$&;<>`~!#*\n"));
}

static const cJSON *json_line(struct json_arena *arena)
{
	const char *error = "";
	const cJSON *root = json_parse(arena, captured, strlen(captured) - 1, &error);

	if (!root)
		fail_msg("%s: %s", error, captured);
	return root;
}

static const char *json_text(const cJSON *root, const char *name)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);

	assert_true(cJSON_IsString(item));
	return item->valuestring;
}

static void test_json(void **state)
{
	struct json_arena *arena = json_arena_new();
	const cJSON *root;

	(void)state;
	log_init("prog", LOG_LEVEL_DEBUG, 1);
	capture_begin();
	log_debug("json_event", LOG_S("text", "a \"b\" \\ c\n\x01\x7f é"), LOG_I("n", 7),
		  LOG_S("null", NULL));
	assert_int_equal(capture_end(), 1);
	root = json_line(arena);
	assert_string_equal(json_text(root, "level"), "debug");
	assert_string_equal(json_text(root, "program"), "prog");
	assert_string_equal(json_text(root, "event"), "json_event");
	assert_string_equal(json_text(root, "text"), "a \"b\" \\ c\n\x01\x7f é");
	assert_string_equal(json_text(root, "null"), "");
	assert_int_equal(cJSON_GetObjectItemCaseSensitive(root, "n")->valuedouble, 7);
	json_arena_free(arena);
}

/* A value longer than a line is cut, and the line is still JSON, wherever the cut is. */
static void test_long(void **state)
{
	struct json_arena *arena = json_arena_new();
	char event[32];
	static char text[9000];

	(void)state;
	for (int as_json = 0; as_json < 2; as_json++) {
		log_init("prog", LOG_LEVEL_INFO, as_json);
		for (int variant = 0; variant < 120; variant++) {
			static const char *const fills[] = { "x", "\"", "\n", "\xc3\xa9" };
			const char *fill = fills[variant % 4];
			size_t len = 3800 + (size_t)variant * 3;

			if (variant == 119)
				len = 8000;
			memcpy(text, "yyy",
			       4); /* so that the cut is also in the middle of a character */
			for (size_t at = (size_t)variant / 4 % 3; at < len; at += strlen(fill))
				memcpy(text + at, fill, strlen(fill) + 1);
			snprintf(event, sizeof(event), "long_%d_%d", as_json, variant / 8);
			capture_begin();
			log_info(event, LOG_S("text", text), LOG_S("behind", "short"),
				 LOG_I("n", 5));
			assert_int_equal(capture_end(), 1);
			assert_true(strlen(captured) <= 4096);
			if (as_json)
				json_line(arena);
		}
	}
	json_arena_free(arena);
}

static void test_rate(void **state)
{
	int64_t began_ms;
	char *at;

	(void)state;
	log_init("prog", LOG_LEVEL_INFO, 0);
	capture_begin();
	began_ms = clock_monotonic_ms();
	for (int i = 0; i < 500; i++)
		log_info("flood", LOG_I("i", i));
	log_info("other", LOG_I("i", 0));
	/* After the second, the next line has the number of suppressed lines. */
	while (clock_monotonic_ms() - began_ms < 1001)
		usleep(10000);
	log_info("flood", LOG_I("i", 500));
	assert_int_equal(capture_end(), LOG_BURST + 2);
	assert_non_null(strstr(captured, "event=other"));
	at = strstr(captured, "i=500 suppressed=490\n");
	assert_non_null(at);
	assert_null(strstr(at + strlen("i=500 suppressed"), "suppressed"));
}

static void *thread_main(void *data)
{
	for (int i = 0; i < 200; i++)
		log_info(data, LOG_S("text", "from a thread"), LOG_I("i", i));
	return NULL;
}

/* Lines of threads do not mix. */
static void test_threads(void **state)
{
	static char names[4][16] = { "thread_a", "thread_b", "thread_c", "thread_d" };
	pthread_t threads[4];
	int lines;

	(void)state;
	log_init("prog", LOG_LEVEL_INFO, 0);
	capture_begin();
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, thread_main, names[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	lines = capture_end();
	assert_true(lines >= 4 * LOG_BURST);
	for (char *line = captured, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		assert_memory_equal(line, "time=", 5);
		assert_non_null(strstr(line, "text=\"from a thread\" i="));
	}
}

static void test_fatal(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	log_init("prog", LOG_LEVEL_INFO, 1);
	capture_begin();
	pid = fork();
	if (pid == 0)
		log_fatal("%s is \"%s\": wrong", "SETTING", "x\n\x1b[2J\xc2\x9b\x7f\xc3\xa9");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	capture_end();
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	assert_string_equal(captured, "prog: SETTING is \"x\\x0a\\x1b[2J\\xc2\\x9b\\x7f\xc3\xa9\": "
				      "wrong\n");
}

static void test_service_versions(void **state)
{
	(void)state;
	log_init("prog", LOG_LEVEL_INFO, 0);
	service_version_init();
	capture_begin();
	service_version_log(SERVICE_REDIS, "Redis", "7.0.15");
	service_version_log(SERVICE_POSTGRESQL, "PostgreSQL", "15.14 (Debian 15.14-0+deb12u1)");
	service_version_log(SERVICE_REDIS, "Redis", "7.0.15");
	service_version_log(SERVICE_REDIS, "Redis", "");
	service_version_log(SERVICE_REDIS, "Valkey", "8.0.1");
	service_version_log(SERVICE_REDIS, "Valkey", "8.0.1");
	assert_int_equal(capture_end(), 3);
	assert_non_null(strstr(captured,
			       " event=service_version service=redis version=\"Redis 7.0.15\"\n"));
	assert_non_null(strstr(captured, " service=postgresql version=\"PostgreSQL 15.14 (Debian "
					 "15.14-0+deb12u1)\"\n"));
	assert_non_null(strstr(captured, " service=redis version=\"Valkey 8.0.1\" before=\"Redis "
					 "7.0.15\"\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),  cmocka_unit_test(test_users),
		cmocka_unit_test(test_json),  cmocka_unit_test(test_long),
		cmocka_unit_test(test_rate),  cmocka_unit_test(test_threads),
		cmocka_unit_test(test_fatal), cmocka_unit_test(test_service_versions),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
